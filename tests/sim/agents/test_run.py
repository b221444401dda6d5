"""Runs in a folder: shards, kills, full disks, two runs at once, and what commands print."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support.disks import small_disk

from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError, LockedError, StoreError
from pipelines.progress import listening
from pipelines.store.locks import RunLock
from pipelines.study import Figure
from sim import Release
from sim.agents import TABLES, AgentWorld, Simulation, open_brain, simulate, visit, visit_study
from sim.agents._figures import visit_values
from sim.recommenders import open_recommender


def digests(folder: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256((folder / f"{name}.parquet").read_bytes()).hexdigest()
        for name in TABLES
    }


def run(world: AgentWorld, folder: Path, **options: object) -> Simulation:
    shown = open_recommender("random").fit(world.release)
    options = {"agents": 70, "seed": 3, **options}
    return simulate(world, open_brain("random").open(world), shown, folder=folder, **options)


def test_bytes_don_t_depend_on_the_size_of_shards(world: AgentWorld, tmp_path: Path) -> None:
    sizes = (1, 16, 4096)
    found = [digests(run(world, tmp_path / str(n), agents=20, shard=n).folder) for n in sizes]
    assert found[0] == found[1] == found[2]
    # No shard is left.
    assert sorted(p.name for p in (tmp_path / "1").iterdir()) == [
        "_locks", "agents.parquet", "memories.parquet", "pages.parquet", "run.json",
        "views.parquet",
    ]  # fmt: skip


@pytest.mark.pipeline
def test_bytes_don_t_depend_on_the_number_of_threads(matched: Release, tmp_path: Path) -> None:
    from threadpoolctl import threadpool_limits

    found = []
    for threads in (1, 4):
        with threadpool_limits(threads):
            world = AgentWorld.open(matched)
            shown = open_recommender("ease").fit(matched)
            brain = open_brain("statistical").open(world)
            folder = tmp_path / str(threads)
            found.append(digests(simulate(world, brain, shown, agents=50, folder=folder).folder))
    assert found[0] == found[1]


def test_stage_and_runs_have_one_version() -> None:
    from sim.agents import CODE_VERSION
    from sim.stages import AGENTS_VERSION

    assert AGENTS_VERSION == CODE_VERSION


def test_agent_alone_is_the_same_among_all(world: AgentWorld) -> None:
    shown = open_recommender("random").fit(world.release)
    brain = open_brain("statistical").open(world)
    whole = visit(world, brain, shown, np.arange(1_000))
    alone = visit(world, brain, shown, [417])
    back = visit(world, brain, shown, np.arange(1_000)[::-1])
    for name in TABLES:
        assert alone[name].equals(whole[name].filter(agent=417)), name
        assert back[name].equals(whole[name]), name
        CONTRACTS[f"simulations.{name}"].validate(whole[name])


def test_finished_run_asks_nothing_again(world: AgentWorld, tmp_path: Path) -> None:
    first = run(world, tmp_path)
    before = digests(tmp_path)

    class Silent:
        name, note, reads = "random", open_brain("random").note, False

        def metadata(self):
            return open_brain("random").open(world).metadata()

    shown = open_recommender("random").fit(world.release)
    again = simulate(world, Silent(), shown, folder=tmp_path, agents=70, seed=3)
    assert again.identity == first.identity
    assert digests(tmp_path) == before


def test_folder_of_another_run_is_refused(world: AgentWorld, tmp_path: Path) -> None:
    run(world, tmp_path / "a")
    with pytest.raises(ConfigError, match=r"another run \(different agents, seed\): .*a"):
        run(world, tmp_path / "a", agents=71, seed=4)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        run(world, tmp_path / "b")


def test_two_runs_at_once_in_one_folder_are_refused(world: AgentWorld, tmp_path: Path) -> None:
    with (
        RunLock(tmp_path / "_locks" / "run.lock"),
        pytest.raises(LockedError, match="another run"),
    ):
        run(world, tmp_path)


@pytest.mark.parametrize(("name", "value"), [("agents", 0), ("shard", 0), ("seed", -1)])
def test_counts_out_of_range_are_named(
    world: AgentWorld, tmp_path: Path, name: str, value: int
) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}: agents"):
        run(world, tmp_path, **{name: value})


_RUN = """
    import sys
    from pathlib import Path
    from sim import open_release
    from sim.agents import AgentWorld, open_brain, simulate
    from sim.agents._baselines import RandomBrain
    from sim.recommenders import open_recommender

    class Counted(RandomBrain):
        waves = 0
        def judge(self, questions):
            print(f"wave {Counted.waves}", flush=True)
            Counted.waves += 1
            return super().judge(questions)

    world = AgentWorld.open(open_release("movies", home=sys.argv[1]))
    shown = open_recommender("random").fit(world.release)
    brain = Counted().open(world)
    simulate(world, brain, shown, folder=Path(sys.argv[2]), agents=120, seed=3, shard=12)
    print("done", flush=True)
"""


@pytest.mark.faults
@pytest.mark.night
def test_kill_at_twenty_waves_loses_nothing(
    matched: Release, world: AgentWorld, tmp_path: Path
) -> None:
    """SIGKILL at a growing number of waves: shards that are stored are never asked for again."""
    script = tmp_path / "play.py"
    script.write_text(textwrap.dedent(_RUN))
    home, folder = matched.path.parents[1], tmp_path / "killed"
    command = [sys.executable, str(script), str(home), str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    kills, stored = 0, 0
    for wave in range(20):
        # Leaving the block closes the pipe and waits.
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        ) as started:
            assert started.stdout is not None
            for line in started.stdout:
                if line.strip() in (f"wave {wave % 7}", "done"):
                    break
            if line.strip() != "done":
                time.sleep(0.002 * (wave % 3))
                started.send_signal(signal.SIGKILL)
        if line.strip() == "done":
            break
        kills += 1
        now = len(list((folder / "shards").glob("*/agents.parquet")))
        assert now >= stored
        stored = now
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    assert kills >= 5
    whole = simulate(
        world, open_brain("random").open(world), open_recommender("random").fit(matched),
        folder=tmp_path / "whole", agents=120, seed=3,
    )  # fmt: skip
    assert digests(folder) == digests(whole.folder)


@pytest.mark.pipeline
@pytest.mark.faults
def test_full_disk_in_a_shard_leaves_the_shards_before(world: AgentWorld, tmp_path: Path) -> None:
    shown = open_recommender("random").fit(world.release)
    brain = open_brain("random").open(world)
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        filler, folder = disk / "filler", disk / "run"

        def fill(_: str, done: int, __: int | None) -> None:
            if done == 40:
                with suppress(OSError), filler.open("wb", buffering=0) as file:
                    while True:
                        file.write(b"x" * 4096)

        with pytest.raises(StoreError, match="no space left"), listening(fill):
            simulate(world, brain, shown, folder=folder, agents=70, seed=3, shard=20)
        done = sorted(p.parent.name for p in (folder / "shards").glob("*/agents.parquet"))
        assert done == ["000000000-000000020", "000000020-000000040"]
        filler.unlink()
        run(world, folder, shard=20)
        run(world, tmp_path / "whole")
        assert digests(folder) == digests(tmp_path / "whole")


def test_figures_of_the_worked_example() -> None:
    """8 shown, 3 watched, rated 5, 4, 2, exit at 2; and 4 shown, none watched, exit at 1."""
    agents = pl.DataFrame(
        {
            "agent": [0, 1, 2],
            "persona_id": ["a", "b", "c"],
            "exit_page": [2, 1, 1],
            "exit_reason": ["chosen", "limit", "failed"],
            "interview": [4, 1, None],
        }
    )
    rating = [5, None, 4, None, None, 2, None, None]
    views = pl.DataFrame(
        {
            "agent": [0] * 8 + [1] * 4 + [2] * 4,
            "page": [1] * 4 + [2] * 4 + [1] * 8,
            "position": list(range(4)) * 4,
            "watched": [r is not None for r in rating] + [False] * 4 + [True] * 4,
            "rating": [*rating, *[None] * 4, *[5] * 4],
        }
    )
    found = visit_values(agents, views.lazy())
    means = found.select("p_view", "n_like", "p_like", "n_exit", "s_sat").mean().row(0)
    assert means == (0.1875, 1.0, 0.125, 1.5, 2.5)


def test_item_that_is_shown_again_counts_once() -> None:
    agents = pl.DataFrame(
        {"agent": [0], "persona_id": ["a"], "exit_page": [1], "exit_reason": ["chosen"],
         "interview": [5]}
    )  # fmt: skip
    views = pl.DataFrame(
        {"agent": [0] * 3, "page": [1] * 3, "position": [0, 1, 1], "watched": [False, False, True],
         "rating": [None, None, 4]}
    )  # fmt: skip
    found = visit_values(agents, views.lazy()).row(0, named=True)
    assert (found["p_view"], found["n_like"]) == (0.5, 1.0)


def test_figures_have_intervals_over_people(world: AgentWorld, tmp_path: Path) -> None:
    study = visit_study([run(world, tmp_path)], world.histogram)
    (row,) = study.rows
    assert (row.n, row.source) == (70, "baseline")
    assert set(study.pictures) == {"exits_by_page", "ratings", "satisfaction_by_recommender"}
    figure = row.figures["p_view"]
    assert isinstance(figure, Figure)
    assert figure.low < figure.value < figure.high


def sim(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("understudy")
    return subprocess.run(
        [str(program), *words, "--home", str(home)], capture_output=True, text=True, check=False
    )


@pytest.mark.pipeline
def test_command_plays_and_shows_a_visit(matched: Release, tmp_path: Path) -> None:
    home = matched.path.parents[1]
    options = ["--release", "movies@latest", "--agents", "40", "--out", str(tmp_path / "run")]
    played = sim("agents", "run", "--brain", "random", *options, "--json", home=home)
    assert played.returncode == 0, played.stderr
    found = json.loads(played.stdout)
    assert (found["agents"], found["failed"], found["brain"]) == (40, 0, "random")
    assert set(found) >= {"p_view", "n_like", "p_like", "n_exit", "s_sat", "folder", "note"}
    shown = sim("agents", "show", "17", "--out", str(tmp_path / "run"), home=home)
    assert shown.returncode == 0, shown.stderr
    assert "Agent 17: persona:matched:" in shown.stdout
    assert "View 1, page 1" in shown.stdout
    visit = json.loads(
        sim("agents", "show", "17", "--out", str(tmp_path / "run"), "--json", home=home).stdout
    )
    people, items = matched["personas"].polars(), matched["items"].polars()
    [persona] = people.filter(pl.col("persona_id") == visit["agent"]["persona_id"]).to_dicts()
    text = " ".join(shown.stdout.split())
    assert " ".join(persona["description"].split()) in text
    assert f"likes {', '.join(persona['likes'])}" in text
    [item] = items.filter(pl.col("item_id") == visit["views"][0]["item_id"]).to_dicts()
    assert f"{item['title']} ({item['year']}) · {', '.join(item['genres'])}:" in text
    refused = sim("agents", "run", "--brain", "random", "--brain-option", "rating=scale", home=home)
    assert refused.returncode == 2
    assert "rating" in refused.stderr
    missing = sim("agents", "show", "40", "--out", str(tmp_path / "run"), home=home)
    assert missing.returncode == 2
    assert "no agent 40" in missing.stderr
    assert "numbers from 0 to 39" in " ".join(missing.stderr.split())


def test_minari_dataset_has_slates_and_likes(matched: Release, tmp_path: Path) -> None:
    minari = pytest.importorskip("minari")
    world = AgentWorld.open(matched)
    simulation = run(world, tmp_path / "run", agents=12)
    from sim.agents import write_visits

    folder = write_visits(simulation, world, tmp_path / "minari")
    dataset = minari.MinariDataset(folder / "data")
    agents = simulation.table("agents").collect()
    views = simulation.table("views").collect()
    assert dataset.total_episodes == 12
    for number, episode in enumerate(dataset.iterate_episodes()):
        mine = views.filter(agent=number)
        assert episode.rewards.sum() == mine.filter(pl.col("rating") > 3).height
        first = mine.filter(view=1).sort("position")["item_id"].to_list()
        ids = [world.catalogue.ids[n] for n in episode.actions[0] if n < len(world.catalogue)]
        assert ids == first
        ended = agents["exit_reason"][number] == "chosen"
        assert bool(episode.terminations[-1]) == ended
        assert bool(episode.truncations[-1]) == (not ended)
