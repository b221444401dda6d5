"""Versions that a set of snapshots was made from, and their agreement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pipelines.errors import IntegrityError
from pipelines.store._layout import Layout
from pipelines.store._manifest import split_cohort
from pipelines.store._records import open_snapshot, read_record
from pipelines.store._snapshot import Snapshot
from pipelines.store.files import LocalFiles

#: Name of the check of a released table some of whose cohorts were made from other versions.
COHORT_LINEAGE = "cohort_lineage"

Alternatives = Callable[[str, str], list[dict[str, str]]]


def builds_of(files: LocalFiles, layout: Layout) -> Alternatives:
    """A function that gives the inputs of every build that gave a snapshot, newest first.

    There can be several: when a changed input doesn't change the output, the snapshot stays
    and only a build record is added. A snapshot that is not in the store has none.
    """
    builds: dict[tuple[str, str], list[dict[str, str]]] = {}

    def alternatives(dataset: str, version: str) -> list[dict[str, str]]:
        if (dataset, version) not in builds:
            builds[dataset, version] = _read_builds(files, layout, dataset, version)
        return builds[dataset, version]

    return alternatives


def _read_builds(
    files: LocalFiles, layout: Layout, dataset: str, version: str
) -> list[dict[str, str]]:
    builds: list[tuple[str, dict[str, str]]] = []
    try:
        manifest = open_snapshot(files, layout.snapshot(dataset, version)).manifest
        builds.append((manifest.created_at, manifest.inputs))
    except IntegrityError:
        return []
    folder = layout.builds(dataset)
    for name in files.names(folder):
        try:
            record = read_record(files, folder / name) or {}
        except IntegrityError:
            continue
        inputs = record.get("inputs")
        if record.get("version") == version and isinstance(inputs, dict):
            builds.append((str(record.get("created_at")), inputs))
    builds.sort(key=lambda f: f[0], reverse=True)
    unique: list[dict[str, str]] = []
    for _, inputs in builds:
        if inputs not in unique:
            unique.append(inputs)
    return unique


def resolve_lineage(
    pinned: Iterable[Snapshot], alternatives: Alternatives
) -> tuple[dict[str, str], list[str], dict[str, list[str]]]:
    """Walk the inputs of the snapshots to be released to the sources.

    Returns every dataset (and ``file:`` input) that is pinned or an ancestor, with its version; the
    contradictions, empty if each has one version only; and, by cohort, those of cohorts that were
    made from other versions. Such a cohort is left out of the walk, as long as another one agrees
    in each of the tables: a cohort that was scored before items changed stays in a release.
    ``alternatives``: see :func:`builds_of`.
    """
    lineage: dict[str, str] = {}
    cohorts: dict[str, dict[str, str]] = {"": {}}
    for snapshot in (part for table in pinned for part in table.snapshots):
        other = lineage.setdefault(snapshot.dataset, snapshot.version)
        if other != snapshot.version:
            lines = [f"{snapshot.dataset} is pinned as {other} and {snapshot.version}"]
            return lineage, lines, {}
        cohort = split_cohort(snapshot.dataset)[1]
        cohorts.setdefault(cohort, {})[snapshot.dataset] = snapshot.version
    base = cohorts.pop("")
    solution = _solve(lineage, list(base.items()), alternatives)
    if solution is None:
        return lineage, _contradictions(lineage, base, alternatives), {}
    lineage = solution
    differing: dict[str, list[str]] = {}
    for cohort, parts in cohorts.items():
        solution = _solve(lineage, list(parts.items()), alternatives)
        if solution is None:
            differing[cohort] = _contradictions(lineage, base | parts, alternatives)
        else:
            lineage = solution
    # A cohort of personas alone agrees with everything, and says nothing of the scores.
    tables = {split_cohort(name)[0] for parts in cohorts.values() for name in parts}
    for cohort in cohorts.keys() - differing.keys():
        tables -= {split_cohort(name)[0] for name in cohorts[cohort]}
    if tables:
        return lineage, list(dict.fromkeys(line for why in differing.values() for line in why)), {}
    return lineage, [], differing


def _solve(
    chosen: dict[str, str], waiting: list[tuple[str, str]], alternatives: Alternatives
) -> dict[str, str] | None:
    """A build per snapshot such that every dataset has one version; None if impossible."""
    while waiting:
        (dataset, version), *waiting = waiting
        fitting = [inputs for inputs in alternatives(dataset, version) if _agrees(inputs, chosen)]
        if not fitting:
            if alternatives(dataset, version):
                return None
            continue  # an original file, or a dataset of another store
        if len(fitting) > 1:
            for inputs in fitting:
                solution = _solve(*_take(inputs, chosen, waiting), alternatives)
                if solution is not None:
                    return solution
            return None
        chosen, waiting = _take(fitting[0], chosen, waiting)
    return chosen


def _agrees(inputs: Mapping[str, str], chosen: Mapping[str, str]) -> bool:
    return all(chosen.get(name, version) == version for name, version in inputs.items())


def _take(
    inputs: Mapping[str, str], chosen: dict[str, str], waiting: list[tuple[str, str]]
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    new = {n: v for n, v in inputs.items() if n not in chosen}
    return {**chosen, **new}, [*waiting, *new.items()]


def _contradictions(
    chosen: Mapping[str, str], starts: Mapping[str, str], alternatives: Alternatives
) -> list[str]:
    """Datasets that the newest builds of ``starts`` take in several versions, and through what."""
    users: dict[str, dict[str, list[str]]] = {n: {v: ["pinned"]} for n, v in chosen.items()}
    waiting = list(starts.items())
    while waiting:
        dataset, version = waiting.pop(0)
        for name, used in next(iter(alternatives(dataset, version)), {}).items():
            by_version = users.setdefault(name, {})
            if used not in by_version:
                waiting.append((name, used))
            by_version.setdefault(used, []).append(f"used by {dataset}")
    lines = []
    for name, by_version in sorted(users.items()):
        if len(by_version) > 1:
            parts = (f"{v} ({', '.join(sorted(set(w)))})" for v, w in sorted(by_version.items()))
            lines.append(f"{name} has {len(by_version)} versions: {' and '.join(parts)}")
    return lines or ["no combination of the recorded builds gives every dataset one version"]
