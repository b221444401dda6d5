"""Leaks of customers' replies: titles, ids, indices and scores named as such."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.dialogue.customers.model import LeakDetector

TITLES = [
    "Oral-B Pro 1000 Electric Brush",
    "Foxy Curls Contour Creme, 6.76 oz",
    "Soft Bristle Brush for Kids",
    "Soft Bristle Brush for Adults",
    "Raw Almonds",
]
LEAKS = LeakDetector(TITLES, ["B07X2", "8", "123456", "lamp"])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("I like product 3.", "index"),
        ("Products 3 and 4 are fine.", "index"),
        ("Item number 12, please.", "index"),
        ("product: seven", "index"),
        ("#4", "index"),
        ("I give it 82 points.", "score"),
        ("An 82-point one.", "score"),
        ("It has eighty-two points for me.", "score"),
        ("Its score is 82.", "score"),
        ("I scored it 82.", "score"),
        ("70 out of 100.", "score"),
        ("A regret of 12.5.", "score"),
        ("b07x2 is the best.", "id"),
        ("I want 123456.", "id"),
        ("Give me id 8.", "id"),
        ("Its ASIN is lamp.", "id"),
        ("I want foxy  curls: CONTOUR.", "title"),
        ("A soft bristle brush for kids.", "title"),
        ("\uff26oxy curls contour.", "title"),
    ],
)
def test_what_names_a_product_or_its_score_is_a_leak(text, kind):
    assert LEAKS.find(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "Something under $20.",
        "Between $10 and $15.",
        "I have 3 children and 2 dogs.",
        "100% cotton, 24 oz.",
        "A product 100% natural.",
        "I need two products of this kind.",
        "A soft bristle brush.",
        "Raw almonds.",
        "A lamp of size 8.",
        "I have no strong opinion.",
        "At this point I am not sure.",
        "",
    ],
)
def test_wishes_prices_and_measures_are_no_leaks(text):
    assert LEAKS.find(text) is None


def test_words_that_several_titles_share_identify_none():
    assert LEAKS.find("soft bristle brush") is None
    assert LeakDetector(TITLES[2:3]).find("soft bristle brush") == "title"


def test_words_that_the_agent_said_itself_are_no_leak():
    said = ["Do you like the Foxy Curls Contour Creme?"]
    assert LEAKS.find("Yes, foxy curls contour creme.", said=said) is None
    assert LEAKS.find("No, the Oral-B Pro 1000 Electric Brush.", said=said) == "title"
    assert LEAKS.find("Product 3.", said=["Product 3?"]) == "index"


words = st.text("abcdefghijklmnop", min_size=2, max_size=8)
neutral = st.lists(st.sampled_from(["zzz", "zyx", "zap", "zoo"]), max_size=5).map(" ".join)


@given(st.lists(words, min_size=3, max_size=6, unique=True), neutral, neutral)
def test_a_whole_title_is_found_wherever_it_stands(title, before, after):
    from sim.dialogue.customers.model import _FILLERS

    leaks = LeakDetector([" ".join(title), "another thing altogether"])
    text = f"{before} {', '.join(title).upper()}! {after}"
    long_enough = sum(word not in _FILLERS for word in title) >= 3
    assert leaks.find(text) == ("title" if long_enough else None)
    assert leaks.find(text, said=[" ".join(title)]) is None


@given(st.integers(0, 999), neutral, neutral)
def test_every_index_and_every_score_named_as_such_is_found(number, before, after):
    leaks = LeakDetector(TITLES)
    assert leaks.find(f"{before} product {number} {after}") == "index"
    assert leaks.find(f"{before} {number} points {after}") == "score"
    assert leaks.find(f"{before} under ${number} {after}") is None


@given(st.lists(st.text(), max_size=5), st.lists(st.text(max_size=8), max_size=5), st.text())
def test_any_titles_ids_and_replies_are_read(titles, ids, text):
    found = LeakDetector(titles, ids).find(text)
    assert found in {None, "index", "score", "id", "title"}
    assert LeakDetector(titles, ids).find(re.sub(r"\s+", "  ", text)) == found
