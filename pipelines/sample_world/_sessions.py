"""When people rate: a few sittings, days to years apart, one film after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FIRST_SECOND", "LAST_SECOND", "Sessions"]

_DAY = 86_400
#: 1998-01-01 and 2024-12-31, seconds since 1970 (UTC): nobody rates before or after.
FIRST_SECOND = 883_612_800
LAST_SECOND = 1_735_603_200
#: Ratings per sitting (ml-latest-small has about 21).
_PER_SESSION = 21
_MEDIAN_GAP_DAYS = 15.0


def _year_of(second: NDArray[np.int64]) -> NDArray[np.int64]:
    years: NDArray[np.int64] = (
        second.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64)
    )
    return years + 1970


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sittings of some users.

    Attributes
    ----------
    start
        Start of every sitting, user by user, ascending (seconds since 1970, UTC).
    offset
        Where each user's sittings begin in ``start``; one more entry than users.
    last_year
        Year of each user's last sitting: only older films can be rated.
    """

    start: NDArray[np.int64]
    offset: NDArray[np.int64]
    last_year: NDArray[np.int64]

    @classmethod
    def draw(
        cls, rng: np.random.Generator, activity: NDArray[np.int64], years: NDArray[np.int64]
    ) -> Sessions:
        """Sittings for users who rate so many films.

        Parameters
        ----------
        rng
            Where choices come from.
        activity
            Ratings of each user.
        years
            Release years of the films: somebody who rates many films must be around late
            enough for so many to be out.
        """
        n = len(activity)
        count = 1 + rng.poisson(rng.exponential(1.0, n) * activity / _PER_SESSION)
        count = np.minimum(count, activity)
        offset = np.concatenate([[0], np.cumsum(count)])
        owner = np.repeat(np.arange(n), count)
        gap = _DAY * np.exp(rng.normal(np.log(_MEDIAN_GAP_DAYS), 1.6, len(owner)))
        gap[offset[:-1]] = 0
        passed = np.cumsum(gap)
        passed -= passed[offset[:-1]][owner]
        begin = FIRST_SECOND + rng.random(n) * (LAST_SECOND - 2 * _DAY - FIRST_SECOND)
        span = passed[offset[1:] - 1]
        # A life that would go on after the end is compressed into what is left.
        left = LAST_SECOND - 2 * _DAY - begin
        shrink = np.where(span > left, left / np.maximum(span, 1), 1.0)
        start = (begin[owner] + passed * shrink[owner]).astype(np.int64)
        # With a tenth to spare, so that popularity still matters to who fills the list.
        ordered = np.sort(years)
        needed = np.minimum((activity * 11) // 10 + 1, len(ordered))
        earliest = ordered[needed - 1] + 1
        late = np.maximum(earliest - _year_of(start[offset[1:] - 1]), 0)
        start = start + (late * 366 * _DAY)[owner]
        start = np.minimum(start, LAST_SECOND - 2 * _DAY)
        return cls(start, offset, _year_of(start[offset[1:] - 1]))

    def assign(
        self,
        rng: np.random.Generator,
        local: NDArray[np.int64],
        years: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """A time for every rating: in one of its user's sittings, after the film's release.

        Parameters
        ----------
        rng
            Where choices come from.
        local
            User of each rating (index), ascending.
        years
            Release year of each rated film.

        Returns
        -------
        numpy.ndarray
            Seconds since 1970 (UTC), int64.
        """
        count = np.diff(self.offset)
        session = self.offset[local] + (rng.random(len(local)) * count[local]).astype(np.int64)
        too_early = _year_of(self.start)[session] <= years
        session[too_early] = self.offset[local + 1][too_early] - 1
        order = np.lexsort((rng.random(len(local)), session))
        pause = np.exp(rng.normal(np.log(11.0), 1.3, len(local))).clip(1, 3_600)
        passed = np.cumsum(pause)
        sorted_session = session[order]
        begins = np.searchsorted(sorted_session, sorted_session, side="left")
        passed -= passed[begins]
        # Sittings last a day at most.
        time = self.start[sorted_session] + np.minimum(passed, _DAY).astype(np.int64)
        out = np.empty(len(local), dtype=np.int64)
        out[order] = time
        return out
