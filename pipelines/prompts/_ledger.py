"""The ledger: a rating prompt whose history lines and question have one form.

Each line says what an item is and what others think of it, and ends with the person's rating, so
that a causal model learns a rating from every line of a text. The question is a line without its
rating. Facts and their treatment are those of the letter (:mod:`pipelines.prompts._ratings`).
"""

from __future__ import annotations

from pipelines.prompts._subjects import Row, Subject, person_lines
from pipelines.prompts._templates import one_line
from pipelines.scales import SCALES, RatingScale, rescale

#: Separator between an item and its rating.
ARROW = "->"
#: Words for how many people a mean is of, by the least number (count).
COUNTS = ((1, "one"), (2, "few"), (5, "some"), (20, "many"), (100, "very many"))
#: TMDB takes votes from half a star to ten.
TMDB = RatingScale("0.5-10", 0.5, 10.0, 0.5)
#: Columns of items with a public mean: mean, number of ratings, scale, label.
PUBLIC = (
    ("vote_average", "vote_count", TMDB, "TMDB"),
    ("average_rating", "rating_number", SCALES["1-5"], "public"),
)


def ledger_item(
    item: Row, subject: Subject, scale: RatingScale, mean: float | None, raters: int
) -> str:
    """An item's line up to where the rating goes; ``mean`` of `raters` people is on `scale`."""
    year = item.get("year")
    name = _value(one_line(str(item.get("title") or "")) or f"a {subject.item}")
    parts = [f"{name} ({year})" if year is not None else name]
    parts += [
        text for f in subject.short if "year" not in f.columns and (text := _value(f.text(item)))
    ]
    if mean is not None and raters:
        parts.append(f"mean {_mean(mean, scale)} of {_count(raters)}")
    for column, counted, votes, label in PUBLIC:
        average, count = item.get(column), item.get(counted)
        if average is not None and count != 0 and votes.low <= average <= votes.high:
            shown = _mean(float(rescale(average, votes, scale)), scale)
            many = f" of {_count(int(count))}" if count else ""
            parts.append(f"{label} {shown}{many}")
    return " | ".join(parts)


def ledger_person(persona: Row, lines: list[tuple[str, str]]) -> str:
    """Facts about a persona, then rated lines (:func:`ledger_item` and rating), one a line."""
    # A name that nobody gave tells nothing.
    facts = person_lines(persona)[0 if persona.get("name") else 1 :]
    rows = [f"{label}: {_value(text)}" for label, text in facts]
    return "\n".join(rows + [f"{line} {ARROW} {rating}" for line, rating in lines])


def _value(text: str) -> str:
    """A value in which no line can seem to end: neither arrow nor bar.

    >>> _value("Up -> 10 | mean 9.9")
    'Up -› 10 ¦ mean 9.9'
    """
    return text.replace(ARROW, "-\u203a").replace("|", "\xa6")


def _mean(mean: float, scale: RatingScale) -> str:
    return f"{min(max(mean, scale.low), scale.high):.1f}"


def _count(raters: int) -> str:
    return next(word for least, word in reversed(COUNTS) if raters >= least or least == 1)


def ledger_words() -> str:
    """Wording of a ledger outside its template, as part of the prompt's digest."""
    return f"{ARROW}\0{COUNTS!r}\0{[(c, n, s.name, t) for c, n, s, t in PUBLIC]!r}"
