"""Draw the pictures of README and of the pages: of the packaged releases, and of tables of pages.

python docs/pictures.py [--check] [PICTURE ...]
"""

from __future__ import annotations

import html
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.config import Settings
from pipelines.figures import BLUE, ORANGE
from pipelines.packaged import SAMPLE_HOME
from sim import open_release as sim_release
from sim.agents import AgentWorld, open_brain, visit
from sim.dialogue import DialogueWorld, Lifetimes, open_agent, play
from sim.dialogue.suites import configured_customer
from sim.environment import World
from understudy import open_recommender, open_release

DOCS = Path(__file__).resolve().parent
#: Agent that is drawn, and agents of the visit that it is one of.
AGENT, AGENTS = 39, 40
#: Sizes in pixels: a card, the gap between two, the head, and the column of decisions.
WIDTH, HEIGHT, GAP, HEAD, DECISION = 190, 104, 10, 74, 220
FONT = "font-family='Helvetica,Arial,sans-serif'"


def visit_of_agent() -> str:
    """A visit: a row of cards per page, and what the user felt and did."""
    release = open_release("movies", home=SAMPLE_HOME)
    world = AgentWorld.open(release, cast="personas", per_page=4, pages=4)
    brain = open_brain("statistical").open(world)
    shown = open_recommender("popular").fit(release)
    tables = visit(world, brain, shown, np.arange(AGENTS))
    views, pages, agents = (
        tables[name].filter(pl.col("agent") == AGENT) for name in ("views", "pages", "agents")
    )
    items = {row["item_id"]: row for row in release["items"].polars().iter_rows(named=True)}
    genres = sorted({genre for row in items.values() for genre in row["genres"]})
    agent = agents.row(0, named=True)
    person = world.release["personas"].polars().filter(pl.col("persona_id") == agent["persona_id"])
    who = person.row(0, named=True)
    out = [
        _text(20, 30, f"{who['name']}, {who['age']}, {who['job']}", size=20, weight="bold"),
        _text(20, 54, f"likes {', '.join(who['likes'])}", colour="#1a7f37"),
    ]
    if who["dislikes"]:
        out.append(_text(430, 54, f"dislikes {', '.join(who['dislikes'])}", colour="#b42318"))
    top = HEAD
    for page in pages.iter_rows(named=True):
        for view in views.filter(pl.col("view") == page["view"]).iter_rows(named=True):
            left = 20 + view["position"] * (WIDTH + GAP)
            out += _card(left, top, view, items[view["item_id"]], genres)
        left = 20 + 4 * (WIDTH + GAP) + 6
        felt = ", ".join(str(page[name]).lower() for name in ("mood", "fatigue", "emotion"))
        out.append(_text(left, top + 22, f"Page {page['page']}", weight="bold"))
        lines = [*textwrap.wrap(felt, 32), *textwrap.wrap(f"“{page['reason']}”", 32)]
        out += [_text(left, top + 42 + 16 * n, line, size=12) for n, line in enumerate(lines[:4])]
        top += HEIGHT + GAP
    end = f"Left on page {agent['exit_page']}; interview: {agent['interview']} of 10. "
    note = "Statistical, no language model; moods and exits are assumed. "
    out.append(_text(20, top + 18, f"{end}{note}Release {release.ref}.", size=12))
    return _svg(20 + 4 * (WIDTH + GAP) + DECISION, top + 34, out)


def personas() -> str:
    """Three personas: who they are, what they like, and how they begin to describe themselves."""
    rows = open_release("movies", home=SAMPLE_HOME)["personas"].polars().sort("persona_id")
    out = []
    for number, who in enumerate(rows.gather([2, 7, 12]).iter_rows(named=True)):
        left = 16 + number * 300
        out += [
            _bar(left, 12, 286, 226, "#f7f5f0"),
            _text(left + 14, 38, f"{who['name']}, {who['age']}", size=17, weight="bold"),
            _text(
                left + 14,
                58,
                textwrap.shorten(f"{who['job']}; {who['hobby']}", 40, placeholder=" …"),
                colour="#555",
            ),
        ]
        tastes = [("likes", "#1a7f37"), ("dislikes", "#b42318")]
        lines = [
            (line, colour)
            for key, colour in tastes
            for line in textwrap.wrap(f"{key} {', '.join(who[key]) or 'nothing'}", 38)
        ]
        lines += [(line, "#222") for line in textwrap.wrap(who["description"], 40)]
        out += [
            _text(left + 14, 84 + 18 * n, line, size=12.5, colour=colour)
            for n, (line, colour) in enumerate(lines[:8])
        ]
        manner = f"{who['leniency']}, {who['manner']} scale, {who['activity']} activity"
        out.append(_text(left + 14, 228, manner, size=11, colour="#777"))
    return _svg(916, 250, out)


def rating() -> str:
    """A rating of a persona: its distribution, and what moves the expected one."""
    release = open_release("movies", home=SAMPLE_HOME)
    world = World.open(release, rater="statistical")
    name = "persona:default:0000002"
    scores = release["preference_scores"].polars().filter(pl.col("persona_id") == name)
    score = scores.sort((pl.col("expected") - 8).abs(), "item_id").row(0, named=True)
    item = world.catalogue.row(score["item_id"])
    effects = world.rater.explain(world.cast.index(name), item, np.zeros(0, np.int64), np.zeros(0))
    titles = dict(release["items"].polars(["item_id", "title"]).rows())
    who = release["personas"].polars().filter(pl.col("persona_id") == name).row(0, named=True)
    head = f"{who['name']} would rate {titles[score['item_id']]} {score['expected']:.1f}"
    out = [_text(20, 30, head, size=17, weight="bold")]
    for answer, p in enumerate(score["probabilities"], 1):
        left, high = 20 + 36 * (answer - 1), round(250 * p)
        out += [
            _bar(left, 190 - high, 30, high, BLUE),
            _text(left + 8, 208, str(answer)),
            _text(left, 184 - high, f"{100 * p:.0f} %" if p >= 0.005 else "", size=10.5),
        ]
    out.append(_text(20, 232, "probability of each answer", colour="#555", size=12))
    shown = [(k, v) for k, v in sorted(effects.items(), key=lambda e: -abs(e[1])) if abs(v) > 0.05]
    for n, (effect, value) in enumerate(shown):
        top, width = 62 + 26 * n, round(90 * abs(value))
        colour, start = (BLUE, 640) if value > 0 else (ORANGE, 640 - width)
        out += [
            _bar(start, top, width, 18, colour),
            _text(420, top + 14, effect),
            _text(start + width + 6, top + 14, f"{value:+.1f}", size=12),
        ]
    out.append(
        _text(420, 232, "points by which each moves the expected rating", colour="#555", size=12)
    )
    return _svg(860, 250, out)


def shelf() -> str:
    """A choice set: products of a category, as two customers score them."""
    world = DialogueWorld.open(sim_release("products", home=SAMPLE_HOME))
    chosen = next(s for s in world.sets if np.isfinite(s.y).all())
    spread = np.corrcoef(chosen.y)
    first, second = np.unravel_index(int(np.argmin(spread)), spread.shape)
    order = np.argsort(-chosen.y[first], kind="stable")[:8]
    out = [
        _text(20, 30, f"{chosen.name}, as two customers score it", size=17, weight="bold"),
        _text(470, 54, "one customer", colour=BLUE),
        _text(670, 54, "another", colour="#8a5a00"),
    ]
    for n, item in enumerate(order.tolist()):
        top = 64 + 28 * n
        out.append(_text(20, top + 15, textwrap.shorten(chosen.titles[item], 58, placeholder=" …")))
        for person, left, colour in ((first, 470, BLUE), (second, 670, ORANGE)):
            score = float(chosen.y[person, item])
            out += [
                _bar(left, top, round(1.5 * score), 20, colour),
                _text(left + round(1.5 * score) + 6, top + 15, f"{score:.0f}", size=12),
            ]
    return _svg(860, 300, out)


def dialogue() -> str:
    """A dialogue: questions, answers, and the regret after each question."""
    world = DialogueWorld.open(sim_release("products", home=SAMPLE_HOME))
    settings = Settings()
    lifetimes = Lifetimes.draw(world, range(6), episodes=1, min_best=settings.dialogue.min_best)
    played = play(
        world, lifetimes, open_agent("linear", settings=settings),
        configured_customer("statistical", settings), max_questions=6, probes=(1,),
    )  # fmt: skip
    ends = played.episodes.filter(pl.col("status") == "ok").sort(
        "questions", "seed", descending=[True, False]
    )
    end = ends.row(0, named=True)
    keys = ("run", "seed", "episode")
    turns = played.turns.filter(*(pl.col(key) == end[key] for key in keys)).sort("turn", "role")
    shelf = next(s for s in world.sets if s.category_id == end["category_id"])
    title = f"{shelf.name}: what an agent asks, and what not knowing would cost"
    out, top = [_text(20, 30, title, size=17, weight="bold")], 50
    for turn in turns.iter_rows(named=True):
        if turn["kind"] in ("ask", "recommend") and turn["regret"] is not None:
            width = round(4 * turn["regret"])
            out += [
                _bar(600, top + 6, max(width, 2), 16, ORANGE),
                _text(606 + width, top + 19, f"regret {turn['regret']:.0f}", size=12),
            ]
        text = turn["text"]
        if turn["kind"] == "recommend":
            sold = shelf.titles[shelf.item_ids.index(turn["item_id"])]
            text = f"I would take {textwrap.shorten(sold, 44, placeholder=' …')}"
        if not text:
            continue
        left, fill = (20, "#e8f0f7") if turn["role"] == "agent" else (150, "#f7f0e0")
        out += [
            f"<rect x='{left}' y='{top}' width='430' height='28' rx='12' fill='{fill}'/>",
            _text(left + 14, top + 19, textwrap.shorten(text, 60, placeholder=" …")),
        ]
        top += 36
    return _svg(860, top + 10, out)


def boards() -> str:
    """Recommenders of the leaderboard's first world: by people, and by personas."""
    rows = _table("leaderboard.md", "recommender")
    out = [
        _text(20, 30, "What people choose, and what personas rate well", size=17, weight="bold"),
        _text(170, 54, "NDCG@20 of people's held-out items", colour=BLUE),
        _text(520, 54, "reward, random 0 to oracle 1", colour="#8a5a00"),
    ]
    for n, cells in enumerate(rows):
        top = 64 + 24 * n
        out.append(_text(20, top + 14, cells[0]))
        for cell, left, colour in ((cells[1], 170, BLUE), (cells[2], 520, ORANGE)):
            if figure := re.match(r"-?\d\.\d+", cell):
                value = float(figure[0])
                width = max(round(260 * value), 1)
                out += [
                    _bar(left, top, width, 17, colour),
                    _text(left + width + 6, top + 14, f"{value:.2f}", size=12),
                ]
    return _svg(860, 74 + 24 * len(rows), out)


def verdicts() -> str:
    """Claims of the papers by verdict."""
    cells = [
        row[-1]
        for row in _table("reproduction.md", "experiment") + _table("reproduction.md", "claim")
    ]
    kinds = ("Supported", "Not supported", "Contradicted", "Not found", "Not tested")
    count = {kind: sum(cell.lower().startswith(kind.lower()) for cell in cells) for kind in kinds}
    count["Other"] = len(cells) - sum(count.values())
    colours = ("#1a7f37", ORANGE, "#b42318", ORANGE, "#999", BLUE)
    out = [_text(20, 30, f"{len(cells)} claims of four papers", size=17, weight="bold")]
    for n, ((kind, number), colour) in enumerate(zip(count.items(), colours, strict=True)):
        top = 48 + 26 * n
        out += [
            _text(20, top + 14, kind),
            _bar(140, top, 36 * number, 18, colour),
            _text(146 + 36 * number, top + 14, str(number)),
        ]
    return _svg(760, 60 + 26 * len(count), out)


def policies() -> str:
    """Average reward of recommenders and a trained policy, as the page's table has them."""
    rows = [(row[0], float(row[1].split()[0])) for row in _table("training.md", "recommender")]
    out = [_text(20, 30, "Average reward per step, 1 to 10", size=17, weight="bold")]
    for n, (name, value) in enumerate(rows):
        top, width = 48 + 26 * n, round(60 * value)
        colour = ORANGE if name == "a2c" else BLUE
        out += [
            _text(20, top + 14, name),
            _bar(160, top, width, 18, colour),
            _text(166 + width, top + 14, f"{value:.2f}"),
        ]
    return _svg(860, 60 + 26 * len(rows), out)


def components() -> str:
    """Scores of raters, ways to choose past items and kinds of noise, as the page has them."""
    rows = [row for row in _table("ablations.md", "rater") if len(row) == 8]
    out = [
        _text(20, 30, "Score by rater, choice of past items, noise", size=17, weight="bold"),
        _text(260, 54, "collections", colour=BLUE),
        _text(560, 54, "all four tests", colour="#8a5a00"),
    ]
    for n, row in enumerate(rows):
        top = 64 + 24 * n
        out.append(_text(20, top + 14, ", ".join(w.strip("*") for w in row[:3] if w != "-")))
        for cell, left, colour in ((row[5], 260, BLUE), (row[7], 560, ORANGE)):
            value = float(cell.replace("*", "").split()[0])
            out += [
                _bar(left, top, round(240 * value), 17, colour),
                _text(left + round(240 * value) + 6, top + 14, f"{value:.2f}", size=12),
            ]
    return _svg(860, 74 + 24 * len(rows), out)


def _table(page: str, head: str) -> list[list[str]]:
    """Rows of the tables of a page whose first column is named so."""
    rows, inside = [], False
    for line in (DOCS / page).read_text("utf-8").splitlines():
        cells = (
            [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        )
        if not cells or cells[0] == head:
            inside = bool(cells)
        elif inside and not cells[0].startswith("---"):
            rows.append(cells)
    return rows


def _bar(left: int, top: int, width: int, height: int, fill: str) -> str:
    place = f"x='{left}' y='{top}' width='{max(width, 1)}' height='{height}'"
    return f"<rect {place} fill='{fill}'/>"


def _svg(width: int, height: int, parts: list[str]) -> str:
    size = f"width='{width}' height='{height}' viewBox='0 0 {width} {height}'"
    body = "\n".join(parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size}>\n"
        f"<rect width='100%' height='100%' fill='white'/>\n{body}\n</svg>\n"
    )


def _card(left: int, top: int, view: dict, item: dict, genres: list[str]) -> list[str]:
    """An item: its title on the colour of its first genre, and what the user made of it."""
    hue = 360 * genres.index(item["genres"][0]) // len(genres)
    fill = f"hsl({hue},45%,{88 if view['watched'] else 96}%)"
    title = textwrap.wrap(f"{item['title']} ({item['year']})", 21)[:2]
    stars = "★" * int(view["rating"] or 0)
    said = view["feeling"] or view["reason"]
    lines = textwrap.wrap(f"“{said}”", 32, max_lines=2, placeholder=" …”")
    return [
        f"<rect x='{left}' y='{top}' width='{WIDTH}' height='{HEIGHT}' rx='6' fill='{fill}' "
        f"stroke='hsl({hue},45%,60%)'/>",
        *(_text(left + 8, top + 18 + 16 * n, t, weight="bold") for n, t in enumerate(title)),
        _text(left + 8, top + 52, ", ".join(item["genres"][:3]), size=11, colour="#555"),
        _text(left + 8, top + 70, stars or "skipped", colour="#8a5a00" if stars else "#777"),
        *(_text(left + 8, top + 85 + 13 * n, t, size=10.5) for n, t in enumerate(lines)),
    ]


def _text(
    x: int, y: int, text: str, *, size: float = 13, colour: str = "#222", weight: str = "normal"
) -> str:
    style = f"{FONT} font-size='{size}' font-weight='{weight}' fill='{colour}'"
    return f"<text x='{x}' y='{y}' {style}>{html.escape(text)}</text>"


#: Makers of the pictures by file name.
PICTURES = {
    "visit": visit_of_agent,
    "personas": personas,
    "rating": rating,
    "shelf": shelf,
    "dialogue": dialogue,
    "leaderboard": boards,
    "verdicts": verdicts,
    "policies": policies,
    "components": components,
}


if __name__ == "__main__":
    check = "--check" in sys.argv
    for name in [word for word in sys.argv[1:] if word != "--check"] or PICTURES:
        file, drawn = DOCS / f"images/{name}.svg", PICTURES[name]()
        if not check:
            file.write_text(drawn, encoding="utf-8")
        elif file.read_text("utf-8") != drawn:
            sys.exit(f"{name} looks otherwise: run `python docs/pictures.py {name}`")
