"""The ledger: a rating prompt whose history lines and question have one form.

Each line has facts of an item and others' ratings of it, then the person's rating, so that a
causal model learns a rating from every line of a text. Behind it stands how far the person's
ratings up to there lie above those of others. The question is a line without
its rating. Facts and their treatment are those of the letter (:mod:`pipelines.prompts._ratings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipelines.prompts._texts import Row, Subject, one_line, person_lines
from pipelines.scales import SCALES, RatingScale, rescale

#: Separator between an item and its rating.
ARROW = "->"
#: Words for how many people a mean is of, by the least number (count).
COUNTS = ((1, "one"), (2, "few"), (5, "some"), (20, "many"), (100, "very many"))
#: Pseudo-ratings of a mean surplus, and raters at which a mean has half the weight of a known one.
_DAMPING, _FEW = 3.0, 4.0
#: Largest surplus that is told apart (units of the scale).
MAX_SURPLUS = 4.0
#: Label of the surplus.
SURPLUS = "above others"
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


def surpluses(rows: Iterable[tuple[float, float | None, int]]) -> Iterator[str]:
    """Running surplus shown after each rating: shrunken mean over others' means so far.

    Parameters
    ----------
    rows
        Rating, mean of others (None: unknown) and their number, on one scale, oldest first.

    Examples
    --------
    Of a rating 2 above the mean of 12 raters, and of 3 pseudo-ratings: 2 * 0.75 / 3.75.

    >>> list(surpluses([(5.0, None, 0), (9.0, 7.0, 12)]))
    ['', ' | above others +0.4']
    """
    total = weight = 0.0
    for rating, mean, raters in rows:
        if mean is not None and raters:
            share = raters / (raters + _FEW)
            total += share * (rating - mean)
            weight += share
        found = min(max(total / (weight + _DAMPING), -MAX_SURPLUS), MAX_SURPLUS)
        yield surplus_text(found) if weight else ""


def surplus_text(surplus: float) -> str:
    """A surplus as it stands behind a rating."""
    return f" | {SURPLUS} {round(surplus, 1) + 0.0:+.1f}"


def ledger_person(persona: Row, lines: list[tuple[str, str, str]]) -> str:
    """Facts about a persona, then rated lines, one a line.

    A line has the text of :func:`ledger_item`, the rating, and the text of :func:`surpluses`.
    """
    # A generated name carries no information.
    facts = person_lines(persona)[0 if persona.get("name") else 1 :]
    rows = [f"{label}: {_value(text)}" for label, text in facts]
    return "\n".join(rows + [f"{line} {ARROW} {rating}{after}" for line, rating, after in lines])


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
    behind = f"{SURPLUS}\0{MAX_SURPLUS}\0{_DAMPING}\0{_FEW}"
    return f"{ARROW}\0{COUNTS!r}\0{[(c, n, s.name, t) for c, n, s, t in PUBLIC]!r}\0{behind}"
