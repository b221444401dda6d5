r"""Do agents do as their people do? Brains side by side on people's held-out ratings.

    python benchmarks/agents/people.py --home HOME --people 50 --pages 3 --split validation
    python benchmarks/agents/people.py --home HOME --people 50 --pages 3 --split test \\
        --brain model --engine transformers --model FOLDER --dtype bfloat16

Per person up to `--items` held-out ratings and as many unseen items of about the same number of
training ratings. Figures, with 95 % intervals of 2,000 resamples of people:

- AUC: P(watch) of the held-out items against the others, within people (chance: 0.5);
- r and RMSE: expected and the person's ratings of the held-out items (1-5), pooled;
- r within: the same after each person's means are taken away;
- visits to `popular`: the share watched, the page of the end and the interview; Spearman's rho of
  the page of the end with the tier of activity and with the share of likes, and of the mood with
  the share of likes;
- texts that contradict rating, item or persona, texts that are missing, and the share of the most
  frequent one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import rankdata

from pipelines.cli._terminal import progress_bar
from pipelines.config import load_settings
from sim import open_release
from sim.agents import (
    AgentWorld,
    classify_items,
    judge_pairs,
    match_people,
    open_brain,
    remark_report,
    simulate,
    visit_values,
)
from sim.agents._choice import HeldOut
from sim.environment import split_rows
from sim.recommenders import open_recommender

TIERS = {"low": 0, "medium": 1, "high": 2}


def held_out(world: AgentWorld, split: str, people: int, items: int) -> tuple[HeldOut, Any]:
    """Held-out items and matched others of the first people, and the ratings on 1-5."""
    from pipelines.raters import rescale, scale_named, source_scale

    users = world.people["user_id"].to_list()[:people]
    numbers = pl.DataFrame({"user_id": users}).with_row_index("person")
    catalogue = pl.DataFrame({"item_id": world.catalogue.ids}).with_row_index("item")
    rows = split_rows(world.release, (split,)).join(numbers, on="user_id")
    rows = rows.join(catalogue, on="item_id").sort("person", "item")
    # Items in an order that nothing predicts, the first of each person.
    rows = rows.sample(fraction=1.0, shuffle=True, seed=0).group_by("person").head(items)
    rows = rows.sort("person", "item")
    person, item = (rows[name].cast(pl.Int64).to_numpy() for name in ("person", "item"))
    draw = HeldOut.draw(world, person, item, world.history)
    scale = source_scale(world.release["interactions"].lazy())
    stars = rescale(rows["rating"].to_numpy(), scale, scale_named("1-5"))
    truth = dict(zip(zip(person.tolist(), item.tolist(), strict=True), stars, strict=True))
    return draw, truth


def resampled(people: Any, figure: Any, draws: int = 2_000) -> list[float]:
    """A figure of rows, with its interval over resamples of their people."""
    distinct = np.unique(people)
    rows = {person: np.flatnonzero(people == person) for person in distinct.tolist()}
    random = np.random.default_rng(0)
    found = []
    for _ in range(draws):
        chosen = random.choice(distinct, len(distinct))
        found.append(figure(np.concatenate([rows[person] for person in chosen.tolist()])))
    low, high = np.nanquantile(found, (0.025, 0.975))
    return [round(float(v), 3) for v in (figure(np.arange(len(people))), low, high)]


def correlation(left: Any, right: Any) -> Any:
    def figure(rows: Any) -> float:
        a, b = left[rows], right[rows]
        return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else float("nan")

    return figure


def ranks(left: Any, right: Any) -> Any:
    def figure(rows: Any) -> float:
        return float(correlation(rankdata(left[rows]), rankdata(right[rows]))(np.arange(len(rows))))

    return figure


def of_people(world: AgentWorld, brain: Any, draw: HeldOut, truth: Any) -> dict[str, Any]:
    """Figures on held-out items."""
    people, own = np.unique(draw.people, return_inverse=True)
    width = int(np.bincount(own).max())
    items = np.full((len(people), 2 * width), -1)
    for row in range(len(people)):
        mine = np.flatnonzero(own == row)
        both = np.concatenate([draw.items[mine], draw.matched[mine]])
        items[row, : len(both)] = both
    chances = classify_items(world, brain, people, items).probabilities
    right = np.full(len(people), np.nan)
    for row in range(len(people)):
        known = chances[row][items[row] >= 0]
        half = len(known) // 2
        pairs = known[:half, None] - known[None, half:]
        right[row] = ((pairs > 0) + 0.5 * (pairs == 0)).mean()
    usable = ~np.isnan(right)
    out: dict[str, Any] = {"people": int(usable.sum()), "pairs": len(draw.people)}
    out["auc"] = resampled(people[usable], lambda rows: float(right[usable][rows].mean()))
    found = judge_pairs(world, brain, draw.people, draw.items, experienced=True).frame
    stars = np.array([
        truth[pair] for pair in zip(draw.people.tolist(), draw.items.tolist(), strict=True)
    ])  # fmt: skip
    expected = found["expected"].fill_null(found["rating"]).to_numpy().astype(np.float64)
    given = ~np.isnan(expected)
    who, expected, stars = draw.people[given], expected[given], stars[given]
    out["r"] = resampled(who, correlation(expected, stars))
    out["rmse"] = resampled(
        who, lambda rows: float(np.sqrt(np.mean((expected[rows] - stars[rows]) ** 2)))
    )
    centred = [values - _mean_of(values, who) for values in (expected, stars)]
    out["r_within"] = resampled(who, correlation(*centred))
    return out


def _mean_of(values: Any, people: Any) -> Any:
    _, place = np.unique(people, return_inverse=True)
    return (np.bincount(place, values) / np.bincount(place))[place]


def of_visits(world: AgentWorld, run: Any) -> dict[str, Any]:
    """Figures of visits."""
    agents, views = run.table("agents").collect(), run.table("views").collect()
    values = visit_values(agents, run.table("views"))
    who = values["agent"].to_numpy()
    out: dict[str, Any] = {"agents": agents.height, "failed": agents.height - values.height}
    for name in ("p_view", "p_like", "n_exit", "s_sat"):
        column = values[name].to_numpy().astype(np.float64)
        out[name] = resampled(who, lambda rows, column=column: float(column[rows].mean()))
    people = values.join(world.people.select("persona_id", "activity"), on="persona_id")
    tier = people["activity"].replace_strict(TIERS, return_dtype=pl.Float64).to_numpy()
    exits, likes = (values[n].to_numpy().astype(np.float64) for n in ("n_exit", "p_like"))
    out["exit_by_activity"] = resampled(who, ranks(exits, tier))
    out["exit_by_likes"] = resampled(who, ranks(exits, likes))
    moods = run.table("pages").group_by("agent").agg(mood=(pl.col("mood") == "positive").mean())
    mood = values.join(moods.collect(), on="agent", maintain_order="left")["mood"].to_numpy()
    out["mood_by_likes"] = resampled(who, ranks(mood, likes))
    out["texts"] = remark_report(run, world).as_json()
    missing = views.select((pl.col("reason").is_null() & pl.col("feeling").is_null()).mean())
    out["without_text"] = round(float(missing.item()), 4)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("--release", default="movies@latest")
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--pages", type=int, default=3)
    parser.add_argument("--items", type=int, default=4)
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--recommender", default="popular")
    parser.add_argument("--brain", action="append", default=[])
    parser.add_argument("--rating", default="like", help="of the brain `model`: like or scale")
    parser.add_argument("--engine", default="transformers")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--answers", help="home of the answers (default: HOME)")
    args = parser.parse_args()

    release, _ = match_people(open_release(args.release, home=args.home))
    world = AgentWorld.open(release, pages=args.pages)
    draw, truth = held_out(world, args.split, args.people, args.items)
    shown = open_recommender(args.recommender).fit(release)
    settings = load_settings(
        overrides={
            "runtime": {"home": args.answers or args.home},
            "engine": {"kind": args.engine, "model": args.model, "dtype": args.dtype},
        }
    )
    print(f"{release.ref}, split {args.split}", flush=True)
    for name in args.brain or ["random", "statistical"]:
        options = {"rating": args.rating} if name == "model" else {}
        brain = open_brain(name, settings=settings, **options).open(world)
        wall, cpu = time.perf_counter(), time.process_time()
        with tempfile.TemporaryDirectory() as scratch, progress_bar(name, lines=True):
            run = simulate(world, brain, shown, agents=args.people, folder=Path(scratch) / "run")
            played = time.perf_counter() - wall, time.process_time() - cpu
            found = of_visits(world, run) | of_people(world, brain, draw, truth)
        print(f"\n{name}: {played[0]:.0f} s, {played[1]:.0f} s of CPU for the visits")
        for figure, value in found.items():
            print(f"  {figure}: {value}", flush=True)


if __name__ == "__main__":
    main()
