"""What a text says about genres and about the manner of rating."""

import pytest

from pipelines.raters.statistical._reading import read_text

FILMS = ("Action", "Children", "Comedy", "Drama", "Horror", "Romance", "Sci-Fi", "Thriller", "War")


@pytest.mark.parametrize(
    ("text", "likes", "dislikes"),
    [
        ("She can't stand horror.", (), ("Horror",)),
        ("He can’t stand horror or romances.", (), ("Horror", "Romance")),
        ("Loves comedies but hates thrillers.", ("Comedy",), ("Thriller",)),
        ("Enjoys dramas and avoids science fiction.", ("Drama",), ("Sci-Fi",)),
        ("He does not like horror films.", (), ("Horror",)),
        ("She doesn't dislike horror.", (), ()),
        ("Horror bores her.", (), ("Horror",)),
        ("Not a fan of romance; a fan of thrillers.", ("Thriller",), ("Romance",)),
        ("Not only comedies: she loves drama.", ("Drama",), ()),
        ("She loves drama except horror.", ("Drama",), ("Horror",)),
        ("He loves his children and saw the war.", (), ()),
        ("He loves war films.", ("War",), ()),
        ("Horror was on television.", (), ()),
        ("She loves horror. She hates horror.", (), ()),
        ("", (), ()),
    ],
)
def test_genres_take_the_colour_of_their_cue(text, likes, dislikes):
    said = read_text(text, FILMS)
    assert (said.likes, said.dislikes) == (likes, dislikes)


@pytest.mark.parametrize(
    ("text", "leniency"),
    [
        ("She rates generously.", 1),
        ("A harsh critic of everything.", -1),
        ("He is not a harsh critic.", 1),
        ("Not easy to please.", -1),
        ("She is hard to impress.", -1),
        ("Easily pleased, he hands out high marks.", 1),
        ("Her strict parents moved to Ohio.", 0),
        ("A nurse from Ohio.", 0),
    ],
)
def test_the_manner_of_rating_is_read_with_negation(text, leniency):
    assert read_text(text, FILMS).leniency == leniency


def test_genres_of_other_domains_are_read_by_their_names_and_parts():
    books = ("Mystery, Thriller & Suspense", "Science Fiction & Fantasy", "Cookbooks")
    said = read_text("He adores fantasy and suspense, and is bored by cookbooks.", books)
    assert said.likes == ("Mystery, Thriller & Suspense", "Science Fiction & Fantasy")
    assert said.dislikes == ("Cookbooks",)
    games = ("Massively Multiplayer", "RPG", "Racing")
    said = read_text("Loves role-playing games and racing games, no time for MMOs.", games)
    assert (said.likes, said.dislikes) == (("RPG", "Racing"), ("Massively Multiplayer",))
