"""Whether a record is about the film it is filed under."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sources.tmdb import WantedFilms, imdb_number, title_forms


def wanted(*films: tuple[int, str | None, str | None]) -> WantedFilms:
    schema = {"tmdb_id": pl.Int64, "imdb_id": pl.String, "title": pl.String}
    return WantedFilms(pl.DataFrame(list(films), schema=schema, orient="row"))


@pytest.mark.parametrize("imdb", ["0114709", "114709", "tt0114709"])
@pytest.mark.parametrize("found", ["tt0114709", "tt114709", "tt00114709"])
def test_padding_and_prefix_of_an_imdb_id_do_not_count(imdb: str, found: str) -> None:
    assert not wanted((862, imdb, None)).contradicts(862, found)


def test_an_unknown_id_on_either_side_contradicts_nothing() -> None:
    assert not wanted((862, None, "Toy Story (1995)")).contradicts(862, "tt1")
    assert not wanted((862, "0114709", None)).contradicts(862, None)
    assert not wanted((862, "0114709", None)).contradicts(862, "nm0000158")
    assert not wanted((862, "0114709", None)).contradicts(949, "tt1")


def test_a_tmdb_id_that_two_films_share_fits_either() -> None:
    films = wanted((4912, "0290538", None), (4912, "0270288", None))
    assert not films.contradicts(4912, "tt0290538")
    assert not films.contradicts(4912, "tt0270288")
    assert films.contradicts(4912, "tt0270289")
    assert len(films) == 1


@pytest.mark.parametrize(
    ("known", "titles", "release", "another"),
    [
        pytest.param("Heat (1995)", ["Toy Story", None], "1995-10-30", True, id="other-title"),
        pytest.param("Heat (1995)", ["Heat", None], "1995-12-15", False, id="renumbered"),
        pytest.param("Heat (1995)", ["Heat", None], None, False, id="renumbered-undated"),
        pytest.param("Heat (1995)", ["Heat", None], "1986-11-07", True, id="older-namesake"),
        pytest.param("Heat", ["Heat", None], "1986-11-07", False, id="year-unknown"),
        pytest.param("Godfather, The (1972)", ["The Godfather", None], "1972", False, id="article"),
        pytest.param(
            "City of Lost Children, The (Cité des enfants perdus, La) (1995)",
            ["Something Else", "La Cité des Enfants Perdus"],
            "1995-05-17",
            False,
            id="original-title-in-brackets",
        ),
        pytest.param("Seven (a.k.a. Se7en) (1995)", ["Se7en", None], "1995", False, id="aka"),
        pytest.param("Rocky II (1979)", ["Rocky III", None], "1979", True, id="sequel"),
        pytest.param("Toy Story 2 (1999)", ["Toy Story 3", None], "1999", True, id="sequel-digit"),
        pytest.param("Amelie (2001)", ["Amélie", None], "2001", False, id="accents"),
        pytest.param(
            "Thelma & Louise (1991)", ["Thelma and Louise", None], "1991", False, id="and"
        ),
        pytest.param("Andrei Rublev (1969)", ["Andrei Rublev"], "1966", False, id="held-back"),
        pytest.param("Heat (1995)", ["Heat"], "1999-01-01", True, id="four-years-apart"),
        pytest.param("Shaggy D.A., The (1976)", ["The Shaggy Dog"], None, True, id="undated-alike"),
        pytest.param("Heat (1995)", [None, None], "1995", True, id="record-without-title"),
        pytest.param("Heat (1995)", ["!!!", None], "1995", True, id="record-without-letters"),
    ],
)
def test_a_differing_imdb_id_needs_a_differing_title_or_year(
    known: str, titles: list[str | None], release: str | None, another: bool
) -> None:
    films = wanted((7, "0000001", known))
    assert films.is_another(7, "tt0000002", titles, release) is another
    # With the right IMDb id nothing else matters.
    assert films.is_another(7, "tt0000001", titles, release) is False


def test_without_any_title_the_imdb_id_decides() -> None:
    untitled = WantedFilms(pl.DataFrame({"tmdb_id": [7], "imdb_id": ["1"]}))
    assert untitled.is_another(7, "tt0000002", ["Heat"], None)
    assert not untitled.is_another(7, "tt0000001", ["Heat"], None)


def test_one_of_several_linked_titles_is_enough() -> None:
    films = wanted((7, "1", "Heat (1995)"), (7, "2", "Solaris (1972)"))
    assert not films.is_another(7, "tt3", ["Solaris"], "1972-03-20")


def test_films_are_iterated_in_order_once_and_nulls_left_out() -> None:
    films = wanted((9, "1", None), (2, "2", None), (9, "3", None), (None, "4", None))  # type: ignore[arg-type]
    assert list(films) == [2, 9]
    assert 9 in films
    assert 4 not in films


@settings(deadline=None)
@given(st.text(max_size=40))
def test_a_title_is_always_like_itself(title: str) -> None:
    films = wanted((7, "1", title))
    same = not films.is_another(7, "tt2", [title], None)
    assert same or not title_forms(title)


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 5))
def test_imdb_numbers_survive_any_padding(number: int, zeros: int) -> None:
    assert imdb_number(f"tt{'0' * zeros}{number}") == number
    assert imdb_number(f"{'0' * zeros}{number}") == number
