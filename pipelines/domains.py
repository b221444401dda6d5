"""The domains: what each is made from and which tables it publishes.

>>> DOMAINS["games"].sources
('steam',)
>>> cohort_domain("books-2026-w47"), cohort_domain("pilot", default="games")
('books', 'games')
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DOMAINS", "Domain", "cohort_domain"]


@dataclass(frozen=True, slots=True)
class Domain:
    """A kind of item, with its own tables, graph and release."""

    #: Domain as in dataset names: ``movies``.
    name: str
    #: Word for one of its items.
    item: str
    #: Sources that it can't do without.
    sources: tuple[str, ...]
    #: True if personas score whole choice sets (BIEL, section 4) instead of items that people
    #: rated.
    choice_sets: bool = False
    #: Published datasets that its release may lack, because not every source gives any row.
    optional: tuple[str, ...] = ()

    def datasets(self) -> tuple[str, ...]:
        """Every dataset that its release pins, in the order of the contracts."""
        from pipelines.contracts import PUBLISHED

        return tuple(d for d in PUBLISHED if d.startswith(f"{self.name}."))

    def cohort(self, default: str) -> str:
        """Its default cohort: the configured one for the movies, else one of its own name."""
        return default if self.name == "movies" else self.name


#: In the order in which a run makes them.
DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (
        Domain("movies", "film", ("movielens",)),
        Domain("books", "book", ("amazon",)),
        Domain("games", "game", ("steam",)),
        Domain(
            "products",
            "product",
            ("amazon",),
            choice_sets=True,
            optional=tuple(
                f"products.{name}"
                for name in (
                    *("products", "categories", "product_category"),
                    *("choice_set_items", "facets", "score_plan", "preference_scores"),
                )
            ),
        ),
        # Anybody's items and ratings; `data.own.name` is the name of their release.
        Domain("own", "item", ("own",)),
    )
}


def cohort_domain(cohort: str, default: str = "movies") -> str:
    """Domain of a cohort: the first word of its name if that is a domain, else `default`.

    >>> cohort_domain("handmade-books")
    'books'
    """
    first = cohort.removeprefix("handmade-").partition("-")[0]
    return first if first in DOMAINS else default
