"""What the cells of a suite share, and making one cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.errors import ReleaseError
from pipelines.scales import scale_named
from sim.ablations._ask import BLOCK, answers, recall
from sim.ablations._cases import (
    TESTS,
    Cases,
    Human,
    human_distribution,
    load_cases,
    tables_of,
)
from sim.ablations._cells import scored
from sim.ablations._grid import UNSEEN, Options
from sim.ablations._noise import STRENGTH

if TYPE_CHECKING:
    import polars as pl

    from pipelines.ablations import CaseRule, RaterBank, RaterSpec, Suite
    from pipelines.config import EngineSettings, Settings
    from pipelines.llm.answers import AnswerStore
    from pipelines.llm.engines import Engine
    from pipelines.raters import Rater
    from pipelines.store import Release as StoredRelease
    from pipelines.store import Snapshot, Store

__all__ = ["CODE_VERSION", "RETRIEVED", "Workshop"]

#: Bumped whenever the same identity gives another result.
CODE_VERSION = "1"
#: Past items that are shown (count; SUBER, section 4.2).
RETRIEVED = 3
#: Tables of a domain that a suite needs.
_NEEDED = ("items", "item_stats", "interactions", "splits", "personas", "human_users")
#: Tables beside the items that a retriever chooses by.
_CHOSEN_BY = {
    "none": (),
    "recent": (),
    "features": ("item_stats",),
    "embedding": ("item_embeddings",),
    "graph": ("graph_triples",),
    UNSEEN: (),
}


@dataclass
class Workshop:
    """What the cells of a suite share: a release's tables, the case tables, raters, retrievers.

    Made by :meth:`open`.
    """

    suite: Suite
    release: StoredRelease
    tables: Mapping[str, Snapshot]
    cases: Mapping[str, Snapshot]
    bank: RaterBank
    kept: Any
    k: int = RETRIEVED
    most: int = BLOCK
    _retrievers: dict[str, Any] = field(default_factory=dict)
    _loaded: dict[tuple[str, int], Cases] = field(default_factory=dict)
    _shown: dict[tuple[str, int, str], Any] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        store: Store,
        release: StoredRelease,
        suite: str,
        settings: Settings,
        *,
        rule: CaseRule | None = None,
        answer_store: AnswerStore | None = None,
        engines: Callable[[EngineSettings], Engine] | None = None,
        k: int = RETRIEVED,
        most: int = BLOCK,
        run_id: str | None = None,
    ) -> Workshop:
        """Open a release for a suite; case tables that were not made of it yet are made.

        Raises
        ------
        ReleaseError
            If the release lacks a table that the suite needs, or is of another domain.
        """
        from pipelines.ablations import (
            CASE_TABLES,
            Kept,
            RaterBank,
            needs,
            suite_named,
            write_table,
        )

        found = suite_named(suite)
        missing = [name for name in _NEEDED if name not in release.tables]
        other = [
            lock.dataset for name, lock in release.tables.items()
            if name == "items" and lock.dataset != f"{suite}.items"
        ]  # fmt: skip
        if missing or other:
            what = f"lacks {', '.join(missing)}" if missing else f"holds {other[0]}"
            raise ReleaseError(
                f"the release {what}, so that the suite {suite} can't run on it",
                where=str(release),
                hint=f"give a release of {suite}, such as {suite}@latest",
            )
        tables = {name: release.snapshot(name) for name in release.tables}
        cases: dict[str, Snapshot] = {}
        for table in CASE_TABLES:
            inputs = {
                name: cases[name[1:]] if name.startswith(".") else tables[name]
                for name in needs(table, suite)
            }
            cases[table], _ = write_table(store, suite, table, inputs, rule=rule, run_id=run_id)
        bank = RaterBank(settings, suite, tables, answer_store, engines)
        return cls(found, release, tables, cases, bank, Kept(store.home), k, most)

    def questions(self, test: str, draw: int) -> Cases:
        """The cases of a test under one draw."""
        key = (test, draw if test in ("collections", "similarity") else 0)
        if key not in self._loaded:
            self._loaded[key] = load_cases(test, key[1], self.cases, self.suite, self.bank.frame)
        return self._loaded[key]

    @property
    def human(self) -> Human | None:
        """How people rate."""
        return human_distribution(self.cases["human_cases"])

    def identity(self, spec: RaterSpec, options: Options, test: str, draw: int) -> dict[str, Any]:
        """What decides a rater's answers in a test, ready for JSON."""
        histories = test in ("collections", "similarity")
        retrieval = options.retrieval if histories else UNSEEN
        shots = 0 if options.shots == UNSEEN else int(options.shots)
        system = "default" if options.system == UNSEEN else options.system
        used = {"items", *_CHOSEN_BY[retrieval]}
        if test == "collections":
            used.add("personas")
        if test == "similarity":
            used.add("human_users")
        return {
            "code": CODE_VERSION,
            "test": test,
            "rater": self.bank.identity(spec, options.scale, shots, system),
            "cases": {name: self.cases[name].version for name in tables_of(test)},
            "tables": {n: self.tables[n].version for n in sorted(used) if n in self.tables},
            "retrieval": retrieval,
            "retrieved": self.k if retrieval not in (UNSEEN, "none") else 0,
            "draw": draw if histories else 0,
            # How far paths of the graph go.
            "graph": self.release.settings.get("graph", {}) if retrieval == "graph" else {},
        }

    def cell_key(self, spec: RaterSpec, options: Options, seed: int) -> str:
        """Hash (hex) of what decides a cell: a configuration under one seed."""
        from pipelines.config import identity_hash

        return identity_hash(
            {
                "tests": [self.identity(spec, options, test, seed) for test in TESTS],
                "perturbation": [options.perturbation, STRENGTH[options.perturbation]],
                "seed": seed,
                "thresholds": {k: list(v) for k, v in self.suite.thresholds.items()},
            }
        )

    def cell(
        self,
        spec: RaterSpec,
        options: Options,
        seed: int,
        progress: Callable[[int], None] = lambda _: None,
    ) -> tuple[pl.DataFrame, bool]:
        """The scored cases of a configuration under one seed, and whether they were kept.

        A cell with a call that failed is not kept, so that the next run asks that call again.
        """
        import polars as pl

        key = self.cell_key(spec, options, seed)
        found = self.kept.frame("cells", key)
        if found is not None:
            return found, True
        scale = scale_named(options.scale)
        frames, failed = [], False
        for test in TESTS:
            cases = self.questions(test, seed)
            said = self._said(spec, options, test, seed, cases, progress)
            failed = failed or bool((said["status"] == "engine_error").any())
            frames.append(
                scored(
                    cases,
                    said,
                    scale,
                    self.suite,
                    seed=seed,
                    noise=options.perturbation,
                    human=self.human,
                )
            )
        whole = pl.concat(frames)
        if not failed:
            self.kept.note("cells", key, self._record(spec, options, seed))
            self.kept.put("cells", key, whole)
        return whole, False

    def facts(self, spec: RaterSpec, options: Options) -> dict[str, Any]:
        """What the rater says of itself; of a fitted one kept, since fitting takes seconds."""
        from pipelines.config import identity_hash

        shots = 0 if options.shots == UNSEEN else int(options.shots)
        system = "default" if options.system == UNSEEN else options.system
        key = identity_hash(self.bank.identity(spec, options.scale, shots, system))
        found: dict[str, Any] | None = self.kept.record("raters", key)
        if found is None or spec.kind == "llm":
            found = self._rater(spec, options).facts()
            found.pop("calls", None)
            self.kept.note("raters", key, found)
        return found

    def _record(self, spec: RaterSpec, options: Options, seed: int) -> dict[str, Any]:
        return {
            "rater": spec.name,
            "options": options.facts(),
            "seed": seed,
            "release": str(self.release),
            "tests": {test: self.identity(spec, options, test, seed) for test in TESTS},
        }

    def _rater(self, spec: RaterSpec, options: Options) -> Rater:
        shots = 0 if options.shots == UNSEEN else int(options.shots)
        system = "default" if options.system == UNSEEN else options.system
        return self.bank.open(spec, options.scale, shots, system, history=self.k)

    def _said(
        self,
        spec: RaterSpec,
        options: Options,
        test: str,
        seed: int,
        cases: Cases,
        progress: Callable[[int], None],
    ) -> pl.DataFrame:
        from pipelines.config import identity_hash

        identity = self.identity(spec, options, test, seed)
        return answers(
            identity_hash(identity),
            cases,
            self._recall(cases, identity["retrieval"], int(identity["draw"])),
            lambda: self._rater(spec, options),
            self.bank.frame("items"),
            self.kept,
            most=self.most,
            progress=progress,
        )

    def _recall(self, cases: Cases, retrieval: str, draw: int) -> Any:
        key = (cases.test, draw, retrieval)
        if key not in self._shown:
            retriever = None if retrieval in (UNSEEN, "none") else self._retriever(retrieval)
            self._shown[key] = recall(cases, retriever, self.k)
        return self._shown[key]

    def _retriever(self, name: str) -> Any:
        if name not in self._retrievers:
            from pipelines.ablations import source_scale
            from pipelines.retrieval import open_retriever
            from sim._release import Release

            vectors = "item_embeddings" in self.tables
            self._retrievers[name] = open_retriever(
                name,
                items=self.bank.frame("items"),
                item_stats=self.bank.frame("item_stats"),
                item_embeddings=self.bank.frame("item_embeddings") if vectors else None,
                release=Release(self.release) if name == "graph" else None,
                scale=source_scale(self.tables["interactions"].scan()),
            )
        return self._retrievers[name]
