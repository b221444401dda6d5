"""Who reviewed what in the sample world's shop, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.sample_world._dice import Dice
from pipelines.sample_world._shop import Ware

__all__ = ["Review", "draw_reviews", "review_2018", "review_2023"]

_DAY = 86_400
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
#: First and last second of the reviews of an edition.
_SPANS = {"2018": (1_230_768_000, 1_538_352_000), "2023": (1_356_998_400, 1_677_628_800)}
#: Share of reviewers who wrote fewer than five reviews.
_RARE = 0.12
_HEADINGS = {
    1: ("Not for me", "Sent it back", "A waste"),
    2: ("Meh", "Expected more", "Only just"),
    3: ("It is all right", "Does its job", "Fine, no more"),
    4: ("Good", "Glad I have it", "Better than I thought"),
    5: ("Wonderful", "Could not be happier", "Five stars"),
}
_TEXTS = (
    "I took {title} along on a journey and {verdict}",
    "My neighbour told me about {title}. I tried it for a week, and {verdict}",
    'It says "{title}" on the outside, but inside, {verdict}',
    "{title}: {verdict}<br />I would say the same a second time.",
)
_VERDICTS = {
    1: "I gave up on the first evening.",
    2: "there was little to like.",
    3: "it was neither good nor bad.",
    4: "it was nearly everything that I had hoped for.",
    5: "I want nothing else any more.",
}


@dataclass(frozen=True, slots=True)
class Review:
    """One review.

    Attributes
    ----------
    user
        Number of the reviewer within the edition and kind of ware.
    ware
        What was reviewed.
    stars
        1 to 5.
    second
        When (seconds since 1970).
    """

    user: int
    ware: Ware
    stars: int
    second: int


def draw_reviews(
    dice: Dice, edition: str, wares: Sequence[Ware], users: int, count: int
) -> list[Review]:
    """Reviews of an edition, by user and time; nobody reviews a ware twice.

    Stars come from the ware's quality, the reviewer's mood and taste, and chance. At most
    ``count`` reviews are written; fewer where reviewers have run out of wares.
    """
    kinds: dict[str, list[Ware]] = {}
    for ware in wares:
        kinds.setdefault(ware.kind, []).append(ware)
    names = sorted(kinds)
    first, last = _SPANS[edition]
    weights = [0.15 if dice.chance(_RARE) else 1 + dice.exponential(1.2) for _ in range(users)]
    reviews: list[Review] = []
    for user, weight in enumerate(weights):
        due = max(1, round(count * weight / sum(weights)))
        due = min(due, 4) if weight < 1 else max(due, 5)
        taste = set(dice.sample(names, 1 + dice.below(3)))
        mood = 0.5 * (dice.roll() + dice.roll() - 1)
        seen: dict[str, Ware] = {}
        for _ in range(3 * due):
            pool = kinds[dice.pick(sorted(taste))] if dice.chance(0.65) else wares
            ware = pool[dice.skewed(len(pool), 1.8)]
            seen.setdefault(ware.asin, ware)
            if len(seen) == min(due, len(wares)):
                break
        # In order of time; 2018 knows days only.
        step = _DAY if edition == "2018" else 1
        times = sorted(first + dice.below((last - first) // step) * step for _ in seen)
        for ware, second in zip(seen.values(), times, strict=True):
            liking = 0.9 if ware.kind in taste else -0.5
            noise = 1.1 * (dice.roll() + dice.roll() + dice.roll() - 1.5)
            stars = round(3.7 + ware.quality + mood + liking + noise)
            reviews.append(Review(user, ware, min(5, max(1, stars)), second))
    return reviews


def _code(dice: Dice, prefix: str, length: int) -> str:
    return prefix + "".join(dice.pick(_ALPHABET) for _ in range(length))


def _text(review: Review, dice: Dice) -> str:
    return dice.pick(_TEXTS).format(title=review.ware.title, verdict=_VERDICTS[review.stars])


def _user(review: Review, seed: int, prefix: str, length: int) -> str:
    """A reviewer's id; those of the two editions have nothing in common."""
    return _code(Dice(seed, "reviewer", prefix, review.user), prefix, length)


def review_2018(review: Review, dice: Dice, seed: int, people: str) -> dict[str, Any]:
    """A review as the 2018 edition has it; ``people`` sets pools of reviewers apart."""
    record: dict[str, Any] = {
        "overall": float(review.stars),
        "verified": dice.chance(0.75),
        "reviewerID": _user(review, seed, f"A{people}", 12),
        "asin": review.ware.asin,
        "style": {"Format:": " Hardcover" if dice.chance(0.3) else " Paperback"},
        "reviewerName": "A. Reader",
        "reviewText": _text(review, dice),
        "summary": dice.pick(_HEADINGS[review.stars]),
        "unixReviewTime": review.second,
    }
    if not review.ware.author:
        del record["style"]
    if dice.chance(0.05):
        del record["reviewText"]
    if dice.chance(0.1):
        record["vote"] = f"{1 + dice.below(1_200):,}"
    return record


def review_2023(review: Review, dice: Dice, seed: int, people: str) -> dict[str, Any]:
    """A review as the 2023 edition has it."""
    return {
        "rating": float(review.stars),
        "title": dice.pick(_HEADINGS[review.stars]),
        "text": _text(review, dice),
        "images": [],
        "asin": review.ware.asin,
        "parent_asin": review.ware.asin,
        "user_id": _user(review, seed, f"AE{people}", 25),
        "timestamp": review.second * 1000 + dice.below(1000),
        "helpful_vote": int(dice.exponential(0.8)),
        "verified_purchase": dice.chance(0.8),
    }
