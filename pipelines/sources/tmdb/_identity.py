"""Which films are wanted, and whether a record is about the film it is filed under."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from rapidfuzz import fuzz

if TYPE_CHECKING:
    import polars as pl

__all__ = ["WantedFilms", "imdb_number", "title_forms"]

#: Least similarity (0-100, normalised indel) of two titles of the same film, if the years fit;
#: without a year to go by, only equal titles count.
SAME_TITLE = 85.0
#: Largest difference of two release years of the same film (festival against general release;
#: censored films came out years later).
SAME_YEAR = 3

_YEAR = re.compile(r"\((\d{4})\)\s*$")
_BRACKETS = re.compile(r"\(([^()]*)\)")
_ARTICLE = re.compile(
    r"^(.*), (the|a|an|la|le|les|l'|il|lo|el|los|las|der|die|das|un|une|en|ett|den|det)$"
)
_NUMERAL = re.compile(r"\d+|\b[ivx]+\b")
_IMDB = re.compile(r"(?:tt)?0*(\d+)")


class WantedFilms:
    """The films to find, by TMDB id, with what MovieLens says about each.

    Parameters
    ----------
    frame
        ``tmdb_id`` (int64; null rows are dropped), ``imdb_id`` (string, null if unknown) and,
        where available, ``title`` (MovieLens title with the year in brackets).

    Examples
    --------
    >>> import polars as pl
    >>> films = WantedFilms(pl.DataFrame(
    ...     {"tmdb_id": [862], "imdb_id": ["0114709"], "title": ["Toy Story (1995)"]}))
    >>> films.is_another(862, "tt0114709", ["Anything"], None)
    False
    >>> films.is_another(862, "tt0113277", ["Heat"], "1995-12-15")
    True
    >>> films.is_another(862, "tt9999999", ["Toy Story"], "1995-10-30")
    False
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        self._imdb: dict[int, list[int]] = {}
        self._titles: dict[int, list[str]] = {}
        titled = "title" in frame.columns
        columns = ["tmdb_id", "imdb_id", *(["title"] if titled else [])]
        for tmdb_id, imdb_id, *rest in frame.select(columns).iter_rows():
            if tmdb_id is None:
                continue
            numbers = self._imdb.setdefault(tmdb_id, [])
            number = imdb_number(imdb_id)
            if number is not None:
                numbers.append(number)
            if rest and rest[0]:
                self._titles.setdefault(tmdb_id, []).append(rest[0])

    def __contains__(self, tmdb_id: object) -> bool:
        return tmdb_id in self._imdb

    def __iter__(self) -> Iterator[int]:
        """TMDB ids, ascending."""
        return iter(sorted(self._imdb))

    def __len__(self) -> int:
        return len(self._imdb)

    def contradicts(self, tmdb_id: int, imdb_id: str | None) -> bool:
        """Whether the record's IMDb id differs from that of every film linked to the TMDB id.

        An unknown id on either side contradicts nothing.
        """
        number = imdb_number(imdb_id)
        linked = self._imdb.get(tmdb_id)
        return bool(linked) and number is not None and number not in (linked or ())

    def is_another(
        self, tmdb_id: int, imdb_id: str | None, titles: list[str | None], release: str | None
    ) -> bool:
        """Whether a record filed under ``tmdb_id`` is about some other film.

        IMDb and TMDB merge and renumber entries, so an IMDb id that differs from MovieLens'
        is no proof: the record is refused only if, besides, no title of it resembles a
        MovieLens title of the film, or the release years are more than ``SAME_YEAR`` apart (a
        remake). If no MovieLens title is known, the IMDb id decides alone.

        Measured on ml-latest-small: of 194,660 records put under a random film's id, 2 pass
        (namesakes without a date); had every IMDb id been renumbered, no film of 9,733 would
        have lost its record.
        """
        if not self.contradicts(tmdb_id, imdb_id):
            return False
        known = self._titles.get(tmdb_id, [])
        return not any(
            _same_film(title, other, release) for title in known for other in titles if other
        )


def imdb_number(value: str | None) -> int | None:
    """Return the number in an IMDb id, with or without ``tt`` and leading zeros; else ``None``.

    >>> imdb_number("tt0114709"), imdb_number("114709"), imdb_number("nm0000001")
    (114709, 114709, None)
    """
    match = _IMDB.fullmatch((value or "").strip())
    return int(match[1]) if match else None


@lru_cache(maxsize=1024)
def title_forms(title: str) -> tuple[str, ...]:
    """Return comparable forms of a title: without year, accents and punctuation; article first.

    Names in brackets (``a.k.a.`` and originals) are forms of their own.

    >>> title_forms("City of Lost Children, The (Cité des enfants perdus, La) (1995)")
    ('the city of lost children', 'la cite des enfants perdus')
    """
    title = _YEAR.sub("", title)
    inner = [re.sub(r"^a\.?k\.?a\.? ", "", part.strip()) for part in _BRACKETS.findall(title)]
    forms = (_plain(part) for part in (_BRACKETS.sub(" ", title), *inner))
    return tuple(dict.fromkeys(form for form in forms if form))


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKD", text).casefold().strip()
    text = "".join(c for c in text if not unicodedata.combining(c))
    match = _ARTICLE.match(text)
    if match:
        text = f"{match[2]} {match[1]}"
    return " ".join(re.sub(r"[\W_]+", " ", text.replace("&", " and ")).split())


def _same_film(known: str, other: str, release: str | None) -> bool:
    match, year = _YEAR.search(known), (release or "")[:4]
    dated = match is not None and year.isdecimal()
    if match is not None and dated and abs(int(match[1]) - int(year)) > SAME_YEAR:
        return False
    return any(
        fuzz.ratio(a, b) >= (SAME_TITLE if dated else 100.0)
        # "Rocky II" and "Rocky III" are alike, but two films.
        and _NUMERAL.findall(a) == _NUMERAL.findall(b)
        for a in title_forms(known)
        for b in title_forms(other)
    )
