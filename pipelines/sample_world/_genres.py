"""Genres: MovieLens' list, how often and with what they occur, and TMDB's names for them.

The shares follow ml-latest-small (how many of its films carry a genre); the companions are
the genres that go together there.
"""

from __future__ import annotations

__all__ = ["COMPANIONS", "GENRES", "LEAD_SHARES", "NO_GENRES", "TMDB_GENRES"]

#: MovieLens' genres in its (alphabetical) order.
GENRES: tuple[str, ...] = (
    "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama",
    "Fantasy", "Film-Noir", "Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi",
    "Thriller", "War", "Western",
)  # fmt: skip

#: What MovieLens writes instead of an empty list.
NO_GENRES = "(no genres listed)"

#: Share of films whose tone a genre sets (relative weights). IMAX is a format: never a lead.
LEAD_SHARES: dict[str, float] = {
    "Drama": 24, "Comedy": 21, "Action": 9, "Thriller": 8, "Horror": 7, "Crime": 6,
    "Documentary": 4.5, "Adventure": 5, "Romance": 6, "Sci-Fi": 5, "Children": 3,
    "Animation": 4, "Fantasy": 3.5, "Mystery": 2.5, "War": 2, "Musical": 2, "Western": 1.8,
    "Film-Noir": 0.9,
}  # fmt: skip

#: Genres that join a lead, likeliest first (geometric weights).
COMPANIONS: dict[str, tuple[str, ...]] = {
    "Action": ("Thriller", "Adventure", "Crime", "Sci-Fi", "Drama", "Comedy", "War", "IMAX"),
    "Adventure": ("Action", "Comedy", "Fantasy", "Drama", "Sci-Fi", "Children", "IMAX"),
    "Animation": ("Children", "Comedy", "Adventure", "Fantasy", "Musical", "IMAX"),
    "Children": ("Comedy", "Adventure", "Fantasy", "Animation", "Drama", "Musical"),
    "Comedy": ("Romance", "Drama", "Crime", "Action", "Adventure", "Fantasy", "Musical"),
    "Crime": ("Drama", "Thriller", "Action", "Comedy", "Mystery"),
    "Documentary": ("Drama", "Musical", "War", "IMAX"),
    "Drama": ("Romance", "Comedy", "Crime", "Thriller", "War", "Mystery", "Musical"),
    "Fantasy": ("Adventure", "Drama", "Romance", "Comedy", "Action", "Horror", "IMAX"),
    "Film-Noir": ("Crime", "Thriller", "Drama", "Mystery"),
    "Horror": ("Thriller", "Sci-Fi", "Comedy", "Mystery", "Fantasy", "Drama"),
    "Musical": ("Comedy", "Romance", "Drama", "Fantasy"),
    "Mystery": ("Thriller", "Crime", "Drama", "Horror"),
    "Romance": ("Drama", "Comedy", "Fantasy", "War"),
    "Sci-Fi": ("Action", "Thriller", "Adventure", "Horror", "Drama", "Comedy", "IMAX"),
    "Thriller": ("Drama", "Crime", "Mystery", "Action", "Horror", "Sci-Fi"),
    "War": ("Drama", "Action", "Romance", "Adventure"),
    "Western": ("Drama", "Action", "Adventure", "Comedy"),
}

#: TMDB's genre id and name for a MovieLens genre. Film-Noir has none there (such films are
#: listed under crime), nor has IMAX, which is a format.
TMDB_GENRES: dict[str, tuple[int, str]] = {
    "Action": (28, "Action"),
    "Adventure": (12, "Adventure"),
    "Animation": (16, "Animation"),
    "Children": (10751, "Family"),
    "Comedy": (35, "Comedy"),
    "Crime": (80, "Crime"),
    "Documentary": (99, "Documentary"),
    "Drama": (18, "Drama"),
    "Fantasy": (14, "Fantasy"),
    "Film-Noir": (80, "Crime"),
    "Horror": (27, "Horror"),
    "Musical": (10402, "Music"),
    "Mystery": (9648, "Mystery"),
    "Romance": (10749, "Romance"),
    "Sci-Fi": (878, "Science Fiction"),
    "Thriller": (53, "Thriller"),
    "War": (10752, "War"),
    "Western": (37, "Western"),
}
