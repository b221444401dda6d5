"""What agents say of items agrees with their rating, the item's genres and the persona."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from pipelines.packaged import packaged_yaml
from pipelines.raters import EFFECTS
from pipelines.seeding import combine
from sim import Release, open_release
from sim.agents import AgentWorld, fault_of, open_brain, remark_report, simulate
from sim.agents._choice import FEATURES
from sim.agents._remarks import Remarks
from sim.recommenders import open_recommender

GENRES = ["Action", "Comedy", "Drama", "Horror", "Romance", "Sci-Fi", "Thriller"]


def fault(text: str, rating: float | None = None, **facts: object) -> str | None:
    given = {"genres": ["Comedy"], "known": GENRES, "gender": "female"} | facts
    return fault_of(text, rating=rating, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("cast", ["matched", "personas"])
def test_thousands_of_visits_hold_no_contradiction(
    matched: Release, tmp_path: Path, cast: str
) -> None:
    world = AgentWorld.open(matched, cast=cast)
    brain = open_brain("statistical").open(world)
    random = open_recommender("random").fit(matched)
    run = simulate(world, brain, random, agents=1_500, folder=tmp_path)
    found = remark_report(run, world)
    assert found.feelings > 4_000
    assert found.faults.to_dicts() == []
    assert found.most_frequent <= 0.02
    views = run.table("views").collect()
    assert views["reason"].value_counts(normalize=True)["proportion"].max() <= 0.02
    views = views.drop_nulls("feeling")
    liked = views.filter(pl.col("rating") >= 4)
    assert not liked["feeling"].str.contains("(?i)dislike|bored|regret|disappoint|not my").any()
    assert set(liked["valence"]) == {"positive"}
    assert set(views.filter(pl.col("rating") <= 2)["valence"]) <= {"negative"}


def test_only_genres_of_the_item_are_named(matched: Release, tmp_path: Path) -> None:
    world = AgentWorld.open(matched)
    brain = open_brain("statistical").open(world)
    run = simulate(
        world, brain, open_recommender("random").fit(matched), agents=300, folder=tmp_path
    )
    nouns = {"Action": "action films", "Comedy": "comedies", "Drama": "dramas",
             "Horror": "horror films", "Romance": "romances", "Sci-Fi": "science fiction films",
             "Thriller": "thrillers"}  # fmt: skip
    items = matched["items"].polars(["item_id", "genres"])
    views = run.table("views").collect().join(items, on="item_id")
    said = pl.concat_str(["reason", "feeling"], separator=" ", ignore_nulls=True)
    for genre, noun in nouns.items():
        naming = views.filter(said.str.contains(noun))
        assert naming.height
        assert naming["genres"].list.contains(genre).all(), genre


@pytest.fixture
def remarks(world: AgentWorld) -> Remarks:
    """Of people who like the first genre of the first film and dislike those of the last block."""
    return Remarks(world, np.zeros((len(world), len(world.genre_names))))


def several(remarks: Remarks, rating: float, effect: str, sign: float, item: int) -> set[str]:
    n = 400
    effects = np.zeros((n, len(EFFECTS)))
    effects[:, EFFECTS.index(effect)] = sign
    people, items = np.zeros(n, np.int64), np.full(n, item)
    seeds = combine(5, np.arange(n))
    return set(remarks.feelings(people, items, np.full(n, rating), effects, seeds))


def phrases(side: str, effect: str) -> Iterator[str]:
    for phrase in packaged_yaml("sim.agents", "remarks.yaml")["feelings"][side][effect]:
        yield phrase.partition("{genre}")[0]


@pytest.mark.parametrize(
    ("rating", "side", "sign"), [(5.0, "liked", 1.0), (3.0, "mixed", -1.0), (1.0, "disliked", -1.0)]
)
@pytest.mark.parametrize("effect", ["quality", "leniency", "similarity", "history", "word"])
def test_effect_that_agrees_with_the_rating_is_the_reason(
    remarks: Remarks, rating: float, side: str, sign: float, effect: str
) -> None:
    remarks._likes[:] = remarks._dislikes[:] = False
    found = several(remarks, rating, effect, sign, 0)
    begins = tuple(phrases(side, effect))
    assert len(found) > 5
    assert all(text.startswith(begins) for text in found)


def test_effect_against_the_rating_is_no_reason(remarks: Remarks) -> None:
    remarks._likes[:] = remarks._dislikes[:] = False
    assert all(
        text.startswith(tuple(phrases("liked", "any")))
        for text in several(remarks, 4.0, "quality", -1.0, 0)
    )


def test_liked_film_of_a_disliked_genre_is_liked_in_spite_of_it(remarks: Remarks) -> None:
    remarks._likes[:], remarks._dislikes[:] = False, True
    found = several(remarks, 5.0, "conflict", -2.0, 0)
    assert all(text.startswith(tuple(phrases("liked", "conflict"))) for text in found)


def test_disliked_film_of_a_liked_genre_disappoints(remarks: Remarks) -> None:
    remarks._likes[:], remarks._dislikes[:] = True, False
    found = several(remarks, 1.0, "quality", -2.0, 0)
    assert all(text.startswith(tuple(phrases("disliked", "agreement"))) for text in found)


def test_same_seeds_give_the_same_remarks(remarks: Remarks) -> None:
    assert several(remarks, 4.0, "taste", 1.0, 3) == several(remarks, 4.0, "taste", 1.0, 3)


def test_every_side_has_phrases_of_every_effect() -> None:
    content = packaged_yaml("sim.agents", "remarks.yaml")
    for side in ("liked", "mixed", "disliked"):
        assert set(content["feelings"][side]) == {*EFFECTS, "any"}
    for side in ("watched", "skipped"):
        assert {*FEATURES, "any"} < set(content["reasons"][side])
    for sides in content.values():
        for cells in sides.values():
            for cell in cells.values():
                # Items without a genre need phrases without one.
                assert any("{genre}" not in text for text in cell)
                assert any("{genre}" in text for text in cell)


@pytest.mark.parametrize(
    ("text", "rating", "expected"),
    [
        ("I disliked it in spite of its genres.", 4, "dislike of what is rated 4 or 5"),
        ("Not my taste.", 5, "dislike of what is rated 4 or 5"),
        ("It was boring.", 4, "dislike of what is rated 4 or 5"),
        ("It was never boring.", 4, None),
        ("I disliked it.", 3, None),
        ("I really loved it.", 2, "liking of what is rated 1 or 2"),
        ("I did not like it.", 2, None),
        ("I love horror films.", 5, "a liked genre that the item lacks"),
        ("I love horror films, but this is none.", 5, None),
        ("I love comedies and dramas.", 5, None),
        ("He liked it.", 4, "another gender's pronoun"),
        ("She liked it.", 4, None),
        ("He was shot in the first scene.", 4, None),
    ],
)
def test_contradictions_are_those_a_reader_sees(
    text: str, rating: float, expected: str | None
) -> None:
    assert fault(text, rating) == expected


def test_report_counts_contradictions_of_any_brain(world: AgentWorld, tmp_path: Path) -> None:
    brain = open_brain("statistical").open(world)
    shown = open_recommender("popular").fit(world.release)
    run = simulate(world, brain, shown, agents=60, folder=tmp_path / "one")
    views = run.table("views").collect()
    views = views.with_columns(
        feeling=pl.when(pl.col("rating") >= 4).then(pl.lit("I disliked it.")).otherwise("feeling")
    )
    views.write_parquet(run.folder / "views.parquet")
    found = remark_report(run, world)
    wrong = views.filter(pl.col("rating") >= 4).height
    assert found.as_json()["contradictions"] == wrong > 20
    assert found.most_frequent == pytest.approx(wrong / found.feelings)
    assert found.faults["fault"].unique().to_list() == ["dislike of what is rated 4 or 5"]


def test_weight_below_zero_is_no_reason(remarks: Remarks) -> None:
    n = 200
    off, fitted = np.zeros((n, len(FEATURES))), np.ones((n, len(FEATURES)))
    off[:, FEATURES.index("similarity")] = 3.0
    fitted[:, FEATURES.index("similarity")] = -1.0
    remarks._likes[:] = remarks._dislikes[:] = False
    zero = np.zeros(n, np.int64)
    found = remarks.reasons(zero, zero, np.ones(n, bool), off, fitted, combine(1, np.arange(n)))
    known = packaged_yaml("sim.agents", "remarks.yaml")["reasons"]["watched"]["any"]
    assert all(text.startswith(tuple(p.partition("{genre}")[0] for p in known)) for text in found)


def test_people_of_a_release_without_matches_are_matched(small: ModuleType, tmp_path: Path) -> None:
    from sim.agents import match_people

    users = [f"ml-user:{n}" for n in range(1, 41)]
    tables = small.matched_frames(users)
    personas = tables["movies.personas"].filter(pl.col("origin") != "matched")
    small.build(
        tmp_path,
        replace={**tables, "movies.personas": personas},
        without=("matched_personas", "persona_candidates"),
    )
    bare = open_release("movies", home=tmp_path)
    release, note = match_people(bare)
    assert "40 were matched for this run by the statistical matcher" in str(note)
    assert "`understudy match --domain movies` and then `understudy run --job movies`" in str(note)
    # They are those that the two commands publish.
    assert release["matched_personas"].polars().equals(tables["movies.matched_personas"])
    assert (
        release["personas"]
        .polars()
        .sort("persona_id")
        .equals(tables["movies.personas"].sort("persona_id"))
    )
    assert (len(bare["personas"]), len(AgentWorld.open(release))) == (6, 40)
    again, nothing = match_people(release)
    assert (again, nothing) == (release, None)
    world = AgentWorld.open(release)
    shown = open_recommender("popular").fit(release)
    brain = open_brain("statistical").open(world)
    run = simulate(world, brain, shown, agents=50, folder=tmp_path / "run")
    assert run.identity["matches"] == release["matched_personas"].version
    assert remark_report(run, world).faults.is_empty()
