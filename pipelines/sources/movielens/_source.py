"""The MovieLens loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pipelines.licences import Licence
from pipelines.sources._protocol import RawTable, Source, Workspace, unpack_limits
from pipelines.sources.movielens._formats import READERS
from pipelines.sources.movielens._layout import EXPECTED, Layout, find_layout

__all__ = ["MovielensSource"]


class MovielensSource(Source):
    """MovieLens, as an archive or as a folder of its files.

    The CSV layout of ml-latest-small, ml-25m and ml-32m has links and tags but no users;
    ML-1M (``::``) and ML-100K (``u.*``), both ISO-8859-1 and rated in whole stars, have users
    but neither links nor tags. ML-100K's release dates (a day that mostly stands for the year
    in the title) and IMDb search addresses are not taken.

    Rows come out as published. Rejected are rows that can't be parsed and, by reason:

    ========================  ==============================================================
    ``wrong_columns``         more or fewer fields than the header
    ``blank_line``            nothing on the line
    ``bad_quotes``            a quoted field that does not end, or with text after its end
    ``bare_return``           a carriage return inside the line
    ``invalid_utf8``          bytes that are not UTF-8
    ``too_long``              a line of more than 1 MiB
    ``bad_id``                an id that is not a whole number from 1
    ``bad_rating``            a rating that is not a number
    ``off_scale``             a rating that is not 0.5, 1.0, ..., 5.0 (or 1, 2, ..., 5)
    ``bad_timestamp``         a time that is not whole seconds between 1970 and 2100
    ``missing_title``         a film without a title
    ``missing_tag``           a tag without text
    ``bad_genre_flag``        a genre flag that is neither 0 nor 1
    ``bad_gender``            a gender that is neither F nor M
    ``bad_age``               an age code of no band, or years beyond 1-120
    ``bad_occupation``        an occupation code of no occupation, or no word
    ``unknown_film``          a rating, link or tag of a film that is not in the list
    ``duplicate_key``         a second row of a film, user, link, tag, or of a user's rating of
                              a film; of ratings the latest stays (then the last in the file),
                              elsewhere the first in the file
    ========================  ==============================================================
    """

    name: ClassVar[str] = "movielens"
    expected: ClassVar[str] = EXPECTED
    domains: ClassVar[frozenset[str]] = frozenset({"movies"})
    code_version: ClassVar[str] = "movielens-2"
    datasets: ClassVar[tuple[str, ...]] = (
        "raw.movielens_movies",
        "raw.movielens_ratings",
        "raw.movielens_links",
        "raw.movielens_tags",
        "raw.movielens_users",
        "raw.movielens_rejected",
    )
    licence: ClassVar[Licence] = Licence(
        name="GroupLens research terms",
        url="https://grouplens.org/datasets/movielens/",
        terms="For research, with acknowledgement and without implied endorsement; commercial "
        "use needs GroupLens's permission, and each archive's README says whether it may be "
        "passed on.",
        citation="F. M. Harper, J. A. Konstan. The MovieLens Datasets: History and Context. "
        "ACM TiiS 5(4), 2015. doi:10.1145/2827872",
    )

    def files(self, folder: Path) -> list[Path]:
        """Return the archive, or its files."""
        return self._layout(folder).paths()

    def _layout(self, folder: Path) -> Layout:
        # The variant is a choice among what a given folder holds; other worlds hold one.
        given = self.settings.world.folder is not None
        return find_layout(folder, self.settings.world.variant if given else "auto")

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Read films, ratings, links, tags and users, in this order."""
        layout = self._layout(folder)
        yield from READERS[layout.format](layout.originals(unpack_limits(self.settings)), work)
