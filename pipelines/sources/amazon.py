"""Amazon reviews: the editions of 2018 and 2023, in the files their publishers offer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pipelines.config import AmazonData
from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.sources._folders import check_file, given_files, pick_files, unclear_name
from pipelines.sources._protocol import Source
from pipelines.sources._reader import Column, columns, json_rows, record_blocks
from pipelines.sources._tables import Check, RawTable, Workspace, check_time, raw_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["AmazonFile", "AmazonSource", "find_files"]


Edition = Literal["2018", "2023"]
Kind = Literal["reviews", "meta"]

EDITIONS: tuple[Edition, ...] = ("2018", "2023")
#: Categories, by file name, that the domain of books is made from.
BOOK_CATEGORIES = frozenset({"Books", "Kindle_Store"})

_FOLDER = "amazon"
#: `meta_Books.json.gz`, `Books_5.json.gz` (users and items with five reviews), `Books.jsonl`;
#: copies are in small letters, with other separators, or have `reviews_` before the category.
_NAME = re.compile(
    r"(?:raw[_-])?(?:(?P<meta>meta[_-])|reviews?[_-])?(?P<category>[A-Z0-9_]+?|[A-Z0-9_ &,-]+?)"
    r"(?P<core>[_-]5)?\.jsonl?(?:\.gz)?",
    re.IGNORECASE,
)
#: Categories of both editions, as their files are called.
_CATEGORIES = (
    "All_Beauty", "Amazon_Fashion", "Appliances", "Arts_Crafts_and_Sewing", "Automotive",
    "Baby_Products", "Beauty_and_Personal_Care", "Books", "CDs_and_Vinyl",
    "Cell_Phones_and_Accessories", "Clothing_Shoes_and_Jewelry", "Digital_Music", "Electronics",
    "Gift_Cards", "Grocery_and_Gourmet_Food", "Handmade_Products", "Health_and_Household",
    "Health_and_Personal_Care", "Home_and_Kitchen", "Industrial_and_Scientific", "Kindle_Store",
    "Luxury_Beauty", "Magazine_Subscriptions", "Movies_and_TV", "Musical_Instruments",
    "Office_Products", "Patio_Lawn_and_Garden", "Pet_Supplies", "Prime_Pantry", "Software",
    "Sports_and_Outdoors", "Subscription_Boxes", "Tools_and_Home_Improvement", "Toys_and_Games",
    "Video_Games",
)  # fmt: skip
#: A category of the 2018 edition is written otherwise in that of 2023.
_EXACT = frozenset((*_CATEGORIES, "AMAZON_FASHION"))
#: Words in the name of a category that would be one of books.
_BOOKS = frozenset(("book", "books", "ebooks", "kindle"))
_RESEMBLES = re.compile(r".*\.jsonl?(?:\.gz)?", re.IGNORECASE)
#: The names of files, for error texts.
EXPECTED = (
    "amazon/2018/<Category>.json.gz and meta_<Category>.json.gz, or "
    "amazon/2023/<Category>.jsonl.gz and meta_<Category>.jsonl.gz"
)


@dataclass(frozen=True, slots=True)
class AmazonFile:
    """A file of reviews or metadata."""

    #: Path, and name relative to the data folder.
    path: Path
    name: str
    #: Edition, which determines the format.
    edition: Edition
    kind: Kind
    #: Category in the file's name, such as ``Books``.
    category: str


def find_files(
    folder: Path, settings: AmazonData, given: Mapping[Kind, Sequence[Path]] | None = None
) -> list[AmazonFile]:
    """Find the Amazon files of a data folder, or sort out the given ones.

    ``amazon/2018`` and ``amazon/2023`` are looked at, and ``amazon`` itself, where ``.json`` is
    2018 and ``.jsonl`` is 2023. Files that are ``given`` of a kind replace those of the folder.
    They come by name; none if there are none and none were asked for.

    Raises :class:`SourceError` if the folder can't be read, a given file has no name of a known
    form, two files have the same edition, kind and category, or a category that was asked for is
    not there.
    """
    given = {kind: paths for kind, paths in (given or {}).items() if paths}
    named = [_sorted_out(path, kind, settings) for kind, paths in given.items() for path in paths]
    lying = [f for f in _in_folder(folder) if f.kind not in given]
    if settings.edition != "auto":
        lying = [f for f in lying if f.edition == settings.edition]
    by_key: dict[tuple[str, str, str], AmazonFile] = {}
    for file in (*named, *lying):
        key = (file.edition, file.kind, file.category)
        if key in by_key:
            raise SourceError(
                f"two files of {file.category} ({file.kind}, {file.edition})",
                where=f"{by_key[key].name} and {file.name}",
                hint="keep one of them",
            )
        by_key[key] = file
    categories = sorted({f.category for f in by_key.values()})
    chosen = [category_of(f"{name}.json") or name for name in settings.categories]
    absent = [category for category in chosen if category not in categories]
    if absent:
        raise SourceError(
            f"no files of {', '.join(absent)}",
            where=str(folder / _FOLDER),
            hint=f"data.amazon.categories names them; found: {', '.join(categories) or 'none'}",
        )
    selected = chosen or categories
    return sorted((f for f in by_key.values() if f.category in selected), key=lambda f: f.name)


def _sorted_out(path: Path, kind: Kind, settings: AmazonData) -> AmazonFile:
    """A file that the settings name."""
    file = _named(path, path.name, None if settings.edition == "auto" else settings.edition)
    if file is None or file.kind != kind:
        raise SourceError(
            f"not the name of a file of {kind}",
            where=str(path),
            hint=f"data.amazon.{kind} names it; expected {EXPECTED}",
        )
    check_file(path, EXPECTED)
    return file


def _in_folder(folder: Path) -> Iterator[AmazonFile]:
    here = folder / _FOLDER
    places: list[tuple[Path, Edition | None]] = [(here, None), *((here / e, e) for e in EDITIONS)]
    for place, edition in places:
        for path in pick_files(place, _is_name, EXPECTED, resembles=_resembles):
            file = _named(path, path.relative_to(folder).as_posix(), edition)
            if file is not None:
                yield file


def category_of(name: str) -> str | None:
    """The category that a file is called after; None if its name is of no known form.

    Known ones may be written in other letters and with other separators.

    >>> category_of("meta_books.jsonl.gz"), category_of("Sports & Outdoors.jsonl")
    ('Books', 'Sports_and_Outdoors')
    """
    match = _NAME.fullmatch(name)
    if match is None or match["category"] in _EXACT:
        return match and match["category"]
    plain = _words(match["category"])
    published = next((name for name in _CATEGORIES if _words(name) == plain), None)
    return published or (match["category"] if re.fullmatch(r"\w+", match["category"]) else None)


def _words(category: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", category.lower().replace("&", " and "))


def _is_name(name: str) -> bool:
    return category_of(name) is not None


def _resembles(name: str) -> bool:
    return _RESEMBLES.fullmatch(name) is not None


def _named(path: Path, name: str, edition: Edition | None) -> AmazonFile | None:
    """A file by what it is called; None if it is called otherwise."""
    match, category = _NAME.fullmatch(path.name), category_of(path.name)
    if match is None or category is None:
        return None
    if category not in BOOK_CATEGORIES and _BOOKS.intersection(_words(category)):
        # Its books would be products.
        raise unclear_name(path, EXPECTED, ", ".join(sorted(BOOK_CATEGORIES)))
    if edition is None:
        edition = "2023" if ".jsonl" in path.name.lower() else "2018"
    kind: Kind = "meta" if match["meta"] else "reviews"
    return AmazonFile(path, name, edition, kind, category)


_ASIN = "^[0-9A-Z]{10}$"
#: Some reviewers of 2018 are called `#oc-R…`, some of 2023 have `_1` at the end.
_USER = "^[0-9A-Za-z_#-]{1,64}$"


def _id(key: str, name: str = "") -> Column:
    return Column(key, name or key, "id", "bad_id", required=True)


def _rating(name: str) -> Column:
    return Column(name, name, "number", "bad_rating", required=True)


#: Fields that are taken of each record, by table, in the order in which they are read.
TABLES: Mapping[tuple[Edition, Kind], tuple[Column, ...]] = {
    ("2018", "reviews"): (
        _id("reviewerID", "reviewer_id"),
        _id("asin"),
        _rating("overall"),
        Column("unixReviewTime", "unix_review_time", "seconds", "bad_timestamp", required=True),
        *columns("verified", kind="boolean"),
        *columns("vote", kind="json"),
        *columns("summary"),
        Column("reviewText", "review_text"),
        *columns("style", kind="object"),
    ),
    ("2018", "meta"): (
        _id("asin"),
        *columns("title", "brand", "main_cat"),
        Column("category", "category_path", "texts"),
        *columns("description", "feature", "also_buy", "also_view", kind="texts"),
        *columns("price", "date", "rank", kind="json"),
        *columns("details", kind="object"),
    ),
    ("2023", "reviews"): (
        _id("user_id"),
        _id("parent_asin"),
        *columns("asin"),
        _rating("rating"),
        Column("timestamp", "timestamp", "milliseconds", "bad_timestamp", required=True),
        *columns("verified_purchase", kind="boolean"),
        *columns("helpful_vote", kind="integer"),
        *columns("title", "text"),
    ),
    ("2023", "meta"): (
        _id("parent_asin"),
        *columns("main_category", "title", "subtitle", "store"),
        *columns("author", kind="object"),
        *columns("average_rating", kind="number"),
        *columns("rating_number", kind="integer"),
        *columns("price", kind="json"),
        *columns("categories", "description", "features", kind="texts"),
        *columns("bought_together", kind="json"),
        *columns("details", kind="object"),
    ),
}


def _table(edition: Edition, kind: Kind, files: Sequence[AmazonFile], work: Workspace) -> RawTable:
    """The files of an edition and kind as a table; without any it has no rows."""
    import polars as pl

    fields = TABLES[edition, kind]
    categories = {f.name: f.category for f in files}
    filled: dict[str, int] = {}
    checks = []
    for column in fields:
        value = pl.col(column.name)
        if column.kind == "id":
            is_user = column.name in ("reviewer_id", "user_id")
            checks.append(
                Check("bad_id", column.name, value.str.contains(_USER if is_user else _ASIN))
            )
        elif column.kind == "number" and column.required:
            on_scale = value.is_between(1, 5) & (value == value.round())
            checks.append(Check("off_scale", column.name, on_scale))
        elif column.kind in ("seconds", "milliseconds"):
            checks.append(check_time(column.name, 1 if column.kind == "seconds" else 1000))

    def finish(frame: pl.DataFrame) -> pl.DataFrame:
        given = {
            f.name: (pl.col(f.name).list.len() > 0).sum()
            if f.kind == "texts"
            else pl.col(f.name).is_not_null().sum()
            for f in fields
        }
        for name, count in frame.select(**given).row(0, named=True).items():
            filled[name] = filled.get(name, 0) + count
        category = pl.col("file").replace_strict(categories, return_dtype=pl.String)
        return frame.with_columns(category=category)

    expected = f"one JSON object per line with {', '.join(f.field for f in fields if f.required)}"
    table = raw_table(
        f"raw.amazon_{kind}_{edition}",
        {
            f.name: json_rows(record_blocks(work.original(f.path, f.name), expected), fields)
            for f in files
        },
        work,
        columns=fields,
        checks=lambda _: checks,
        file=f"amazon/{edition} {kind}",
        finish=finish,
        allow_empty=not files,
    )
    table.stats["filled"] = filled
    return table


class AmazonSource(Source):
    """Amazon reviews and products, editions 2018 and 2023, JSON lines, plain or gzip.

    Rows come out as published, by file and line; repeated records and mark-up in titles are
    dbt's to clean and count. Rejected are lines that the JSON-lines reader can't take
    (``blank_line``, ``too_long``, ``invalid_utf8``, ``not_json``, ``not_object``) and, by reason:

    =================  =====================================================================
    ``bad_id``         a user or item that is missing, or has characters of no id
    ``bad_rating``     a rating that is missing or no number
    ``off_scale``      a rating that is not 1, 2, 3, 4 or 5
    ``bad_timestamp``  a time that is missing, no whole number, or not from 1990 to 2035
    ``wrong_type``     another field whose value can't be read as what is published
    =================  =====================================================================
    """

    name: ClassVar[str] = "amazon"
    expected: ClassVar[str] = EXPECTED
    code_version: ClassVar[str] = "amazon-3"
    datasets: ClassVar[tuple[str, ...]] = (
        *(f"raw.amazon_{kind}_{edition}" for edition, kind in TABLES),
        "raw.amazon_rejected",
    )
    domains: ClassVar[frozenset[str]] = frozenset({"books", "products"})
    licence: ClassVar[Licence] = Licence(
        name="Amazon review data of the McAuley lab",
        url="https://cseweb.ucsd.edu/~jmcauley/datasets.html",
        terms="For academic use; cite the paper of the edition. The reviews are their writers'.",
        citation="J. Ni, J. Li, J. McAuley. Justifying Recommendations using Distantly-Labeled "
        "Reviews and Fine-Grained Aspects. EMNLP 2019 (2018 edition). Y. Hou, J. Li, Z. He, "
        "A. Yan, X. Chen, J. McAuley. Bridging Language and Items for Retrieval and "
        "Recommendation. arXiv:2403.03952, 2024 (2023 edition).",
    )

    def present(self, folder: Path) -> bool:
        """Whether files are named in the settings or lie in ``folder/amazon``."""
        data = self.settings.data.amazon
        return bool(data.reviews or data.meta or self._found(folder))

    def files(self, folder: Path) -> list[Path]:
        """Return the files that are read, by name."""
        return [file.path for file in self._found(folder)]

    def feeds(self, folder: Path) -> frozenset[str]:
        """Books if there are products of a category of books, products if there are others."""
        return frozenset(_domain(f) for f in self._found(folder) if f.kind == "meta")

    def lacks(self, folder: Path) -> SourceError | None:
        """Name reviews of a domain that has no product records at all."""
        files = self._found(folder)
        with_records = {_domain(f) for f in files if f.kind == "meta"}
        alone = [f for f in files if _domain(f) not in with_records]
        if not alone:
            return None
        records = dict.fromkeys(f"meta_{f.category}" for f in alone)
        return SourceError(
            "reviews without product records",
            where=", ".join(f.name for f in alone),
            hint=f"put {', '.join(records)} (.json.gz or .jsonl.gz) beside them or name it in "
            "data.amazon.meta; data.amazon.categories leaves categories out",
        )

    def identity(self, folder: Path) -> Mapping[str, Any]:
        """Return how each file is read: its edition is a setting where its name leaves it open."""
        return {"editions": {file.name: file.edition for file in self._found(folder)}}

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Read reviews and products of 2018, then of 2023."""
        available = self._found(folder)
        if not available:
            raise SourceError(
                "no Amazon files", where=str(folder / self.name), hint="see docs/data.md"
            )
        for edition, kind in TABLES:
            files = [f for f in available if (f.edition, f.kind) == (edition, kind)]
            yield _table(edition, kind, files, work)

    def _found(self, folder: Path) -> list[AmazonFile]:
        data = self.settings.data.amazon
        given: dict[Kind, list[Path]] = {
            "reviews": given_files(data.reviews, self.settings),
            "meta": given_files(data.meta, self.settings),
        }
        return find_files(folder, data, given)


def _domain(file: AmazonFile) -> str:
    return "books" if file.category in BOOK_CATEGORIES else "products"
