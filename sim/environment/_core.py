"""The simulation itself, for any number of environments in step: arrays, no loop over users."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import AnswerError, ConfigError, EngineError
from sim.environment._options import Options
from sim.environment._world import World
from sim.environment.noise import perturb, shape

if TYPE_CHECKING:
    from pipelines.raters import RatingBatch


_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]

_FIRST_ROOM = 32


@dataclass(frozen=True)
class Earlier:
    """Earlier ratings of the items that users are shown now, each field of shape (n,).

    ``times`` counts them, ``since`` the steps since the last of them (0 where there is none),
    ``place`` is the item's place in the memory, -1 where there is none.
    """

    times: _Ints
    since: _Ints
    place: _Ints

    def __getitem__(self, chosen: Any) -> Earlier:
        return Earlier(self.times[chosen], self.since[chosen], self.place[chosen])


#: Arrays of a memory with a value per entry.
_ENTRIES = ("items", "ratings", "times", "last")


class Memory:
    """Rated items of each user: newest rating, number of ratings and step of the last.

    Entries are in the order of the last rating, oldest first. A row (of ``rows`` environments) is
    the memory of the user that an environment holds at present; those of others, if they are to
    last, are kept aside by (environment, persona).

    ``items`` (numbers, -1 padding at the end), their ``ratings``, ``times`` (ratings of the item)
    and ``last`` (step of the last of them) are of shape (rows, room); ``length`` (entries) and
    ``clock`` (steps that the user has lived) of shape (rows,).
    """

    def __init__(self, rows: int) -> None:
        self.items = np.full((rows, _FIRST_ROOM), -1, np.int64)
        self.ratings = np.zeros((rows, _FIRST_ROOM))
        self.times = np.zeros((rows, _FIRST_ROOM), np.int64)
        self.last = np.zeros((rows, _FIRST_ROOM), np.int64)
        self.length = np.zeros(rows, np.int64)
        self.clock = np.zeros(rows, np.int64)
        self._stored: dict[tuple[int, int], dict[str, Any]] = {}

    @property
    def width(self) -> int:
        """Entries of the longest row (count)."""
        return int(self.length.max(initial=0))

    def earlier(self, items: _Ints) -> Earlier:
        """Earlier ratings of an item by each row's user, of shape (rows,) or (rows, shown)."""
        wide = max(1, self.width)
        same = self.items[:, None, :wide] == items.reshape(len(items), -1)[:, :, None]
        rated, shape = same.any(axis=2), items.shape
        if not rated.any():
            return Earlier(
                np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
            )
        place = np.where(rated, same.argmax(axis=2), -1)
        row = np.arange(len(items))[:, None]
        times = np.where(rated, self.times[row, place], 0)
        since = np.where(rated, self.clock[:, None] - self.last[row, place], 0)
        return Earlier(times.reshape(shape), since.reshape(shape), place.reshape(shape))

    def add(self, rows: _Ints, items: _Ints, ratings: _Floats, earlier: Earlier) -> None:
        """Remember one rating for each of some distinct rows, with their :meth:`earlier` ones."""
        again = earlier.place >= 0
        if again.any():
            self._forget(rows[again], earlier.place[again])
        at = self.length[rows]
        if len(at) and int(at.max()) >= self.items.shape[1]:
            self._grow(int(at.max()) + 1)
        self.items[rows, at] = items
        self.ratings[rows, at] = ratings
        self.times[rows, at] = earlier.times + 1
        self.last[rows, at] = self.clock[rows]
        self.length[rows] = at + 1

    def clear(self, rows: _Ints) -> None:
        """Forget everything of some rows."""
        self.items[rows] = -1
        self.length[rows] = 0
        self.clock[rows] = 0

    def keep(self, row: int, persona: int) -> None:
        """Put a row's memory aside."""
        n = int(self.length[row])
        entries = {name: getattr(self, name)[row, :n].copy() for name in _ENTRIES}
        self._stored[row, persona] = {**entries, "clock": int(self.clock[row])}

    def recall(self, row: int, persona: int) -> None:
        """Take a memory that was put aside back into its cleared row, if there is one."""
        stored = self._stored.get((row, persona))
        if stored is None:
            return
        n = len(stored["items"])
        if n > self.items.shape[1]:
            self._grow(n)
        for name in _ENTRIES:
            getattr(self, name)[row, :n] = stored[name]
        self.length[row], self.clock[row] = n, stored["clock"]

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
        arrays = {name: getattr(self, name).copy() for name in (*_ENTRIES, "length", "clock")}
        # Memories that were put aside are never changed, only replaced.
        aside = [{"row": r, "persona": p, **stored} for (r, p), stored in self._stored.items()]
        return {**arrays, "kept": aside}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        for name in (*_ENTRIES, "length", "clock"):
            setattr(self, name, state[name].copy())
        names = (*_ENTRIES, "clock")
        self._stored = {
            (int(k["row"]), int(k["persona"])): {name: k[name] for name in names}
            for k in state["kept"]
        }

    def _forget(self, rows: _Ints, places: _Ints) -> None:
        """Take one entry out of each of some rows and close the gap."""
        room = self.items.shape[1]
        at = np.arange(room)[None, :]
        source = np.minimum(at + (at >= places[:, None]), room - 1)
        for name in _ENTRIES:
            values = getattr(self, name)
            values[rows] = np.take_along_axis(values[rows], source, axis=1)
        self.length[rows] -= 1
        self.items[rows, self.length[rows]] = -1

    def _grow(self, min_room: int) -> None:
        more = max(min_room, 2 * self.items.shape[1]) - self.items.shape[1]
        for name in _ENTRIES:
            padding = -1 if name == "items" else 0
            grown = np.pad(getattr(self, name), ((0, 0), (0, more)), constant_values=padding)
            setattr(self, name, grown)


class Draws:
    """Streams of uniform numbers in [0, 1), one per environment.

    A stream is what its generator's ``random()`` would give call by call, whatever else is drawn
    from the other streams and however many numbers (``ahead``) are fetched at a time.

    Examples
    --------
    >>> draws = Draws(2, ahead=3)
    >>> draws.seed(0, np.random.default_rng(7)); draws.seed(1, np.random.default_rng(8))
    >>> both = draws.take(np.array([0, 1]), 2)
    >>> alone = np.random.default_rng(7).random(4)
    >>> bool((both[0] == alone[:2]).all() and (draws.take(np.array([0]), 2) == alone[2:]).all())
    True
    """

    def __init__(self, streams: int, ahead: int = 512) -> None:
        self._ahead = ahead
        self._buffer = np.zeros((streams, ahead))
        # The buffer starts used up: the first take fetches.
        self._at = np.full(streams, ahead, np.int64)
        self._generators: list[np.random.Generator] = [
            np.random.Generator(np.random.PCG64()) for _ in range(streams)
        ]

    def seed(self, stream: int, generator: np.random.Generator) -> None:
        """Start a stream afresh from a generator, which is the stream's from here on."""
        self._generators[stream] = generator
        self._at[stream] = self._ahead

    def generator(self, stream: int) -> np.random.Generator:
        """The random generator behind a stream."""
        return self._generators[stream]

    def take(self, streams: _Ints, count: int) -> _Floats:
        """The next `count` (at most `ahead`) numbers of some streams, of shape (n, count)."""
        at = self._at[streams]
        short = at + count > self._ahead
        if short.any():
            for stream in streams[short].tolist():
                self._refill(stream)
            at = self._at[streams]
        self._at[streams] = at + count
        return np.asarray(
            self._buffer[streams[:, None], at[:, None] + np.arange(count)], np.float64
        )

    def _refill(self, stream: int) -> None:
        used = int(self._at[stream])
        left = self._buffer[stream, used:].copy()
        self._buffer[stream, : len(left)] = left
        self._buffer[stream, len(left) :] = self._generators[stream].random(used)
        self._at[stream] = 0

    def state(self) -> dict[str, Any]:
        """State that decides the numbers to come, as arrays and plain values."""
        return {
            "buffer": self._buffer.copy(),
            "at": self._at.copy(),
            "generators": [g.bit_generator.state for g in self._generators],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        self._buffer[...] = state["buffer"]
        self._at[...] = state["at"]
        for generator, saved in zip(self._generators, state["generators"], strict=True):
            generator.bit_generator.state = saved


_Bools = npt.NDArray[np.bool_]

#: Uniform numbers per step, always all of them, so that nothing that happens shifts the rest of
#: a seed: the rating, leaving, the perturbation, the choice from a slate.
_DRAWS = 4
#: Pairs of a sweep over all items whose memories are picked at once (count).
_SWEPT = 4096


@dataclass(frozen=True)
class Outcome:
    """Outcome of a step, each field of shape (n,) or (n, shown)."""

    #: Index among the shown items of the one that was chosen, and its number.
    place: _Ints
    item: _Ints
    #: Rating as it is remembered, NaN where there is none.
    rating: _Floats
    #: Draw from the rater's distribution before any perturbation, NaN likewise.
    answer: _Floats
    #: ``ok`` or why there is no rating.
    status: npt.NDArray[np.object_]
    #: Mean of the rater's distribution, NaN likewise.
    expected: _Floats
    #: Earlier ratings of this item (count).
    times: _Ints
    #: Steps of the episode so far (count).
    steps: _Ints
    #: Reward after shaping; 0 where there is no rating.
    reward: _Floats
    #: Why the episode is over, if it is.
    terminated: _Bools
    truncated: _Bools


class Core:
    """State of `size` environments that share a world and options.

    ``slots`` items are shown at a step; ``temperature`` is that of the choice from a slate, in
    units of the scale. Attributes: ``persona`` (-1 before a reset) and ``steps`` of each episode so
    far (count), of shape (size,); ``memory``; ``seen``, 1 for remembered items and for training
    items of a matched persona, of shape (size, items), None unless it is observed; ``rated``,
    remembered ratings, 0 where there is none, likewise.
    """

    def __init__(
        self, world: World, options: Options, size: int, *, slots: int = 1, temperature: float = 1.0
    ) -> None:
        self.world, self.options, self.size = world, options, size
        self.slots, self.temperature = slots, temperature
        self.scale = world.rater.scale
        items = len(world.catalogue)
        self.persona = np.full(size, -1, np.int64)
        self.memory = Memory(size)
        self.steps = np.zeros(size, np.int64)
        self.seen: npt.NDArray[np.int8] | None = None
        self.rated: npt.NDArray[np.float32] | None = None
        if options.observation != "compact":
            self.seen = np.zeros((size, items), np.int8)
        if options.observation == "ratings":
            self.rated = np.zeros((size, items), np.float32)
        self.draws = Draws(size)
        self._all = np.arange(size)
        self._persistent = options.memory == "persistent"
        if options.watched:
            # A release without exposure is an error before the first episode.
            _ = world.exposures

    def seed(self, row: int, generator: np.random.Generator) -> None:
        """Give an environment its generator; what it remembered of everybody is forgotten."""
        self.draws.seed(row, generator)
        self.memory.forget_all(row)
        self.persona[row] = -1

    def begin(self, rows: _Ints, personas: _Ints | None = None) -> None:
        """Start episodes of the environments `rows`, of shape (m,).

        Personas are drawn by default. The draw is made in any case, so that choosing does not shift
        the rest of a seed.
        """
        if self._persistent:
            for row in rows[self.persona[rows] >= 0].tolist():
                self.memory.keep(row, int(self.persona[row]))
        drawn = (self.draws.take(rows, 1)[:, 0] * len(self.world.cast)).astype(np.int64)
        self.persona[rows] = drawn if personas is None else personas
        self.steps[rows] = 0
        self.memory.clear(rows)
        self._clear_seen(rows)
        if self.rated is not None:
            self.rated[rows] = 0
        if self._persistent:
            for row in rows.tolist():
                self._recall(row)
        if self.options.watched:
            self._watch(rows)

    def _watch(self, rows: _Ints) -> None:
        """Fill empty memories with items that their personas watched and rated before."""
        count = self.options.watched
        # Drawn in any case, so that what is remembered does not shift the rest of a seed.
        draw = self.draws.take(rows, 2 * count)
        fresh = self.memory.length[rows] == 0
        rows, draw = rows[fresh], draw[fresh]
        exposures = self.world.exposures
        chosen = [
            exposures.draw(int(self.persona[row]), u[:count])
            for row, u in zip(rows, draw, strict=True)
        ]
        place, order = np.nonzero(np.reshape(chosen, (len(rows), count)) >= 0)
        if not len(place):
            return
        who, item = rows[place], np.reshape(chosen, (len(rows), count))[place, order]
        nothing = np.full((len(who), self.options.retrieved), -1, np.int64)
        past = np.full(nothing.shape, self.scale.low, np.float64)
        batch = self._ask(who, item, nothing, past, np.zeros(len(who), np.int64))
        rating = _sampled(batch.probabilities, draw[place, count + order], self.scale.answers)
        rated = np.array([status == "ok" for status in batch.status])
        # An item of every row at a time, in the order in which it was watched.
        for n in range(count):
            now = np.flatnonzero((order == n) & rated)
            self.memory.clock[who[now]] += 1
            never = np.zeros(len(now), np.int64)
            self._remember(who[now], item[now], rating[now], Earlier(never, never, never - 1))

    def _clear_seen(self, rows: _Ints) -> None:
        """Mark in `seen` nothing but the training items of matched personas."""
        if self.seen is None:
            return
        self.seen[rows] = 0
        training = self.world.known[self.persona[rows]]
        at, place = np.nonzero(training >= 0)
        self.seen[rows[at], training[at, place]] = 1

    def unseen(self) -> npt.NDArray[np.bool_]:
        """False for what `seen` marks, of shape (size, items); all true before a reset."""
        if self.seen is not None:
            return np.equal(self.seen, 0)
        unseen = np.ones((self.size, len(self.world.catalogue)), np.bool_)
        for row in np.flatnonzero(self.persona >= 0).tolist():
            training = self.world.known[self.persona[row]]
            unseen[row, training[training >= 0]] = False
            unseen[row, self.memory.items[row, : self.memory.length[row]]] = False
        return unseen

    def _recall(self, row: int) -> None:
        self.memory.recall(row, int(self.persona[row]))
        n = int(self.memory.length[row])
        if self.seen is not None:
            self.seen[row, self.memory.items[row, :n]] = 1
        if self.rated is not None:
            self.rated[row, self.memory.items[row, :n]] = self.memory.ratings[row, :n]

    def step(self, shown: _Ints) -> Outcome:
        """Step all environments; `shown` are item numbers of shape (size, slots).

        AnswerError if a rating failed twice and `on_unrated` is ``abort``; nothing has changed
        then.
        """
        options, memory = self.options, self.memory
        # Times are counted from 1: the step that is being taken.
        memory.clock += 1
        try:
            earlier = memory.earlier(shown)
            batch = self._rate(shown, earlier.times)
        except BaseException:
            memory.clock -= 1
            raise
        draw = self.draws.take(self._all, _DRAWS)
        answers = batch.probabilities.shape[1]
        probabilities = batch.probabilities.reshape(self.size, self.slots, answers)
        expected = batch.expected.reshape(self.size, self.slots)
        status = np.array(batch.status, dtype=object).reshape(self.size, self.slots)
        place = self._choose(shown, expected, draw[:, 3])
        chosen: Any = (slice(None), 0) if self.slots == 1 else (self._all, place)
        item = shown[chosen]
        answer = _sampled(probabilities[chosen], draw[:, 0], self.scale.answers)
        outcome = _first_fault(status) if self.slots > 1 else status[:, 0]
        rated = np.asarray(outcome == "ok", np.bool_)
        answer = np.where(rated, answer, np.nan)
        rating = perturb(
            answer, draw[:, 2], options.perturbation, options.perturbation_strength, self.scale
        )
        of_chosen = earlier[chosen]
        reward = rating
        if options.reward_shaping is not None:
            reward = shape(
                rating, of_chosen.times, of_chosen.since, options.reward_shaping, self.scale.low
            )
        rows = np.flatnonzero(rated)
        self._remember(rows, item[rows], rating[rows], of_chosen[rows])
        self.steps += 1
        terminated = (draw[:, 1] < options.leave_probability) & rated
        truncated = (self.steps >= options.length_limit) | ~rated
        return Outcome(
            place=place,
            item=item,
            rating=rating,
            answer=answer,
            status=outcome,
            expected=expected[chosen],
            times=of_chosen.times,
            steps=self.steps.copy(),
            reward=np.where(rated, reward, 0.0),
            terminated=terminated,
            truncated=truncated,
        )

    def _remember(self, rows: _Ints, item: _Ints, rating: _Floats, earlier: Earlier) -> None:
        self.memory.add(rows, item, rating, earlier)
        if self.seen is not None:
            self.seen[rows, item] = 1
        if self.rated is not None:
            self.rated[rows, item] = rating

    def past(self, rows: _Ints, items: _Ints) -> tuple[_Ints, _Floats]:
        """Selection of the retriever from some rows' memories for an item each, of shape (n, k)."""
        k, wide = self.options.retrieved, self.memory.width
        if not k or not wide or self.world.retriever.name == "none":
            return np.full((len(rows), k), -1, np.int64), np.zeros((len(rows), k))
        # All rows in order are a view; fancy indexing would copy.
        chosen: Any = slice(None) if rows is self._all else rows
        histories = self.memory.items[chosen, :wide]
        ratings = self.memory.ratings[chosen, :wide]
        at = self.world.retriever.select(items, histories, ratings, k)
        present, row = at >= 0, np.arange(len(items))[:, None]
        # Padding has a rating of the scale, so that all of them are on it.
        return (
            np.where(present, histories[row, at], -1),
            np.where(present, ratings[row, at], self.scale.low),
        )

    def expected(self, row: int) -> _Floats:
        """Expected rating of every item by a row's persona now; NaN where there is none."""
        rater, persona = self.world.rater, int(self.persona[row])
        items = len(self.world.catalogue)
        if not self.world.retriever.by_item or not self.memory.length[row]:
            past, ratings = self.past(np.array([row]), np.zeros(1, np.int64))
            return rater.sweep(persona, past[0], ratings[0])
        out = np.empty(items)
        for start in range(0, items, _SWEPT):
            part = np.arange(start, min(start + _SWEPT, items))
            past, ratings = self.past(np.full(len(part), row), part)
            who = np.full(len(part), persona)
            out[part] = rater.rate(who, part, past, ratings).expected
        return out

    def state(self) -> dict[str, Any]:
        """State that determines all further steps, as nested dicts of arrays and plain values."""
        return {
            "persona": self.persona.copy(),
            "steps": self.steps.copy(),
            "memory": self.memory.state(),
            "draws": self.draws.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state` of as many environments with the same options."""
        if len(state["persona"]) != self.size:
            raise ConfigError(
                f"a state of {len(state['persona'])} environments, not {self.size}",
                where="environment",
            )
        self.persona = state["persona"].copy()
        self.steps = state["steps"].copy()
        self.memory.restore(state["memory"])
        self.draws.restore(state["draws"])
        filled = self.memory.items >= 0
        rows, places = np.nonzero(filled)
        if self.seen is not None:
            self.seen[...] = 0
            self._clear_seen(np.flatnonzero(self.persona >= 0))
            self.seen[rows, self.memory.items[rows, places]] = 1
        if self.rated is not None:
            self.rated[...] = 0
            self.rated[rows, self.memory.items[rows, places]] = self.memory.ratings[rows, places]

    def _rate(self, shown: _Ints, times: _Ints) -> RatingBatch:
        """Distributions of all shown items, failed ones asked twice.

        ``times`` counts earlier ratings of each item, of the shape of ``shown``.
        """
        rows = self._all if self.slots == 1 else np.repeat(self._all, self.slots)
        items = np.ascontiguousarray(shown.reshape(-1))
        times = times.reshape(-1)
        past, ratings = self.past(rows, items)
        batch = self._ask(rows, items, past, ratings, times)
        if list(batch.status).count("ok") == len(batch.status):
            return batch
        failed = np.flatnonzero([status != "ok" for status in batch.status])
        again = self._ask(rows[failed], items[failed], past[failed], ratings[failed], times[failed])
        probabilities, status = batch.probabilities.copy(), list(batch.status)
        probabilities[failed] = again.probabilities
        for at, reason in zip(failed.tolist(), again.status, strict=True):
            status[at] = reason
        batch = replace(batch, probabilities=probabilities, status=status, notes=None)
        left = [at for at in failed.tolist() if status[at] != "ok"]
        if left and self.options.on_unrated == "abort":
            self._abort(rows[left], items[left], [status[at] for at in left], again)
        return batch

    def _ask(
        self, rows: _Ints, items: _Ints, past: _Ints, ratings: _Floats, times: _Ints
    ) -> RatingBatch:
        """Call the rater; if it breaks down, no row has a rating."""
        from pipelines.raters import RatingBatch

        dimensions = (len(rows), len(self.scale))
        try:
            batch = self.world.rater.rate(self.persona[rows], items, past, ratings, times)
            if batch.probabilities.shape != dimensions:
                raise EngineError(
                    f"ratings of shape {batch.probabilities.shape}, not {dimensions}",
                    where=f"rater {self.world.rater.name}",
                )
        except (EngineError, OSError) as error:
            # Dead, over its budget, out of time or out of reach.
            why = [str(error) or type(error).__name__] * len(rows)
            nothing = np.full(dimensions, np.nan)
            return RatingBatch(self.scale, nothing, ["engine_error"] * len(rows), notes=why)
        return batch

    def _abort(self, rows: _Ints, items: _Ints, status: list[str], batch: RatingBatch) -> None:
        world = self.world
        note = next((n for n in batch.notes or () if n), None)
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        raise AnswerError(
            f"no rating ({status[0]}{f', {note}' if note else ''})",
            where=f"{world.cast.ids[int(self.persona[rows[0]])]} for "
            f"{world.catalogue.ids[int(items[0])]}{more}",
            hint='requested twice; on_unrated="truncate" ends the episode instead',
            details={
                "pairs": [
                    {
                        "persona_id": world.cast.ids[int(self.persona[row])],
                        "item_id": world.catalogue.ids[int(item)],
                        "status": reason,
                    }
                    for row, item, reason in zip(rows, items, status, strict=True)
                ]
            },
        )

    def _choose(self, shown: _Ints, expected: _Floats, draw: _Floats) -> _Ints:
        """Choose each user's item among the shown ones: multinomial logit over expected ratings."""
        if self.slots == 1:
            return np.zeros(self.size, np.int64)
        # Shown twice is not twice as attractive: only the first place counts.
        same = shown[:, :, None] == shown[:, None, :]
        earlier = np.tril(np.ones((self.slots, self.slots), np.bool_), -1)
        utility = np.where((same & earlier).any(axis=2), -np.inf, expected / self.temperature)
        # A slate with an unrated item is unrated; what is drawn then does not matter.
        utility = np.where(np.isnan(expected).any(axis=1, keepdims=True), 0.0, utility)
        weight = np.exp(utility - utility.max(axis=1, keepdims=True))
        below = np.cumsum(weight, axis=1)
        reached = below <= (draw * below[:, -1])[:, None]
        return np.asarray(np.minimum(reached.sum(axis=1), self.slots - 1), np.int64)


def _sampled(probabilities: _Floats, draw: _Floats, answers: _Floats) -> _Floats:
    """The answer at each quantile, of shape (n,)."""
    below = np.cumsum(probabilities, axis=1)
    # Times the sum, which is 1 but for rounding: no draw leads beyond the last answer.
    place = (below <= (draw * below[:, -1])[:, None]).sum(axis=1)
    return np.asarray(answers[np.minimum(place, len(answers) - 1)], np.float64)


def _first_fault(status: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """``ok`` where all shown items are, else the first other status, of shape (n,)."""
    bad = status != "ok"
    place = np.where(bad.any(axis=1), bad.argmax(axis=1), 0)
    return np.asarray(status[np.arange(len(status)), place], object)
