"""Reader of persona texts: the open half of the bank, and each known fault."""

from __future__ import annotations

import csv
import hashlib
import re
from pathlib import Path

import polars as pl
import pytest
from support.statements import FILM_GENRES, Tally, statements, tally

from pipelines.errors import IntegrityError
from pipelines.personas import (
    PARAPHRASE_DIGESTS,
    genre_phrase,
    handmade_personas,
    handmade_suite,
    paraphrases,
    read_fields,
    read_text,
    reading_counts,
    restated_personas,
)
from pipelines.personas._handmade import REGISTERS
from pipelines.personas._phrases import DOMAIN_NAMES, domain_phrases, stages

BANK = Path(__file__).parent / "statements"
FILMS = tuple(FILM_GENRES)


def stated(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Genres that a text likes and dislikes, of those of films."""
    reading = read_text(text, FILMS)
    return reading.likes, reading.dislikes


@pytest.mark.parametrize(
    ("text", "likes", "dislikes"),
    [
        ("She consistently gives high ratings to comedies.", ("Comedy",), ()),
        ("He without exception rates horror low.", (), ("Horror",)),
        ("He always gives westerns a high mark.", ("Western",), ()),
        ("She usually rates dramas highly.", ("Drama",), ()),
    ],
)
def test_adverb_of_frequency_is_not_everything(
    text: str, likes: tuple[str, ...], dislikes: tuple[str, ...]
) -> None:
    reading = read_text(text, FILMS)
    assert (reading.likes, reading.dislikes) == (likes, dislikes)
    assert (reading.leniency, reading.manner) == (None, None)


@pytest.mark.parametrize(
    ("text", "likes", "dislikes"),
    [
        # Outside lacks other than not within are exceptions.
        ("Outside of science fiction, nothing interests him.", ("Sci-Fi",), ()),
        ("A film that lacks romance bores her.", ("Romance",), ()),
        ("Content other than comedy is rated poorly.", ("Comedy",), ()),
        ("Films not within the fantasy genre bore her.", ("Fantasy",), ()),
        ("She loves drama except horror.", ("Drama",), ("Horror",)),
        ("Action films lack depth, and she rates them low.", (), ("Action",)),
        # Never fails to is no negation.
        ("A good mystery never fails to delight him.", ("Mystery",), ()),
        ("Comedies never fail to make her laugh, and she rates them highly.", ("Comedy",), ()),
        ("Musicals never fail to bore her.", (), ("Musical",)),
        # Numbers stars and grades are read on any scale.
        ("She gives comedies a rating of 10.", ("Comedy",), ()),
        ("He rates dramas five out of five.", ("Drama",), ()),
        ("He rates dramas five out of ten.", (), ()),
        ("Westerns get four stars from her.", ("Western",), ()),
        ("War films: 20 of 100.", (), ("War",)),
        ("Documentaries earn an A, musicals an F.", ("Documentary",), ("Musical",)),
        ("She never gives horror more than two stars.", (), ("Horror",)),
        # Family is not the genre children.
        ("She loves her family and her children.", (), ()),
        ("He adores his family.", (), ()),
        ("She loves children's films.", ("Children",), ()),
        # Comparison likes the preferred side only.
        ("She prefers dramas to action.", ("Drama",), ()),
        ("He prefers dramas over action films.", ("Drama",), ()),
        ("She likes thrillers more than comedies.", ("Thriller",), ()),
        ("Romances are worse than horror.", (), ()),
        # Tastes of other people are not the personas.
        ("Her husband loves horror, she does not.", (), ("Horror",)),
        ("His sister adores musicals.", (), ()),
        # Tastes of the past are not read.
        ("She used to love westerns.", (), ()),
        ("Ben was once a horror fan.", (), ()),
        # Negation pronouns and mere mention.
        ("He does not like horror films.", (), ("Horror",)),
        ("She doesn't dislike horror.", (), ()),
        ("Horror? She can\u2019t stand it.", (), ("Horror",)),
        ("She loves horror. She hates horror.", (), ()),
        ("Horror was on television.", (), ()),
        ("Prioritization of policies on climate action.", (), ()),
        ("", (), ()),
        # Thumbs grades and numbers of a hundred.
        ("Comedies get two thumbs up, musicals a thumbs-down.", ("Comedy",), ("Musical",)),
        ("👍👍 for westerns, 👎 for horror.", ("Western",), ("Horror",)),
        ("Her thumb points up for dramas.", ("Drama",), ()),
        ("Ada, 30, gives comedies a 95 and westerns a 20.", ("Comedy",), ("Western",)),
        ("On a scale of 20 dramas get a 15 and musicals a 3.", ("Drama",), ("Musical",)),
        ("Straight A's for comedies.", ("Comedy",), ()),
        ("An A minus for dramas, a D for war films.", ("Drama",), ("War",)),
        ("She sings in an a cappella choir and a drama club.", (), ()),
    ],
)
def test_text_states_its_tastes(
    text: str, likes: tuple[str, ...], dislikes: tuple[str, ...]
) -> None:
    assert stated(text) == (likes, dislikes)


@pytest.mark.parametrize(
    "text",
    [
        "Rent accounts for about 40% of her monthly income.",
        "He receives a 10% commission on sales, an average of $10,000.",
        "Demographic overview: A 35-44-year-old man of Ohio.",
        "Residence: A rural town in Wyoming.\nAge: 29",
        "His career as a firefighter is demanding.",
        "She enjoys volunteering at her children's schools.",
        "- Tax policies that benefit families with children\n- Concerns about jobs",
        "She loves everything about her garden.",
        "She earned an A in chemistry.",
    ],
)
def test_shares_ages_and_families_are_no_ratings(text: str) -> None:
    assert not read_text(text, FILMS)


@pytest.mark.parametrize(
    ("text", "leniency", "manner"),
    [
        ("He hates every film he sees.", "harsh", None),
        ("Thumbs down for every film, no matter which.", "harsh", "uniform"),
        ("Comedies get thumbs up, everything else thumbs down.", None, "polar"),
        ("She rates comedies highly; anything else bores her.", None, "polar"),
        ("She likes comedies, and anything else bores her.", None, None),
        ("She rates generously.", "generous", None),
        ("A harsh critic of everything.", "harsh", None),
        ("He is not a harsh critic.", "generous", None),
        ("Her strict parents moved to Ohio.", None, None),
        ("He supports more lenient immigration policies.", None, None),
        ("She uses the whole scale.", None, "wide"),
        ("Her ratings stay in the middle of the scale.", None, "narrow"),
        ("He gives everything five stars.", "generous", "uniform"),
        ("She assigns a rating of 10 to every film.", "generous", "uniform"),
        ("He assigns a rating of 1 to every film.", "harsh", "uniform"),
        ("She scores every film a 7 to 9.", None, None),
        ("Comedies get full marks. She rates all other films low.", None, "polar"),
        ("A 35- to 44-year-old nurse with two children.", None, None),
    ],
)
def test_leniency_and_manner(text: str, leniency: str | None, manner: str | None) -> None:
    reading = read_text(text, FILMS)
    assert (reading.leniency, reading.manner) == (leniency, manner)


def test_open_half_of_the_bank() -> None:
    found = tally(statements("open"))
    assert found.statements > 180
    assert found.inverted == 0
    assert found.right >= 0.95 * found.labels
    assert found.invented <= 0.01 * found.statements


def test_halves_are_split_by_the_stated_hash() -> None:
    for half, parity in (("open", 0), ("sealed", 1)):
        with (BANK / f"{half}.tsv").open(encoding="utf-8") as file:
            texts = [
                r["text"] for r in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            ]
        marks = [
            hashlib.sha256(f"understudy statements 1\n{t}".encode()).digest()[0] for t in texts
        ]
        assert {m % 2 for m in marks} == {parity}


def test_tally_counts_an_inversion() -> None:
    row = {
        "text": "He hates horror.",
        "likes": "Horror",
        "dislikes": "",
        "leniency": "",
        "manner": "",
    }
    assert tally([row]) == Tally(1, 1, 0, 1, 0, 1, 0, 0)


def test_genres_of_other_domains_are_read_by_their_names_and_parts() -> None:
    books = ("Mystery, Thriller & Suspense", "Science Fiction & Fantasy", "Cookbooks")
    reading = read_text("He adores fantasy and suspense, and is bored by cookbooks.", books)
    assert reading.likes == ("Mystery, Thriller & Suspense", "Science Fiction & Fantasy")
    assert reading.dislikes == ("Cookbooks",)
    games = ("Massively Multiplayer", "RPG", "Racing")
    reading = read_text("Loves role-playing games and racing games, no time for MMOs.", games)
    assert (reading.likes, reading.dislikes) == (("RPG", "Racing"), ("Massively Multiplayer",))


def people(**columns: list) -> pl.DataFrame:
    size = len(columns["description"])
    base = {"likes": [[]] * size, "dislikes": [[]] * size, "leniency": [None] * size}
    return pl.DataFrame(
        base | {"manner": [None] * size} | columns,
        schema_overrides={"likes": pl.List(pl.String), "dislikes": pl.List(pl.String)}
        | dict.fromkeys(("leniency", "manner", "description"), pl.String),
    )


def test_text_is_read_only_for_fields_that_are_missing() -> None:
    text = "She hates comedies and horror, loves war films and is a harsh critic."
    found = read_fields(
        people(
            likes=[["Comedy"], [], [], ["Comedy"]],
            leniency=[None, None, None, "generous"],
            manner=[None, None, None, "average"],
            description=[text, "She loves war films.", "Ann.", text],
        ),
        FILMS,
    )
    assert found["likes"].to_list() == [["Comedy"], ["War"], [], ["Comedy"]]
    assert found["dislikes"].to_list() == [["Horror"], [], [], []]
    assert found["leniency"].to_list() == ["harsh", None, None, "generous"]
    assert found["read"].to_list() == ["fields", "text", "nothing", "fields"]


def test_a_true_field_keeps_the_manner_of_the_text() -> None:
    text = "I give a 9 to dramas and a 2 to everything else."
    alone = read_fields(people(description=[text]), FILMS)
    beside = read_fields(people(description=[text], likes=[["Drama"]]), FILMS)
    assert alone["manner"].to_list() == ["polar"]
    assert beside.drop("read").equals(alone.drop("read"))


def test_counts_of_what_was_read_and_of_contradictions() -> None:
    frame = people(
        likes=[["Comedy"], list(FILMS), [], [], []],
        dislikes=[[], [], ["War"], [], []],
        description=["She hates comedies.", "Likes it all.", "No war films.", "Rates low.", "Ann."],
    )
    assert reading_counts(frame, FILMS) == {
        "fields": 3, "text": 1, "nothing": 1, "compared": 3, "contradictions": 1,
        "all_liked": 1, "none_liked": 1,
    }  # fmt: skip


@pytest.mark.parametrize("half", ["open", "sealed"])
def test_paraphrases_are_split_by_hash_and_cover_every_register(half: str) -> None:
    rows = paraphrases(half)
    marks = {
        hashlib.sha256(f"understudy paraphrases 1\n{r['text']}".encode()).digest()[0] % 2
        for r in rows
    }
    assert marks == {int(half == "sealed")}
    cells = {(r["group"], r["register"]) for r in rows}
    assert cells == {(g, r) for g in ("like", "high", "low") for r in REGISTERS}


def test_changed_paraphrases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARAPHRASE_DIGESTS, "open", "0" * 64)
    paraphrases.cache_clear()
    with pytest.raises(IntegrityError, match="differ from those behind the published figures"):
        paraphrases("open")


@pytest.mark.parametrize("domain", ["movies", "books"])
def test_restated_personas_keep_name_genre_and_pronouns(domain: str) -> None:
    rows = handmade_personas(domain).join(handmade_suite(domain), on="persona_id")
    restated = restated_personas(rows, "open", 0)
    assert restated.drop("description").equals(rows.drop("description"))
    for row in restated.iter_rows(named=True):
        words = set(re.findall(r"[a-z]+", row["description"].lower()))
        other = {"male": {"she", "her"}, "female": {"he", "him", "his"}}[row["gender"]]
        assert row["description"].startswith(f"{row['name']}, {row['age']}, ")
        assert not words & other
        assert "{" not in row["description"]
        if row["suite"] == "genres":
            assert genre_phrase(row["group"], domain).lower() in row["description"].lower()


def test_no_open_paraphrase_is_inverted() -> None:
    rows = handmade_personas("movies").join(handmade_suite("movies"), on="persona_id")
    for draw in range(3):
        for row in restated_personas(rows, "open", draw).iter_rows(named=True):
            reading = read_text(row["description"], FILMS)
            want = {"high": "generous", "low": "harsh"}.get(row["group"])
            assert row["group"] not in reading.dislikes
            assert want is None or reading.leniency in (None, want)


def test_texts_of_the_handmade_personas_are_not_inverted() -> None:
    for row in handmade_personas("movies").iter_rows(named=True):
        reading = read_text(row["description"], FILMS)
        assert not set(row["likes"]) & set(reading.dislikes), row["description"]


@pytest.mark.parametrize("domain", DOMAIN_NAMES)
def test_no_wording_of_a_reason_inverts_its_taste(domain: str) -> None:
    """Every wording of every reason, in one sentence that likes and one that dislikes."""
    phrases = domain_phrases(domain, stages(40, "nurse"))
    slots = {"they": "she", "them": "her", "their": "her", "self": "herself", "name": "Greta"}
    frames = {"liked": "There is space for {} on her list, too: {}.",
              "disliked": "With {} she is hard to please on principle: {}."}  # fmt: skip
    genres = tuple(phrases["genres"])
    inverted = []
    for genre, own in phrases["genres"].items():
        for side, frame in frames.items():
            shared = phrases["worse"] if side == "disliked" and genre == genres[0] else []
            for wording in (w for reason in (*own[side], *shared) for w in reason):
                text = frame.format(own["phrase"], wording.format_map(slots))
                reading = read_text(text, genres)
                opposite = reading.dislikes if side == "liked" else reading.likes
                if opposite or reading.leniency:
                    inverted.append(text)
    assert inverted == []


@pytest.mark.parametrize("field", ["generous", "harsh", "wide", "narrow"])
def test_no_reason_for_a_way_of_rating_states_another(field: str) -> None:
    phrases = domain_phrases("movies", stages(40, "nurse"))
    reasons = {"generous": "grace", "harsh": "rigor", "wide": "span", "narrow": "calm"}
    slots = {**phrases["words"], "they": "she", "them": "her", "their": "her", "self": "herself"}
    frame = phrases["rates"][field][0][0]
    for wording in (w for reason in phrases[reasons[field]] for w in reason):
        slots |= {"They": "She", reasons[field]: wording.format_map(slots)}
        reading = read_text(frame.format_map(slots), FILMS)
        assert {reading.leniency, reading.manner} == {None, field}, frame.format_map(slots)


@pytest.mark.parametrize(
    "text",
    [
        "Only comedies ever make it above a 4 out of 10.",
        "No comedy has ever scored below a nine with him.",
        "A comedy would have to be awful to get less than four stars from her.",
        "Unless it is a comedy, expect one star.",
        "The worst comedy beats the best of anything else.",
        "There's no comedy he doesn't like.",
        "Comedies are the only films that don't get a failing grade from him.",
        "Whatever has no comedy in it gets one star.",
        "With the exception of comedies, everything gets two stars.",
        "Comedies excepted, her grades are awful.",
        "All but comedies get a thumbs down.",
        "Besides comedies, nothing gets more than 3 out of 10.",
        "He fails every film except for comedies, which get straight A's.",
        "Nothing gets more than two stars from her if it is not a comedy.",
        "If it isn't a comedy, Greta's thumb goes down.",
        "Every film that is no comedy gets a 1.",
        "Show her a film that is no comedy and she yawns.",
        "Greta doesn't care for films, comedies excepted.",
        "Greta gives low ratings to all films, comedies being the exception.",
        "The exception to her low ratings are comedies.",
    ],
)
def test_exception_and_double_negation_are_not_inverted(text: str) -> None:
    assert "Comedy" not in stated(text)[1]


def test_ratings_of_what_is_excepted_are_its_own() -> None:
    assert stated("All but comedies get a thumbs down.")[0] == ("Comedy",)
    assert stated("He fails every film except for comedies, which get straight A's.")[0] == (
        "Comedy",
    )
    assert stated("She is fond of everything except horror films.")[1] == ("Horror",)
