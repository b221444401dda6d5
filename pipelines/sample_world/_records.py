"""TMDB's records of the films, in the shape of ``/movie/{id}`` with credits and keywords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.sample_world._dice import Dice
from pipelines.sample_world._films import Film
from pipelines.sample_world._genres import TMDB_GENRES

__all__ = ["tmdb_record"]


def tmdb_record(
    film: Film, dice: Dice, *, fame: float, quality: float, keywords: Sequence[str]
) -> dict[str, Any]:
    """The record of a film.

    Parameters
    ----------
    film
        The film; it has a TMDB id.
    dice
        A stream of its own for this film's figures.
    fame
        Popularity relative to the mean film (1 is the mean).
    quality
        Stars above the mean film.
    keywords
        Every keyword, by number.

    Returns
    -------
    dict
        JSON-ready; keys and nesting as the API gives them. The poster's path leads nowhere:
        the film does not exist.
    """
    genres = dict(TMDB_GENRES[g] for g in film.genres if g in TMDB_GENRES)
    known = not dice.chance(0.35)
    budget = round(10 ** (6.2 + 1.4 * dice.roll()) * (0.4 + min(fame, 8.0)), -5) if known else 0
    revenue = budget * (0.2 + dice.exponential(1.8)) * (1 + 0.4 * quality) if known else 0
    collection = film.collection
    return {
        "adult": False,
        "belongs_to_collection": None
        if collection is None
        else {
            "id": collection.id,
            "name": collection.name,
            "poster_path": None,
            "backdrop_path": None,
        },
        "budget": int(budget),
        "genres": [{"id": number, "name": name} for number, name in genres.items()],
        "id": film.tmdb_id,
        "imdb_id": f"tt{film.imdb_id}",
        "original_language": film.language,
        "original_title": film.original_title,
        "overview": film.overview,
        "popularity": round(0.6 + 9.0 * fame * (0.6 + 0.8 * dice.roll()), 3),
        "poster_path": None if dice.chance(0.25) else f"/sample-{film.tmdb_id}.jpg",
        "release_date": film.release_date,
        "revenue": max(0, int(revenue)),
        "runtime": film.runtime,
        "status": "Released",
        "title": film.title,
        "vote_average": round(min(9.6, max(1.5, 6.3 + 1.5 * quality + 0.5 * dice.roll())), 3),
        "vote_count": int(3 + 400 * fame * (0.5 + dice.roll())),
        "credits": {
            "cast": [
                {
                    "id": role.actor.id,
                    "name": role.actor.name,
                    "character": role.character,
                    "order": order,
                }
                for order, role in enumerate(film.cast)
            ],
            "crew": [
                {
                    "id": credit.person.id,
                    "name": credit.person.name,
                    "job": credit.job,
                    "department": credit.department,
                }
                for credit in film.crew
            ],
        },
        "keywords": {
            "keywords": [{"id": 1_000 + 7 * k, "name": keywords[k]} for k in film.keywords]
        },
    }
