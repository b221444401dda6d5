"""Personas and steps as lines that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.scales import RatingScale

__all__ = ["drivers_text", "item_text", "persona_lines", "stars", "step_line"]

#: Smaller effects are rounded to nothing with one decimal.
_LEAST_SHOWN = 0.05


def persona_lines(persona: Mapping[str, Any]) -> list[str]:
    """Persona (a row of the table ``personas``) in lines: a heading, tastes, the description."""
    # An imported persona may state none of these.
    stated = [str(persona[k]) for k in ("name", "age", "gender", "job") if persona[k] is not None]
    lines = [f"{', '.join(stated) or 'somebody'} ({persona['persona_id']})"]
    if persona["likes"]:
        lines.append(f"likes {', '.join(persona['likes'])}")
    if persona["dislikes"]:
        lines.append(f"dislikes {', '.join(persona['dislikes'])}")
    return [*lines, persona["description"]]


def item_text(item: Mapping[str, Any]) -> str:
    """Title, year and genres.

    >>> item_text({"title": "Heat", "year": 1995, "genres": ["Action", "Crime"]})
    'Heat (1995) · Action, Crime'
    >>> item_text({"title": "Untold", "year": None, "genres": []})
    'Untold'
    """
    year = f" ({item['year']})" if item["year"] is not None else ""
    genres = f" · {', '.join(item['genres'])}" if item["genres"] else ""
    return f"{item['title']}{year}{genres}"


def stars(rating: float, scale: RatingScale) -> str:
    """A rating as stars and as a number of its scale.

    >>> from pipelines.scales import SCALES
    >>> stars(3, SCALES["1-5"]), stars(0, SCALES["0-9"])
    ('★★★☆☆ 3/5', '☆☆☆☆☆☆☆☆☆ 0/9')
    """
    full = round(rating)
    return f"{'★' * full}{'☆' * (round(scale.high) - full)} {rating:g}/{scale.high:g}"


def step_line(item: Mapping[str, Any], info: Mapping[str, Any], scale: RatingScale) -> str:
    """A step in one line: its number, the film, the rating and, if available, its main driver.

    `info` may hold ``average``, what the average persona is expected to give.
    """
    rating = info["rating"]
    shown = f"no rating ({info['rating_status']})" if rating is None else stars(rating, scale)
    line = f"{info['step']:>3}. {item_text(item)}\n     {shown}"
    if info["repeated"]:
        line += "  (again)"
    if info["expected"] is not None:
        why = drivers_text(info["drivers"])
        average = info.get("average")
        line += f"  expected {info['expected']:.1f}"
        line += "" if average is None else f", average viewer {average:.1f}"
        line += f"\n     {why}" if why else ""
    return line


def drivers_text(drivers: Mapping[str, float]) -> str:
    """Effects on the expected rating, strongest first, in units of the scale.

    Effects that would be shown as 0.0 are left out.

    >>> drivers_text({"quality": -0.26, "genres": 1.5, "text": 0.04})
    'genres +1.5, quality -0.3'
    """
    shown = [(name, value) for name, value in drivers.items() if abs(value) >= _LEAST_SHOWN]
    order = sorted(shown, key=lambda kv: -abs(kv[1]))
    return ", ".join(f"{name} {value:+.1f}" for name, value in order)
