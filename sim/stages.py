"""Tables made from releases: policies, scores of suites, visits, experiments, dialogues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pipelines import ablations, raters
from pipelines.config import Settings
from pipelines.domains import DOMAINS
from pipelines.errors import ConfigError
from pipelines.plugins import closing
from pipelines.stages import Check, Inputs, Report, Stage, release_name
from pipelines.store import Build, CheckRecord, Table, build_key

__all__ = [
    "dialogues_stage",
    "experiments_stage",
    "policies_stage",
    "scores_stage",
    "simulation_stage",
]

#: Tables of visits, in the order in which they are written.
SIMULATED = ("agents", "views", "pages", "memories")
#: Raised with `sim.agents.CODE_VERSION`, whose package is too heavy to load with definitions.
AGENTS_VERSION = "6"
#: Raised with `sim.experiments.CODE_VERSION`.
EXPERIMENTS_VERSION = "4"
#: Raised with `sim.dialogue` CODE_VERSION and with the figures of its report.
DIALOGUES_VERSION = "2"
#: Brains whose visits depend on nothing but the release and the configuration.
_OWN_BRAINS = ("statistical", "random", "always")

#: Raised whenever the same release and settings give other policies.
_POLICIES_VERSION = "2"


@contextmanager
def trained_policy(inputs: Inputs, settings: Settings, report: Report) -> Iterator[Build]:
    """Train a policy per configured seed, and evaluate them with the baselines.

    A run that died goes on from its latest checkpoint; an equal one is not repeated.
    """
    chosen, store = settings.training, inputs.context.store
    stored = store.release(_pinned(settings))
    config = {"training": _training(settings)}
    versions = {stored.name: stored.version}
    key = build_key(_POLICIES_VERSION, config, versions)

    def make() -> Iterator[Table]:
        # Torch and stable-baselines3 come with these: not when definitions are loaded.
        from sim import Release
        from sim.environment import World
        from sim.training import policy_table, run_settings, train

        world = World.open(Release(stored), rater=chosen.rater, retriever=chosen.retriever)
        result = train(
            world,
            run_settings(chosen, seed=chosen.seeds[0]),
            chosen.seeds,
            store.home / "training" / f"{stored.name}-{chosen.algo}-{key[:12]}",
            resume=True,
        )
        payload = result.metadata
        report.texts["figures"] = result.study.markdown(release=result.metadata["release"], level=2)
        report.shown.update(
            language_model=payload["language_model"], folder=str(result.runs[0].folder.parent)
        )
        report.plots.update(result.study.pictures)
        stats = {name: payload[name] for name in ("release", "note", "users")}
        stats["tables"] = {name: table.version for name, table in stored.tables.items()}
        stats["average_reward"] = result.rows[chosen.algo]["average_reward"].value
        # Every table and original file behind the metric, with its version.
        stats["lineage"] = dict(stored.lineage)
        yield Table("trained_policy", [policy_table(result)], lambda: stats, ordered=False)

    yield Build(("trained_policy",), make, _POLICIES_VERSION, config, versions)


def _pinned(settings: Settings) -> str:
    """Reference of the release that policies are trained on."""
    domain, reference = settings.training.domain, settings.training.release
    name, sign, version = reference.rpartition("@")
    expected = release_name(settings, domain)
    if sign and name != expected:
        raise ConfigError(
            f"not a release of the {domain}; its releases are named {expected}",
            where=f"training.release: {reference}",
            hint="set training.domain too",
        )
    return f"{expected}@{version}"


def _training(settings: Settings) -> dict[str, Any]:
    # The interval of checkpoints changes no policy; which release was read is among the inputs.
    values = settings.training.model_dump(mode="json", exclude={"checkpoint_every", "release"})
    if settings.training.rater == "surrogate":
        home, domain = settings.runtime.home, settings.training.domain
        version = settings.surrogate.snapshot
        values["surrogate"] = raters.surrogate_version(home, domain, version)
    return values


def policies_stage(domain: str) -> Stage:
    """The stage of policies that are trained on a release of a domain."""
    return replace(_POLICIES, after=(f"releases.{domain}",))


_POLICIES = Stage(
    datasets=("trained_policy",),
    code_version=_POLICIES_VERSION,
    open=trained_policy,
    settings=lambda settings: {
        "training": _training(settings),
        # Moving the pin makes the asset stale; without one, the release above it does.
        **({} if settings.training.release == "latest" else {"release": settings.training.release}),
    },
    kinds=("pytorch", "parquet"),
    preview=False,
)


def scores_stage(
    domain: str,
    *,
    grid: str = "small",
    seeds: int = 3,
    cases: int | None = None,
    models: Sequence[str] = (),
) -> Stage:
    """The stage of the scores of a suite's configurations on the latest release of a domain.

    ``domain`` is ``movies`` or ``books``; ``grid`` is `small` (one option changed at a time) or
    `full`. At most ``cases`` of each test and seed are asked (count; None: all). ``models`` of the
    configured engine are judged beside the raters without one; the configured one is judged anyway
    if `scoring.rater` is `llm`.
    """
    dataset = f"ablations.{domain}_scores"
    version = f"{ablations.CODE_VERSION}+{raters.CODE_VERSION}"

    @contextmanager
    def scores(inputs: Inputs, settings: Settings, report: Report) -> Iterator[Build]:
        """Run every configuration not yet run on the latest release."""
        from pipelines.llm.answers import AnswerStore
        from sim.ablations import (
            RaterSpec,
            SuiteContext,
            run_suite,
            scores_frame,
            suite_pictures,
            suite_study,
        )

        store = inputs.context.store
        engines = [settings.engine.model_copy(update={"model": m}) for m in models]
        if settings.scoring.rater == "llm" and settings.engine not in engines:
            engines.insert(0, settings.engine)
        specs = [RaterSpec("llm", engine) for engine in engines]
        opened = AnswerStore(settings.runtime.home, settings.serving) if specs else None
        with closing(opened) as answers:
            suite = SuiteContext.open(
                store,
                store.release(f"{release_name(settings, domain)}@latest"),
                domain,
                settings,
                answer_store=answers,
                sample=cases,
                run_id=inputs.run_id,
            )

            def make() -> Iterator[Table]:
                result = run_suite(
                    suite,
                    specs,
                    grid=grid,  # type: ignore[arg-type]
                    seeds=tuple(range(seeds)),
                )
                report.texts["table"] = suite_study(result).markdown(release=result.release)
                report.shown.update(cells_made=result.made, cells_reused=result.reused)
                report.plots.update(suite_pictures(result))
                report.checks += _checks(result)
                stats = {"release": result.release, "counts": result.counts}
                yield Table(dataset, [scores_frame(result)], lambda: stats, ordered=False)

            yield Build(
                (dataset,),
                make,
                version,
                {"grid": grid, "seeds": seeds, "cases": cases, "models": list(models)},
                {s.dataset: s.version for s in suite.cases.values()},
                # Cells are kept one by one, under all that decides them.
                reusable=False,
            )

    return Stage(
        datasets=(dataset,),
        code_version=version,
        open=scores,
        after=(
            *(f"ablations.{domain}_{table}" for table in ablations.CASE_TABLES),
            f"releases.{domain}",
        ),
        checks=(
            Check(
                _READABLE,
                "No configuration has too many replies without a readable rating for a meaningful "
                "score.",
                blocking=False,
            ),
            Check(
                _BETTER,
                "The statistical rater's baseline is above the random and the mean rater's, "
                "intervals included.",
                blocking=False,
            ),
        ),
    )


_AGREE = "remarks_agree_with_ratings"
_READABLE, _BETTER = "replies_are_readable", "statistical_beats_the_baselines"


def _checks(result: Any) -> list[CheckRecord]:
    flagged = [
        f"{c.rater} {test}" for c in result.configurations
        for test, s in c.scores.items() if s.flagged
    ]  # fmt: skip
    scores = {name: c.scores["aggregate"] for name, c in result.baselines.items()}
    better = all(scores["statistical"].low > scores[name].high for name in ("random", "mean"))
    figures = {name: scores[name].value for name in ("statistical", "random", "mean")}
    return [
        CheckRecord(_READABLE, not flagged, "warn", details={"flagged": flagged}),
        CheckRecord(_BETTER, better, "warn", details=figures),
    ]


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a stage as the configuration of its tables, ready for JSON."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in arguments.items()}


def simulation_stage(
    *,
    domain: str = "movies",
    cast: str = "matched",
    recommenders: Sequence[str] = ("random", "popular", "mean-rating"),
    brain: str = "statistical",
    agents: int = 1_000,
    pages: int = 5,
    per_page: int = 4,
    seed: int = 0,
    traits: bool = True,
    graph: bool = True,
) -> Stage:
    """The stage of agents that visit recommenders on the latest release of a domain.

    Arguments are those of the command ``understudy agents run``. The recommenders are visited one
    after the other by as many agents each. The first agent of the second one has the number
    `agents`; it plays the person of agent 0, with its seeds.
    """
    config = _plain(locals())
    datasets = tuple(f"simulations.{table}" for table in SIMULATED)
    version = f"{AGENTS_VERSION}+{raters.CODE_VERSION}"

    @contextmanager
    def simulated(inputs: Inputs, settings: Settings, report: Report) -> Iterator[Build]:
        """Let agents visit every recommender; a killed run resumes where it stopped."""
        store = inputs.context.store
        stored = store.release(f"{release_name(settings, domain)}@latest")

        def make() -> Iterator[Table]:
            from sim import Release
            from sim import agents as visits
            from sim.recommenders import open_recommender

            release, people = Release(stored), None
            if cast == "matched":
                release, people = visits.match_people(release, settings.matching)
            world = visits.AgentWorld.open(
                release, cast=cast, per_page=per_page, pages=pages, traits=traits, graph=graph
            )
            runs = []
            with closing(visits.open_brain(brain, settings=settings).open(world)) as mind:
                for number, name in enumerate(recommenders):
                    runs.append(
                        visits.simulate(
                            world,
                            mind,
                            open_recommender(name).fit(release),
                            agents=agents,
                            folder=inputs.scratch / str(number),
                            seed=seed,
                            first=number * agents,
                        )
                    )
            study = visits.visit_study(runs, world.histogram)
            rows = visits.visit_rows(study, runs)
            said = [visits.remark_report(run, world).as_json() for run in runs]
            agree = not any(remark["contradictions"] for remark in said)
            details = dict(zip(recommenders, said, strict=True))
            report.checks.append(CheckRecord(_AGREE, agree, "warn", details=details))
            report.texts["figures"] = study.markdown(release=release.ref, level=2)
            report.shown.update(failed=sum(row["failed"] for row in rows), note=mind.note)
            if people:
                report.shown["people"] = people
            report.plots.update(study.pictures)
            stats = {"figures": rows, "runs": [r.identity for r in runs]}
            for table in SIMULATED:
                frames = (frame for run in runs for frame in run.batches(table))
                # Agents that watch nothing remember nothing.
                empty = table == "memories"
                yield Table(f"simulations.{table}", frames, lambda: stats, allow_empty=empty)

        versions = {stored.name: stored.version}
        yield Build(datasets, make, version, config, versions, reusable=brain in _OWN_BRAINS)

    return Stage(
        datasets=datasets,
        code_version=version,
        open=simulated,
        after=tuple(f"releases.{name}" for name, d in DOMAINS.items() if not d.choice_sets),
        checks=(
            Check(
                _AGREE,
                "What agents say contradicts neither their ratings nor the items' genres.",
                blocking=False,
            ),
        ),
        name="simulate_agents",
        preview=False,
    )


def experiments_stage(
    *,
    domain: str = "movies",
    names: Sequence[str] = ("all",),
    brains: Sequence[str] = (),
    recommenders: Sequence[str] = (),
    agents: int = 1_000,
    pages: int = 5,
    per_page: int = 4,
    model_agents: int = 20,
    model_pages: int = 2,
    seed: int = 0,
) -> Stage:
    """The stage of experiments on simulated users on the latest release of a domain.

    Arguments are those of the command ``understudy experiment run``.
    """
    config = _plain(locals())
    datasets = ("experiments.figures", "experiments.comparisons")
    version = f"{EXPERIMENTS_VERSION}+{AGENTS_VERSION}+{raters.CODE_VERSION}"

    @contextmanager
    def experiments(inputs: Inputs, settings: Settings, report: Report) -> Iterator[Build]:
        """Run experiments; visits and results that are kept in the home are not computed again."""
        store = inputs.context.store
        stored = store.release(f"{release_name(settings, domain)}@latest")

        def make() -> Iterator[Table]:
            import polars as pl

            from sim import Release
            from sim import experiments as sim_experiments

            release = Release(stored)
            context = sim_experiments.ExperimentContext(
                release,
                settings,
                store.home,
                agents=agents,
                pages=pages,
                per_page=per_page,
                seed=seed,
                brains=tuple(brains),
                recommenders=tuple(recommenders),
                sample={"model_agents": model_agents, "model_pages": model_pages},
            )
            with closing(context):
                studies = sim_experiments.run_experiments(context, names)
            for name, study in studies.items():
                report.texts[name] = study.markdown(release=release.ref, level=2)
                report.plots.update({f"{name}_{key}": p for key, p in study.pictures.items()})
            measured = [study for study in studies.values() if study.too_few is None]
            report.shown.update(
                computed=context.made,
                reused=context.reused,
                without_figures=[n for n, study in studies.items() if study.too_few is not None],
            )
            stats = {
                "release": release.ref,
                "counts": {study.name: study.counts for study in measured},
                "seconds": {n: round(s, 3) for n, s in context.seconds.items()},
            }
            for dataset, frames in (
                (datasets[0], [study.rows_frame() for study in measured]),
                (datasets[1], [study.comparisons_frame() for study in measured]),
            ):
                joined = pl.concat(frames) if frames else pl.DataFrame()
                yield Table(dataset, [joined], lambda: stats, ordered=False, allow_empty=True)

        versions = {stored.name: stored.version}
        # Results are kept one by one, under all that decides them.
        yield Build(datasets, make, version, config, versions, reusable=False)

    return Stage(
        datasets=datasets,
        code_version=version,
        open=experiments,
        after=tuple(f"releases.{name}" for name, d in DOMAINS.items() if not d.choice_sets),
        name="run_experiments",
        preview=False,
    )


def dialogues_stage(
    *,
    suites: Sequence[str] = ("all",),
    customer: str = "statistical",
    seeds: int | None = None,
    episodes: int | None = None,
    models: Sequence[str] = (),
    model_seeds: int = 2,
    model_episodes: int = 3,
) -> Stage:
    """The stage of shopping dialogues on the latest release of products.

    Arguments are those of the command ``understudy dialogue run``.
    """
    config = _plain(locals())
    datasets = tuple(f"dialogue.{table}" for table in ("episodes", "turns", "report"))

    @contextmanager
    def dialogues(inputs: Inputs, settings: Settings, report: Report) -> Iterator[Build]:
        """Play suites of dialogues."""
        store = inputs.context.store
        stored = store.release(f"{release_name(settings, 'products')}@latest")

        def make() -> Iterator[Table]:
            from sim import Release, dialogue
            from sim.dialogue import suites as dialogue_suites

            world = dialogue.DialogueWorld.open(Release(stored))
            context = dialogue_suites.DialogueContext(
                world,
                settings,
                store.home,
                customer=customer,
                seeds=seeds,
                episodes=episodes,
                models=tuple(models),
                model_seeds=model_seeds,
                model_episodes=model_episodes,
            )
            result = dialogue_suites.run_suites(context, dialogue_suites.chosen_suites(suites))
            for name, study in result.results.items():
                report.texts[name] = study.markdown(release=result.release, level=2)
                report.plots.update({f"{name}_{key}": p for key, p in study.pictures.items()})
            report.shown.update(
                flagged=result.flagged, not_played=result.not_played, seconds=result.seconds
            )
            report.checks += [
                CheckRecord(name, passed, "warn", details=details)
                for name, (passed, details) in dialogue_suites.checks(world, result).items()
            ]
            stats = {"release": result.release, "flagged": result.flagged}
            for dataset, frame in zip(
                datasets, (result.episodes, result.turns, result.report), strict=True
            ):
                yield Table(dataset, [frame], lambda: stats, ordered=False)

        identity = {**config, "dialogue": settings.dialogue.model_dump(mode="json")}
        versions = {stored.name: stored.version}
        yield Build(datasets, make, DIALOGUES_VERSION, identity, versions, reusable=False)

    return Stage(
        datasets=datasets,
        code_version=DIALOGUES_VERSION,
        open=dialogues,
        after=("releases.products",),
        name="run_dialogues",
        preview=False,
        checks=(
            Check(_READABLE, "At most 5 % of a row's episodes have no regret.", blocking=False),
            Check("no_leaks", "No customer revealed a product, an id, an index or a score.",
                  blocking=False),
            Check("asking_pays", "In most choice sets, knowing the customer is worth at least 5 "
            "points.",
                  blocking=False),
            Check("oracle_beats_floors", "The oracle's regret is below the baselines', intervals "
            "included.", blocking=False),
        ),
    )  # fmt: skip
