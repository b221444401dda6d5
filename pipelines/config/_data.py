"""Settings of original files, and the rules of the domains that are made from them."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from pipelines.config._base import Section


class AmazonData(Section):
    """Amazon review files; by default those in the world's folder."""

    edition: Literal["auto", "2018", "2023"] = Field(
        "auto",
        description="Edition of the published files to read; `auto` reads all that are there (an "
        "item in both is taken from the later one).",
    )
    categories: tuple[str, ...] = Field(
        (), description="Categories by file name, such as `Books`; default: all that are there."
    )
    reviews: tuple[str, ...] = Field(
        (), description="Review files by path or URL, instead of the world's folder."
    )
    meta: tuple[str, ...] = Field(
        (), description="Product files by path or URL, instead of the world's folder."
    )


class SteamData(Section):
    """Steam files; by default those in the world's folder."""

    games: str = Field("", description="`steam_games.json[.gz]` by path or URL.")
    reviews: str = Field("", description="`australian_user_reviews.json[.gz]` by path or URL.")
    items: str = Field("", description="`australian_users_items.json[.gz]` by path or URL.")


class PersonaFilesData(Section):
    """Files of personas to import; by default those in the world's folder."""

    files: tuple[str, ...] = Field((), description="JSONL or plain text, by path or URL.")


class TaxonomyData(Section):
    """A category tree; by default that in the world's folder."""

    file: str = Field("", description="`A > B > C` lines or a CSV of levels, by path or URL.")


class OwnData(Section):
    """A data set of one's own: items and ratings in any table format (docs/data.md)."""

    name: str = Field(
        "own",
        pattern=r"^[a-z][a-z0-9-]{0,40}$",
        description="Name of its release and standing cohort, such as `recipes`.",
    )
    items: str = Field(
        "", description="File of items by path or URL: CSV, TSV, Parquet, JSON lines, RecBole."
    )
    ratings: str = Field("", description="File of ratings, by path or URL.")
    users: str = Field("", description="File of users' age, gender and occupation, if there is.")
    columns: dict[str, str] = Field(
        {},
        description="Columns by meaning (`user`, `item`, `rating`, `timestamp`, `title`, `genres`, "
        "`year`, `description`, `age`, `gender`, `occupation`) where their names are not usual.",
    )
    scale: str = Field(
        "",
        pattern=r"^(-?[0-9.]+-[0-9.]+)?$",
        description="Lowest and highest rating, such as `0-10`; default: the smallest usual scale "
        "that holds all ratings.",
    )
    terms: str = Field("", description="Terms of the files, for the dataset card.")
    source: str = Field(
        "",
        description="Publisher's declaration: an entry point of `understudy.sources`, "
        "`module:Class` or `file.py:Class`.",
    )

    @field_validator("name")
    @classmethod
    def _free(cls, name: str) -> str:
        if name in ("movies", "books", "games", "products"):
            raise ValueError("the name is a domain of another source")
        return name

    @property
    def named(self) -> tuple[str, ...]:
        """Files that are named: items, ratings and, if there, users."""
        return tuple(filter(None, (self.items, self.ratings, self.users)))


class DataSettings(Section):
    """Variant and location of each source's original files (only their contents are hashed)."""

    identity: ClassVar[bool] = False

    max_unpack_ratio: int = Field(
        200,
        ge=2,
        description="Maximum compression ratio of a file that unpacks to over 64 MiB; more is "
        "refused as a decompression bomb (CSV and JSON compress about 4:1 to 15:1).",
    )
    max_unpacked_gb: float = Field(
        1000.0, gt=0, description="Maximum unpacked size of a compressed file (GB)."
    )
    amazon: AmazonData = Field(default_factory=AmazonData, description="Amazon reviews.")
    steam: SteamData = Field(default_factory=SteamData, description="Steam games and reviews.")
    personas: PersonaFilesData = Field(
        default_factory=PersonaFilesData, description="Personas to import."
    )
    taxonomy: TaxonomyData = Field(default_factory=TaxonomyData, description="Category tree.")
    own: OwnData = Field(default_factory=OwnData, description="A data set of one's own.")


class BooksSettings(Section):
    """Filters of books (SUBER, appendix B)."""

    categories: tuple[str, ...] = Field(
        ("Books", "Kindle_Store"),
        description="Amazon categories, by file name, whose products are books.",
    )
    min_category_size: int = Field(
        100, ge=1, description="Categories with fewer books are dropped (count)."
    )
    full_catalogue: int = Field(
        10_000,
        ge=1,
        description="Number of books from which `min_category_size` applies in full; in a smaller "
        "catalogue it shrinks in proportion (count). 1 applies it to every catalogue.",
    )


class GamesSettings(Section):
    """Steam's reviews, whose verdicts become ratings from 1 to 5 (``dbt/macros/ratings.sql``)."""

    review_year: int | None = Field(
        None,
        ge=2003,
        le=2100,
        description="Year of reviews whose date has none (`Posted July 3.`), as Steam omits the "
        "year in which the page was crawled. Default: such reviews are left out and "
        "counted.",
    )


class ProductsSettings(Section):
    """Product choice sets (BIEL, section 4 and appendix C)."""

    sample: int = Field(
        100_000,
        ge=0,
        description="Products sampled over all categories in proportion to their sizes (count; "
        "BIEL: 100 000); 0: every product.",
    )
    seed: int = Field(13, ge=0, description="Seed of the sample.")
    essential: tuple[Literal["title", "description", "features", "price", "brand"], ...] = Field(
        ("title", "description"),
        description="Fields without which a product is dropped; a field that no record of a file "
        "has is not required of that file, which is reported.",
    )
    cut_levels: int = Field(
        2, ge=0, le=10, description="Levels from the top of the tree that are not choice sets."
    )
    min_category_size: int = Field(
        15, ge=1, description="Categories with fewer products are not choice sets (count)."
    )
    choice_set_size: int = Field(
        50,
        ge=2,
        description="Maximum products of a choice set shown to shoppers (count; BIEL's mean); "
        "larger sets are sampled with the seed.",
    )
