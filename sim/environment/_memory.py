"""Memories of simulated users, for many environments at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]

_FIRST_ROOM = 32


@dataclass(frozen=True)
class Meetings:
    """Relation of users to the items that they meet now, each field of shape (n,).

    ``times`` counts earlier meetings, ``since`` the steps since the last of them (0 where there is
    none), ``place`` is its place in the memory, -1 where there is none.
    """

    times: _Ints
    since: _Ints
    place: _Ints


class Memory:
    """Memory of (user, item) pairs that met: newest rating, number of meetings and last step.

    Entries are in the order of the last meeting, oldest first. A row (of ``rows`` environments) is
    the memory of the user that an environment holds at present; those of others, if they are to
    last, are kept aside by (environment, persona).

    ``items`` (numbers, -1 padding at the end) and their ``ratings`` are of shape (rows, room);
    ``length`` (entries) and ``clock`` (steps that the user has lived) of shape (rows,).
    """

    def __init__(self, rows: int) -> None:
        self.items = np.full((rows, _FIRST_ROOM), -1, np.int64)
        self.ratings = np.zeros((rows, _FIRST_ROOM))
        self._times = np.zeros((rows, _FIRST_ROOM), np.int64)
        self._last = np.zeros((rows, _FIRST_ROOM), np.int64)
        self.length = np.zeros(rows, np.int64)
        self.clock = np.zeros(rows, np.int64)
        self._stored: dict[tuple[int, int], tuple[_Ints, _Floats, _Ints, _Ints, int]] = {}

    @property
    def width(self) -> int:
        """Entries of the longest row (count)."""
        return int(self.length.max(initial=0))

    def meet(self, items: _Ints) -> Meetings:
        """Earlier meetings of each row's user with an item, of shape (rows,) or (rows, shown)."""
        wide = max(1, self.width)
        same = self.items[:, None, :wide] == items.reshape(len(items), -1)[:, :, None]
        met, shape = same.any(axis=2), items.shape
        if not met.any():
            return Meetings(
                np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
            )
        place = np.where(met, same.argmax(axis=2), -1)
        row = np.arange(len(items))[:, None]
        times = np.where(met, self._times[row, place], 0)
        since = np.where(met, self.clock[:, None] - self._last[row, place], 0)
        return Meetings(times.reshape(shape), since.reshape(shape), place.reshape(shape))

    def add(self, rows: _Ints, items: _Ints, ratings: _Floats, met: Meetings) -> None:
        """Remember one rating for each of some distinct rows, with their :meth:`meet`."""
        again = met.place >= 0
        if again.any():
            self._forget(rows[again], met.place[again])
        at = self.length[rows]
        if len(at) and int(at.max()) >= self.items.shape[1]:
            self._grow(int(at.max()) + 1)
        self.items[rows, at] = items
        self.ratings[rows, at] = ratings
        self._times[rows, at] = met.times + 1
        self._last[rows, at] = self.clock[rows]
        self.length[rows] = at + 1

    def clear(self, rows: _Ints) -> None:
        """Forget everything of some rows."""
        self.items[rows] = -1
        self.length[rows] = 0
        self.clock[rows] = 0

    def keep(self, row: int, persona: int) -> None:
        """Put a row's memory aside."""
        n = int(self.length[row])
        self._stored[row, persona] = (
            self.items[row, :n].copy(),
            self.ratings[row, :n].copy(),
            self._times[row, :n].copy(),
            self._last[row, :n].copy(),
            int(self.clock[row]),
        )

    def recall(self, row: int, persona: int) -> None:
        """Take a memory that was put aside back into its cleared row, if there is one."""
        stored = self._stored.get((row, persona))
        if stored is None:
            return
        items, ratings, times, last, clock = stored
        n = len(items)
        if n > self.items.shape[1]:
            self._grow(n)
        self.items[row, :n], self.ratings[row, :n] = items, ratings
        self._times[row, :n], self._last[row, :n] = times, last
        self.length[row], self.clock[row] = n, clock

    def forget_all(self, row: int) -> None:
        """Drop what a row put aside."""
        for key in [key for key in self._stored if key[0] == row]:
            del self._stored[key]

    def newest(self, k: int, rows: _Ints | None = None) -> tuple[_Ints, _Floats]:
        """The last `k` items and ratings of some rows (default all), newest first, else -1."""
        length = self.length if rows is None else self.length[rows]
        row = (np.arange(len(length)) if rows is None else rows)[:, None]
        if int(length.min(initial=k)) >= k:
            at = length[:, None] - 1 - np.arange(k)
            return self.items[row, at], self.ratings[row, at]
        items = np.full((len(length), k), -1, np.int64)
        ratings = np.full((len(length), k), -1.0)
        wide = min(k, int(length.max(initial=0)))
        if wide:
            at = length[:, None] - 1 - np.arange(wide)
            exists = at >= 0
            # Before the first there is nothing: what is read there is not used.
            items[:, :wide] = np.where(exists, self.items[row, at], -1)
            ratings[:, :wide] = np.where(exists, self.ratings[row, at], -1.0)
        return items, ratings

    def state(self) -> dict[str, Any]:
        """The memory, as arrays and plain values."""
        return {
            "items": self.items.copy(),
            "ratings": self.ratings.copy(),
            "times": self._times.copy(),
            "last": self._last.copy(),
            "length": self.length.copy(),
            "clock": self.clock.copy(),
            "kept": [
                {
                    "row": row,
                    "persona": persona,
                    "items": stored[0].copy(),
                    "ratings": stored[1].copy(),
                    "times": stored[2].copy(),
                    "last": stored[3].copy(),
                    "clock": stored[4],
                }
                for (row, persona), stored in self._stored.items()
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        self.items, self.ratings = state["items"].copy(), state["ratings"].copy()
        self._times, self._last = state["times"].copy(), state["last"].copy()
        self.length, self.clock = state["length"].copy(), state["clock"].copy()
        self._stored = {
            (int(k["row"]), int(k["persona"])): (
                k["items"].copy(),
                k["ratings"].copy(),
                k["times"].copy(),
                k["last"].copy(),
                int(k["clock"]),
            )
            for k in state["kept"]
        }

    def _forget(self, rows: _Ints, places: _Ints) -> None:
        """Take one entry out of each of some rows and close the gap."""
        room = self.items.shape[1]
        at = np.arange(room)[None, :]
        source = np.minimum(at + (at >= places[:, None]), room - 1)
        for values in (self.items, self.ratings, self._times, self._last):
            values[rows] = np.take_along_axis(values[rows], source, axis=1)
        self.length[rows] -= 1
        self.items[rows, self.length[rows]] = -1

    def _grow(self, least: int) -> None:
        more = max(least, 2 * self.items.shape[1]) - self.items.shape[1]
        grown = ((0, 0), (0, more))
        self.items = np.pad(self.items, grown, constant_values=-1)
        self.ratings = np.pad(self.ratings, grown)
        self._times, self._last = np.pad(self._times, grown), np.pad(self._last, grown)
