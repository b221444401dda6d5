"""Soak test: kill runs at named steps and random moments, run again, verify.

python benchmarks/soak/soak.py [--minutes 30] [--seed N] [--job JOB] [--every-step]

A cycle starts from a fresh home, kills every process of a run within a named step, runs the same
command again and verifies what it published. Every fourth cycle kills the installed program with
parallel work at random moments of a home that lives as long as the soak. Raters ask a small
language model over HTTP, so that stored answers are part of what can be lost.

Exit code 1 if a fault was found; homes of faulty cycles are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests"), str(REPOSITORY / "benchmarks")]

import harness  # noqa: E402
from support.fork_server import ForkServer  # noqa: E402
from support.llm_server import LlmServer  # noqa: E402
from support.step_graph import steps_of_job  # noqa: E402
from support.steps import StartedRun, start_run  # noqa: E402
from support.tiny_models import tiny_checkpoint  # noqa: E402

from pipelines.config import ServingSettings  # noqa: E402
from pipelines.domains import DOMAINS  # noqa: E402
from pipelines.errors import UnderstudyError  # noqa: E402
from pipelines.llm.answers import AnswerStore  # noqa: E402
from pipelines.store import Store  # noqa: E402

README = Path(__file__).with_name("README.md")
FIGURES = Path(__file__).with_name("figures.json")
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
#: Longest time for one run (seconds); a run that takes longer hangs.
LIMIT = 900.0
SETTINGS = (
    *("personas.count=6", "world.sample.films=20", "world.sample.users=20"),
    *("world.sample.ratings=300", "scoring.max_pairs=30", "scoring.judged=10"),
    *("scoring.scale=1-5", "scoring.rater=llm", "scoring.explain=false", "engine.kind=openai"),
)


class Soak:
    """Kills, reruns and what was found."""

    def __init__(self, folder: Path, seed: int, server: ForkServer, model: LlmServer) -> None:
        self.folder, self.server = folder, server
        self.chance = random.Random(seed)
        words = (*SETTINGS, f"engine.model={model.name}", f"serving.base_url={model.url}")
        self.options = [part for word in words for part in ("--set", word)]
        self.kills: Counter[str] = Counter()
        self.published: Counter[str] = Counter()
        self.faults: list[str] = []
        self.random_kills = self.random_published = 0
        self.answers = 0

    def named(self, number: int, job: str, step: str) -> None:
        """Run a cycle: a fresh home, a kill within a step, a plain rerun."""
        home = self.folder / f"{number:03d}-{step}" / "home"
        home.parent.mkdir()
        run = self._start(home, job)
        try:
            run.wait_for_step(step)
            # dbt runs once, in the first of its steps.
            if step == next((s for s in steps_of_job(job) if s.startswith("dbt_")), None):
                run.wait_for_child("dbt")
                time.sleep(self.chance.uniform(0, 5))
            else:
                time.sleep(self.chance.uniform(0, 0.3))
        finally:
            run.kill()
        self.kills[step] += 1
        found = self._rerun(home, self._start(home, job), [job])
        self.published[step] += not found
        self._report(f"{job}: killed in {step}", found)

    def at_random(self, number: int, home: Path, understudy: Path, seconds: float) -> None:
        """Kill the program with parallel work, at any moment; every third time a rerun."""
        words = [*self.options, "--set", "runtime.executor=multiprocess"]
        # Settings change between cycles so that each run has steps to build.
        words += ["--set", f"personas.seed={number // 12}"]
        home.parent.mkdir(exist_ok=True)
        for _ in range(3):
            run = start_run(understudy, home, *words)
            time.sleep(self.chance.uniform(0, seconds))
            run.kill()
            self.random_kills += 1
        found = self._rerun(home, start_run(understudy, home, *words), list(DOMAINS))
        self.random_published += not found
        self._report("everything: killed at random", found)

    def _start(self, home: Path, job: str) -> StartedRun:
        log = home.with_suffix(".log")
        words = ["run", "--home", str(home), "--job", job, *self.options]
        return StartedRun(self.server.start(words, log), home, log)

    def _rerun(self, home: Path, run: StartedRun, names: list[str]) -> list[str]:
        """End a run; what is wrong with the home afterwards."""
        before = _answers(home)
        deadline = time.monotonic() + LIMIT
        while run.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        code = run.process.poll()
        if code is None:
            run.kill()
            return [f"the rerun hangs: {run.output()[-300:]}"]
        if code:
            return [f"the rerun ended with {code}: {run.output()[-300:]}"]
        found = []
        store = Store(home)
        for name in names:
            try:
                found += store.verify(f"{name}@latest", lineage=True).problems
            except UnderstudyError as error:
                found.append(str(error))
            scores = store.current(f"{name}.preference_scores").read()
            unscored = scores.filter(scores["status"] != "ok").height
            found += [f"{unscored} pairs of {name} without a score"] * bool(unscored)
        found += [f"left in staging: {p.name}" for p in (home / "_staging").iterdir()]
        after = _answers(home)
        found += [f"answers: {before} before, {after} after"] * (after < before)
        self.answers += after - before
        return found

    def _report(self, what: str, found: list[str]) -> None:
        print(f"{datetime.now(UTC):%H:%M:%S} {what}: {'; '.join(found) or 'published'}", flush=True)
        self.faults += [f"{what}: {problem}" for problem in found]


def _answers(home: Path) -> int:
    if not (home / "answers").exists():
        return 0
    with AnswerStore(home, ServingSettings()) as store:
        return store.stats().answers


def _order(jobs: list[str], chance: random.Random) -> Iterator[tuple[str, str]]:
    """Every step of every job once per round, dbt first, the others in random order."""
    while True:
        pairs: dict[str, str] = {}
        for job in jobs:
            for step in steps_of_job(job):
                pairs.setdefault(step, job)
        shuffled = list(pairs.items())
        chance.shuffle(shuffled)
        shuffled.sort(key=lambda pair: not pair[0].startswith("dbt_"))
        yield from ((job, step) for step, job in shuffled)


def main() -> int:
    """Run the soak; exit code 1 if a fault was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=datetime.now(UTC).toordinal())
    parser.add_argument("--job", choices=list(DOMAINS), help="only this domain")
    parser.add_argument("--every-step", action="store_true", help="until each step was killed once")
    given = parser.parse_args()
    jobs = [given.job] if given.job else list(DOMAINS)
    steps = {step for job in jobs for step in steps_of_job(job)}
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="understudy-soak-"))
    # The longest persona and film fill its usual context.
    tiny_checkpoint(folder / "model", shape={"max_position_embeddings": 4096})
    understudy = Path(sys.executable).with_name("understudy")
    with ForkServer() as server, LlmServer(folder / "model", "vllm") as model:
        soak = Soak(folder, given.seed, server, model)
        order = _order(jobs, soak.chance)
        for number in count(1):
            minutes = (time.monotonic() - began) / 60
            done = steps <= set(soak.kills) if given.every_step else minutes >= given.minutes
            if done:
                break
            try:
                if number % 4 == 0 and not given.job:
                    soak.at_random(number, folder / "random" / "home", understudy, 90)
                else:
                    job, step = next(order)
                    known = len(soak.faults)
                    soak.named(number, job, step)
                    if len(soak.faults) == known:
                        shutil.rmtree(folder / f"{number:03d}-{step}")
            except AssertionError as error:
                soak.faults.append(f"cycle {number}: {error}")
                print(soak.faults[-1], flush=True)
    figures = _figures(soak, given, steps, (time.monotonic() - began) / 60)
    FIGURES.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    text = _table(figures)
    page = README.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    README.write_text(f"{head}{BEGIN}\n{text}{END}{rest.partition(END)[2]}", encoding="utf-8")
    print(text)
    if soak.faults:
        print(f"homes of faulty cycles: {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def _figures(
    soak: Soak, given: argparse.Namespace, steps: set[str], minutes: float
) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": harness.machine(),
        "load": round(os.getloadavg()[2], 1),
        "minutes": round(minutes, 1),
        "seed": given.seed,
        "settings": list(SETTINGS),
        "steps": len(steps),
        "kills": dict(sorted(soak.kills.items())),
        "published": sum(soak.published.values()),
        "random_kills": soak.random_kills,
        "random_published": soak.random_published,
        "answers": soak.answers,
        "faults": soak.faults,
    }


def _table(f: dict[str, Any]) -> str:
    kills = sum(f["kills"].values())
    rows = [
        ("length", f"{f['minutes']} minutes, ended {f['at']}, seed {f['seed']}"),
        ("machine", f"{f['machine']}; load average of 15 minutes {f['load']}"),
        ("kills at named steps", f"{kills}, in {len(f['kills'])} of {f['steps']} steps"),
        ("reruns after them that published", f["published"]),
        ("kills at random moments, two workers", f["random_kills"]),
        ("reruns after three of them that published", f["random_published"]),
        ("answers asked for by reruns", f["answers"]),
        ("faults", len(f["faults"])),
    ]
    lines = ["\n| figure | value |\n|---|---|\n"]
    lines += [f"| {name} | {value} |\n" for name, value in rows]
    lines.append("\nSteps: " + ", ".join(f"`{s}` {n}" for s, n in f["kills"].items()) + ".\n")
    lines += [f"\n- {fault}\n" for fault in f["faults"]]
    lines.append("\nSettings: " + " ".join(f"`{s}`" for s in f["settings"]) + "\n\n")
    return "".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
