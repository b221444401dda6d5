"""Draw the visit on README's front page: one simulated user of the packaged release.

python docs/visit.py [--check]
"""

from __future__ import annotations

import html
import sys
import textwrap
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.packaged import SAMPLE_HOME
from sim.agents import AgentWorld, open_brain, visit
from understudy import open_recommender, open_release

PICTURE = Path(__file__).resolve().parent / "images/visit.svg"
#: Agent that is drawn, and agents of the visit that it is one of.
AGENT, AGENTS = 39, 40
#: Sizes in pixels: a card, the gap between two, the head, and the column of decisions.
WIDTH, HEIGHT, GAP, HEAD, DECISION = 190, 104, 10, 74, 220
FONT = "font-family='Helvetica,Arial,sans-serif'"


def draw() -> str:
    """The visit as SVG: a row of cards per page, and what the user felt and did."""
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
    width, height = 20 + 4 * (WIDTH + GAP) + DECISION, top + 34
    size = f"width='{width}' height='{height}' viewBox='0 0 {width} {height}'"
    body = "\n".join(out)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size}>\n"
        f"<rect width='100%' height='100%' fill='white'/>\n{body}\n</svg>\n"
    )


def _card(left: int, top: int, view: dict, item: dict, genres: list[str]) -> list[str]:
    """An item: its title on the colour of its first genre, and what the user made of it."""
    hue = 360 * genres.index(item["genres"][0]) // len(genres)
    fill = f"hsl({hue},45%,{88 if view['watched'] else 96}%)"
    title = textwrap.wrap(f"{item['title']} ({item['year']})", 24)[:2]
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


if __name__ == "__main__":
    drawn = draw()
    if "--check" not in sys.argv:
        PICTURE.write_text(drawn, encoding="utf-8")
    elif PICTURE.read_text("utf-8") != drawn:
        sys.exit("the visit looks otherwise: run `python docs/visit.py`")
