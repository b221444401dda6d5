"""Configurations of a suite, its cases, and the cells in which raters answer them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ConfigError
from pipelines.scales import RatingScale, rescale, scale_named, to_answers
from pipelines.seeding import hash_text, uniform
from sim.environment.noise import perturb

if TYPE_CHECKING:
    from pipelines.ablations import Suite
    from pipelines.store import Snapshot


Grid = Literal["words", "small", "full"]
#: Placeholder for an option that the rater can't see.
UNSEEN = "-"

_SHOTS = ("0", "1", "2")
_SYSTEMS = ("default", "custom")
_RETRIEVALS = ("none", "recent", "features", "embedding", "graph")
_PERTURBATIONS = ("none", "greedy", "gaussian")
_SCALES = {"movies": ("1-10", "0-9", "one-ten"), "books": ("1-5",)}
#: Options that each kind of rater can see: only prompts have examples and a system text, and
#: only raters that use a history can tell how it was chosen.
_SEEN = {
    "statistical": frozenset({"retrieval", "wording"}),
    "random": frozenset[str](),
    "mean": frozenset[str](),
    "llm": frozenset({"shots", "system", "retrieval", "wording"}),
    "closed question": frozenset({"system", "retrieval", "wording"}),
}
#: Wordings of hand-made personas beside our own words with fields; each is asked of the baseline
#: only. Those of the sealed half are for final runs.
_WORDINGS = ("own-text", "open", "open-text")
_SEALED = ("sealed", "sealed-text")


@dataclass(frozen=True)
class Options:
    """Options of a configuration other than its rater.

    ``shots`` is ``0``, ``1`` or ``2`` worked examples, ``system`` is ``default`` or ``custom``;
    ``wording`` of the hand-made personas is ``own`` words with fields, ``open`` or ``sealed``
    paraphrases with fields, or one of these with ``-text``, without fields.
    """

    scale: str
    shots: str = "2"
    system: str = "custom"
    retrieval: str = "embedding"
    perturbation: str = "none"
    wording: str = "own"

    @property
    def prompt(self) -> tuple[int, str]:
        """Examples and system text of a prompt; what the rater can't see is at its default."""
        shots = 0 if self.shots == UNSEEN else int(self.shots)
        return shots, "default" if self.system == UNSEEN else self.system

    def metadata(self) -> dict[str, Any]:
        """The options, ready for JSON."""
        return asdict(self)


def seen(options: Options, kind: str) -> Options:
    """The options with what the rater can't see left out.

    Configurations that differ only in what the rater can't see are one. How the ten answers are
    written is seen by models only: for other raters ``one-ten`` and ``0-9`` are ``1-10``, from
    which they are converted.

    The statistical rater reads no text of a persona with fields.

    >>> found = seen(Options("one-ten", shots="1", wording="open"), "statistical")
    >>> found.scale, found.shots, found.retrieval, found.wording
    ('1-10', '-', 'embedding', 'own')
    """
    axes = ("shots", "system", "retrieval", "wording")
    hidden = {name: UNSEEN for name in axes if name not in _SEEN[kind]}
    if kind == "statistical" and not options.wording.endswith("-text"):
        hidden["wording"] = "own"
    if kind != "llm" and options.scale in ("one-ten", "0-9"):
        hidden["scale"] = "1-10"
    return replace(options, **hidden)


def configurations(
    suite: str, kind: str, grid: Grid, *, sealed: bool = False
) -> tuple[list[Options], int]:
    """The different configurations of a rater, the baseline first, and how many were asked for.

    The grid ``words`` is the baseline without examples and with the default system text, in each
    wording of the personas. The grid ``full`` is every combination; ``small`` is the baseline (two
    examples, custom system text, retrieval by embedding, no noise: SUBER's, section 4.2) and what
    differs from it in one option. With `sealed` the paraphrases of the sealed half are asked too.
    The second number is that before those which the rater can't tell apart were collapsed.
    """
    scales = _SCALES[suite]
    base = Options(scales[0])
    axes = {
        "scale": scales,
        "shots": _SHOTS,
        "system": _SYSTEMS,
        "retrieval": _RETRIEVALS,
        "perturbation": _PERTURBATIONS,
    }
    if grid == "words":
        base = replace(base, shots="0", system="default")
        requested = [base]
    elif grid == "full":
        grid_options = itertools.product(*axes.values())
        every = (Options(**dict(zip(axes, values, strict=True))) for values in grid_options)
        requested = list(dict.fromkeys([base, *every]))
    else:
        requested = [base]
        for axis, values in axes.items():
            requested += [replace(base, **{axis: v}) for v in values if v != getattr(base, axis)]
    words = (*_WORDINGS, *(_SEALED if sealed else ()))
    requested += [replace(base, wording=wording) for wording in words]
    return list(dict.fromkeys(seen(options, kind) for options in requested)), len(requested)


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Tests in the order in which they are reported.
TESTS = ("genres", "raters", "collections", "similarity")
#: Case tables that a test is made of.
TABLES = {
    "genres": ("personas", "item_sets"),
    "raters": ("personas", "item_sets"),
    "collections": ("series_cases",),
    "similarity": ("human_cases",),
}
_WANT = {"low": 0, "high": 1}


@dataclass(frozen=True)
class Cases:
    """Questions of one test, each independent of the others."""

    #: Its name.
    test: str
    #: Personas of the cases, rows like those of `personas`.
    personas: pl.DataFrame
    #: Row of `personas` and number of the item (in the order of the items' ids), (n,).
    person: Ints
    item: Ints
    #: 1 if a high rating is a success, 0 if a low one, -1 if neither, of shape (n,).
    want: Ints
    #: Group of the case: a genre, a series, ..., of shape (n,).
    group: list[str]
    #: Items rated before, oldest first, -1 padding at the end, of shape (n, h); h may be 0.
    history: Ints
    #: Their ratings on `scale`, of shape (n, h).
    ratings: Floats
    #: Scale of `ratings`.
    scale: RatingScale

    def __len__(self) -> int:
        return len(self.person)

    @property
    def users(self) -> list[str]:
        """Person of each case, of shape (n,): the same in every wording."""
        named = "user" if "user" in self.personas.columns else "persona_id"
        ids = self.personas[named].to_list()
        return [ids[p] for p in self.person]

    def sample(self, count: int | None) -> Cases:
        """At most `count` of the cases, evenly over users and wants; all of them for None.

        The same cases in every wording. Within a user and want they are drawn by hash.
        """
        if count is None or count >= len(self):
            return self
        luck = uniform(0, hash_text(self.test), 0, np.arange(len(self)))
        _, user = np.unique(self.users, return_inverse=True)
        order = np.lexsort((luck, self.want, user))
        first = np.empty(len(self), dtype=np.int64)
        # Cases of a user and want stand together: the turn of each is its place behind the first.
        apart = np.flatnonzero(
            np.diff(user[order], prepend=-1).astype(bool)
            | np.diff(self.want[order], prepend=-2).astype(bool)
        )
        starts = np.repeat(apart, np.diff(apart, append=len(self)))
        first[order] = np.arange(len(self)) - starts
        chosen = np.sort(np.lexsort((luck, first))[:count])
        return replace(
            self,
            person=self.person[chosen],
            item=self.item[chosen],
            want=self.want[chosen],
            group=[self.group[n] for n in chosen],
            history=self.history[chosen],
            ratings=self.ratings[chosen],
        )


@dataclass(frozen=True)
class Human:
    """People's ratings: an item uniform, then one of its ratings.

    ``scale`` is the source's, ``shares`` the share of each of its answers, ascending, of shape
    (answers,).
    """

    scale: RatingScale
    shares: Floats


def human_distribution(cases: Snapshot) -> Human | None:
    """The distribution noted with `human_cases`; None if there are no cases."""
    noted: dict[str, Any] = cases.manifest.stats.get("human", {})
    if not noted.get("shares"):
        return None
    scale = scale_named(noted["scale"])
    return Human(scale, np.array([noted["shares"][f"{a:g}"] for a in scale.answers]))


def load_cases(
    test: str,
    draw: int,
    tables: Mapping[str, Snapshot],
    suite: Suite,
    frame: Callable[[str], pl.DataFrame],
    wording: str = "own",
) -> Cases:
    """The questions of a test, with a draw (number) of `series_cases` and `human_cases`.

    ``test`` is one of :data:`TESTS`, ``tables`` are the case tables of ``suite`` by short name.
    ``frame`` returns tables of the domain: `items` in the order of their ids, `personas`,
    `human_users`. ``wording`` is that of hand-made personas; see
    :data:`pipelines.ablations.WORDINGS`.
    """
    index = {item: n for n, item in enumerate(frame("items")["item_id"])}
    if test == "collections":
        return _collections(tables["series_cases"], draw, suite, frame("personas"), index)
    if test == "similarity":
        return _similarity(tables["human_cases"], draw, suite, frame("human_users"), index)

    from pipelines.ablations import worded_personas

    people = tables["personas"].read().filter(pl.col("suite") == test).sort("persona_id")
    rows = tables["item_sets"].read().filter(pl.col("suite") == test)
    place = {p: n for n, p in enumerate(people["persona_id"])}
    return Cases(
        test,
        worded_personas(people, wording, draw),
        _places(rows["persona_id"], place),
        _places(rows["item_id"], index),
        np.array([_WANT[w] for w in rows["want"]], dtype=np.int64),
        rows["group"].to_list(),
        np.empty((rows.height, 0), dtype=np.int64),
        np.empty((rows.height, 0)),
        suite.scale,
    )


def _collections(
    table: Snapshot, draw: int, suite: Suite, personas: pl.DataFrame, index: dict[str, int]
) -> Cases:
    rows = table.scan().filter(pl.col("draw") == draw).collect()
    people = personas.join(rows.select("persona_id"), on="persona_id", how="semi")
    people = people.sort("persona_id")
    place = {p: n for n, p in enumerate(people["persona_id"])}
    person, item = _places(rows["persona_id"], place), _places(rows["item_id"], index)
    history = _padded(rows["history"], -1, index)
    others = _padded(rows["ratings"], np.nan)
    sides = [
        np.where(np.isnan(side), others, side)
        for side in (_padded(rows["low"], np.nan), _padded(rows["high"], np.nan))
    ]
    return Cases(
        "collections",
        people,
        np.tile(person, 2),
        np.tile(item, 2),
        np.repeat(np.array([0, 1], dtype=np.int64), rows.height),
        rows["series"].to_list() * 2,
        np.tile(history, (2, 1)),
        np.concatenate(sides),
        suite.scale,
    )


def _similarity(
    table: Snapshot, draw: int, suite: Suite, human_users: pl.DataFrame, index: dict[str, int]
) -> Cases:

    from pipelines.raters import persona_rows

    rows = table.scan().filter(pl.col("draw") == draw).collect()
    users = rows["user_id"].unique().sort().to_list()
    place = {u: n for n, u in enumerate(users)}
    ratings = _padded(rows["ratings"], np.nan)
    if rows.height:
        ratings = rescale(ratings, scale_named(rows["scale"][0]), suite.scale)
    return Cases(
        "similarity",
        persona_rows(users, human_users),
        _places(rows["user_id"], place),
        _places(rows["item_id"], index),
        np.full(rows.height, -1, dtype=np.int64),
        ["people"] * rows.height,
        _padded(rows["history"], -1, index),
        np.asarray(ratings, dtype=np.float64),
        suite.scale,
    )


def _places(ids: pl.Series, place: dict[str, int]) -> Ints:
    return np.array([place[i] for i in ids], dtype=np.int64)


def _padded(lists: pl.Series, blank: float, index: dict[str, int] | None = None) -> Any:
    """A column of lists as one array, padded at the end."""
    lengths = lists.list.len().to_numpy().astype(np.int64)
    longest = int(lengths.max()) if len(lengths) else 0
    out = np.full((len(lengths), longest), blank, dtype=np.float64 if index is None else np.int64)
    if not out.size:
        return out
    flat = lists.explode(empty_as_null=False, keep_nulls=False)
    if index is None:
        flat = flat.cast(pl.Float64).fill_null(float("nan"))
    else:
        flat = flat.replace_strict(index, return_dtype=pl.Int64)
    out[np.arange(longest)[None, :] < lengths[:, None]] = flat.to_numpy()
    return out


#: q of greedy noise (probability) and the standard deviation of Gaussian noise (answers).
STRENGTH = {"none": 0.0, "greedy": 0.3, "gaussian": 1.0}


def kernel(name: str, scale: RatingScale, strength: float | None = None) -> npt.NDArray[np.float64]:
    """Probability of each answer after the noise, by answer before it; rows sum to 1.

    ``none``; ``greedy``: one answer up or down with probability q/2 each (SUBER, section 4.1);
    ``gaussian``: a normal number is added and the sum rounded. What falls off the scale is put at
    its end. `strength` is q (0-1), or the standard deviation in answers; default :data:`STRENGTH`.
    Another name or strength is a ConfigError.

    >>> from pipelines.scales import SCALES
    >>> kernel("greedy", SCALES["1-5"], 0.5)[0].tolist()
    [0.75, 0.25, 0.0, 0.0, 0.0]
    """
    if name not in STRENGTH:
        raise ConfigError("unknown perturbation", where=name, hint=f"one of {', '.join(STRENGTH)}")
    strength = STRENGTH[name] if strength is None else strength
    count = len(scale)
    if strength < 0 or (name == "greedy" and strength > 1):
        raise ConfigError("no such strength of noise", where=f"{name} {strength}")
    if name == "none" or strength == 0:
        return np.eye(count)
    if name == "greedy":
        steps = np.array([strength / 2, 1 - strength, strength / 2])
        out = np.zeros((count, count))
        for step, share in zip((-1, 0, 1), steps, strict=True):
            to = np.clip(np.arange(count) + step, 0, count - 1)
            out[np.arange(count), to] += share
        return out
    from scipy.stats import norm

    # Borders between answers; all that lies beyond the outer ones is at the ends.
    border = np.arange(count - 1) + 0.5
    with np.errstate(over="ignore"):
        below = norm.cdf((border[None, :] - np.arange(count)[:, None]) / strength)
    padded = np.concatenate([np.zeros((count, 1)), below, np.ones((count, 1))], axis=1)
    return np.asarray(np.diff(padded, axis=1))


def successes(test: str, suite: Suite, scale: RatingScale) -> npt.NDArray[np.bool_]:
    """Answers of a scale that count as low and as high, of shape (2, answers).

    The suite states its thresholds on its own scale; an answer of another scale is converted to
    that one (linearly, ends to ends), so that 8 of 1-10 is 7 of 0-9.
    """
    high, low = suite.thresholds[test]
    stars = rescale(scale.answers, scale, suite.scale)
    # Conversion must not lose a threshold to rounding.
    return np.stack([stars <= low + 1e-9, stars >= high - 1e-9])


def common_scale(scale: RatingScale, human: Human) -> tuple[RatingScale, Ints, Floats]:
    """The scale with fewer answers, on which ratings and people's ratings are compared.

    Returns also the number of its answer for each answer of `scale`, and the human shares on it
    (each answer of the source counts at the nearest one).
    """
    target = human.scale if len(human.scale) <= len(scale) else scale

    def number(answers: Floats, source: RatingScale) -> Ints:
        nearest = to_answers(answers, source, target)
        return np.rint((nearest - target.low) / target.step).astype(np.int64)

    shares = np.bincount(
        number(human.scale.answers, human.scale), human.shares, minlength=len(target)
    )
    return target, number(scale.answers, scale), np.asarray(shares, dtype=np.float64)


def scored(
    cases: Cases,
    answers: pl.DataFrame,
    scale: RatingScale,
    suite: Suite,
    *,
    seed: int,
    noise: str,
    human: Human | None,
) -> pl.DataFrame:
    """The outcome of each case under one seed.

    The rating is drawn from the rater's distribution (`answers`, of
    :func:`sim.ablations._context.answers`) and then perturbed. The draws belong to (seed, test,
    case), so that configurations are compared under the same luck. `human` is needed by the
    similarity only.

    Columns: ``test``, ``seed``, ``case``, ``user``, ``group``, ``want``, ``status``, ``answer``
    (number of the drawn answer; for the similarity on the common scale), ``success`` and ``chance``
    (its probability), and ``shares`` (similarity only: the distribution on the common scale). Where
    there is no rating, the last four are null: a reply that can't be read is no rating.
    """
    ok = (answers["status"] == "ok").to_numpy()
    probabilities = np.zeros((len(cases), len(scale)))
    flat = answers["probabilities"].filter(answers["status"] == "ok")
    probabilities[ok] = np.array(flat.to_list(), dtype=np.float64).reshape(
        int(ok.sum()), len(scale)
    )
    matrix = kernel(noise, scale)
    test_key, number = hash_text(cases.test), np.arange(len(cases))
    first = uniform(seed, test_key, 0, number)
    below = np.cumsum(probabilities, axis=1)[:, :-1] <= first[:, None]
    rating = perturb(
        scale.answers[below.sum(axis=1)],
        uniform(seed, test_key, 1, number),
        noise,
        STRENGTH[noise] * scale.step,
        scale,
    )
    answer = np.rint((rating - scale.low) / scale.step).astype(np.int64)
    after = probabilities @ matrix
    frame = pl.DataFrame(
        {
            "test": [cases.test] * len(cases),
            "seed": [seed] * len(cases),
            "case": number,
            "user": cases.users,
            "group": cases.group,
            "want": cases.want,
            "status": answers["status"],
        },
        schema_overrides={
            **dict.fromkeys(("test", "user", "group", "status"), pl.String),
            **dict.fromkeys(("seed", "case", "want"), pl.Int64),
        },
    )
    success = np.zeros(len(cases), dtype=bool)
    chance = np.zeros(len(cases))
    shares: list[list[float]] | None = None
    if cases.test == "similarity" and human is not None:
        target, onto, _ = common_scale(scale, human)
        answer = onto[answer]
        spread = np.zeros((len(scale), len(target)))
        spread[np.arange(len(scale)), onto] = 1.0
        shares = (after @ spread).tolist()
    elif len(cases):
        good = successes(cases.test, suite, scale)[cases.want]  # (n, answers)
        success = np.take_along_axis(good, answer[:, None], axis=1)[:, 0]
        chance = (after * good).sum(axis=1)
    judged = cases.test != "similarity"
    rated = pl.col("status") == "ok"
    return frame.with_columns(
        answer=pl.when(rated).then(pl.Series(answer, dtype=pl.Int64)),
        success=pl.when(rated & judged).then(pl.Series(success, dtype=pl.Boolean)),
        chance=pl.when(rated & judged).then(pl.Series(chance, dtype=pl.Float64)),
        shares=pl.when(rated).then(
            pl.Series(shares or [None] * len(cases), dtype=pl.List(pl.Float64))
        ),
    )
