"""Matching category paths to a tree: each heuristic by hand, and what holds for every path."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import ContractError
from pipelines.products import CategoryTree, PathMatch, PathMatcher, PathMiss
from pipelines.products._names import folded, stem

TREE = CategoryTree(
    [
        "CDs & Vinyl > Music Styles > Blues",
        "CDs & Vinyl > Music Styles > Jazz > Blues Fusion",
        "Toys & Games > Action & Toy Figures",
        "Toys & Games > Puzzles > Jigsaw Puzzles",
        "Women's Fashion > Women's Shoes > Women's Sandals",
        "Women's Fashion > Women's Shoes > Women's Boots",
        "Men's Fashion > Men's Shoes > Men's Boots",
        "Electronics > Headphones > Earbud Headphones",
        "Electronics > Accessories > Headphone Cases",
        "Electronics > Computers > Accessories",
        "Kitchen > Food PurÃ©es",
    ]
)


def outcome(*path: str, tree: CategoryTree = TREE) -> tuple[str, str] | str:
    """The category's path and the weakest heuristic, or the level that stops the path."""
    found = PathMatcher(tree).match(path)
    if isinstance(found, PathMiss):
        return found.level
    return " > ".join(tree.nodes[found.node].path), found.heuristic


# -- the heuristics, one by one ------------------------------------------------------------


def test_names_that_differ_in_case_and_spaces_are_equal() -> None:
    assert outcome("  TOYS &  games", "action & toy FIGURES") == (
        "Toys & Games > Action & Toy Figures",
        "equal",
    )


@pytest.mark.parametrize(
    "path",
    [
        ("Toy & Game", "Action and Toy Figures"),  # plural, ampersand
        ("Toys and Games", "Action, Toy Figure"),  # a comma for the ampersand
        ("Toys+Games", "Action / Toy Figures"),
    ],
)
def test_plural_ampersand_and_punctuation_are_folded(path: tuple[str, str]) -> None:
    assert outcome(*path) == ("Toys & Games > Action & Toy Figures", "folded")


def test_possessives_and_accents_are_folded() -> None:
    expected = ("Women's Fashion > Women's Shoes", "folded")
    assert outcome("Women Fashion", "Womens Shoes") == expected
    assert outcome("Women’s Fashion", "Women Shoe") == expected
    assert outcome("Kitchen", "Food Purees") == ("Kitchen > Food Purées", "folded")


def test_a_name_whose_words_are_all_in_a_category_matches_it() -> None:
    assert outcome("Toys & Games", "Action Figures") == (
        "Toys & Games > Action & Toy Figures",
        "words",
    )
    # Not the other way round: the product's name says more than the category's.
    assert outcome("Toys & Games", "Wooden Jigsaw Puzzles") == "wooden jigsaw puzzles"


def test_the_paper_s_example_of_simpler_names() -> None:
    assert outcome("Women", "Shoes", "Sandals") == (
        "Women's Fashion > Women's Shoes > Women's Sandals",
        "words",
    )


def test_a_name_within_another_matches_from_the_start_of_a_word_only() -> None:
    tree = CategoryTree(["Clothing > Women", "Clothing > Headwear", "Clothing > Forehead Bands"])
    assert outcome("Clothing", "Head", tree=tree) == ("Clothing > Headwear", "substring")
    assert outcome("Clothing", "Men", tree=tree) == "men"
    assert outcome("Clothing", "Ban", tree=tree) == "ban"  # under four letters


def test_names_that_are_less_than_half_alike_do_not_match() -> None:
    tree = CategoryTree(["Toys > Action Figures for Collectors and Grown Children"])
    assert outcome("Toys", "Figures", tree=tree) == "figures"


# -- priority, breadth, bridging, taking back ----------------------------------------------


def test_a_surer_heuristic_comes_before_a_nearer_category() -> None:
    tree = CategoryTree(["A > Blues Rock", "A > Styles > Deep > Blues"])
    assert outcome("A", "Blues", tree=tree) == ("A > Styles > Deep > Blues", "equal")


def test_of_equal_names_the_nearest_below_counts_then_the_first_by_path() -> None:
    assert outcome("Electronics", "Accessories") == ("Electronics > Accessories", "equal")
    tree = CategoryTree(["A > C > X", "A > B > X", "A > D > E > X"])
    assert outcome("A", "X", tree=tree)[0] == "A > B > X"


def test_of_fuzzy_matches_at_one_depth_the_most_similar_counts() -> None:
    tree = CategoryTree(["A > Guitar Straps and Locks", "A > Guitar Straps"])
    assert outcome("A", "Straps", tree=tree)[0] == "A > Guitar Straps"


def test_a_level_that_the_path_leaves_out_is_bridged_and_counted() -> None:
    found = PathMatcher(TREE).match(["CDs & Vinyl", "Blues"])
    assert isinstance(found, PathMatch)
    assert TREE.nodes[found.node].path == ("CDs & Vinyl", "Music Styles", "Blues")
    assert (found.bridged, found.heuristic, found.similarity) == (1, "equal", 1.0)


def test_a_choice_that_leads_nowhere_is_taken_back() -> None:
    # The nearer `Shoes` has no boots below it: only the deeper one continues the path.
    tree = CategoryTree(["Shop > Shoes > Laces", "Shop > Outdoor > Shoes > Boots"])
    assert outcome("Shop", "Shoes", tree=tree)[0] == "Shop > Shoes"
    assert outcome("Shop", "Shoes", "Boots", tree=tree)[0] == "Shop > Outdoor > Shoes > Boots"


def test_only_a_whole_path_matches() -> None:
    assert outcome("Toys & Games", "Puzzles", "Crosswords") == "crosswords"
    found = PathMatcher(TREE).match(["Toys & Games", "Puzzles", "Crosswords"])
    assert found == PathMiss("crosswords", 2)
    # Both levels exist, but not one below the other.
    assert outcome("Toys & Games", "Blues") == "blues"


def test_a_path_without_levels_matches_nothing() -> None:
    assert PathMatcher(TREE).match([]) == PathMiss("", 0)
    assert PathMatcher(TREE).match(["", "  "]) == PathMiss("", 0)
    assert outcome("&") == "&"


def test_a_level_that_repeats_the_one_before_counts_once() -> None:
    assert outcome("Toys & Games", "Toy and Game", "Puzzles")[0] == "Toys & Games > Puzzles"


def test_a_path_may_begin_below_the_top_where_one_category_fits() -> None:
    assert outcome("Computers") == ("Electronics > Computers", "equal")
    # Two categories are called Accessories and two have boots: neither is guessed.
    assert outcome("Accessories") == "accessories"
    assert outcome("Boots") == "boots"
    # A top-level category wins even if others below it fit too.
    assert outcome("Toys") == ("Toys & Games", "words")


# -- the tree ------------------------------------------------------------------------------


def test_levels_that_only_stand_in_longer_paths_are_added() -> None:
    tree = CategoryTree(["A > B > C", "A > B > D", "E"])
    assert [n.path for n in tree.nodes[1:]] == [
        ("A",), ("A", "B"), ("A", "B", "C"), ("A", "B", "D"), ("E",),
    ]  # fmt: skip
    assert tree.implied == 2
    assert tree.nodes[1].end == 5
    assert tree.nodes[3].key == "category:A > B > C"


def test_the_order_of_the_file_does_not_matter() -> None:
    paths = ["B > b", "A", "A > a > x", "B", "A > C"]
    one, other = CategoryTree(paths), CategoryTree(reversed(paths))
    assert one.nodes == other.nodes


def test_paths_that_differ_in_case_or_encoding_only_are_one() -> None:
    tree = CategoryTree(["Food", "Food > Purées", "FOOD > PurÃ©es > Peas", "food"])
    assert [n.path for n in tree.nodes[1:]] == [
        ("Food",), ("Food", "Purées"), ("Food", "Purées", "Peas"),
    ]  # fmt: skip


def test_an_empty_tree_is_an_error() -> None:
    with pytest.raises(ContractError, match="tree is empty"):
        CategoryTree([])


# -- what holds for every path -------------------------------------------------------------

NAMES = st.sampled_from(
    ["Toys", "Toy Figures", "Figures", "Shoes", "Women's Shoes", "Blues", "Music", "Jazz & Blues"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(tuple)


@settings(max_examples=60, deadline=None)
@given(st.lists(PATHS, min_size=1, max_size=12))
def test_every_category_s_own_path_matches_it(paths: list[tuple[str, ...]]) -> None:
    tree = CategoryTree(paths)
    matcher = PathMatcher(tree)
    for node in tree.nodes[1:]:
        if any(folded(a) == folded(b) for a, b in zip(node.path, node.path[1:], strict=False)):
            continue  # a level that repeats the one before counts once
        found = matcher.match(node.path)
        assert isinstance(found, PathMatch)
        assert (found.node, found.heuristic, found.bridged) == (node.number, "equal", 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [("accessory", "accessories"), ("box", "boxes"), ("shelf", "shelves"), ("lens", "lenses"),
     ("movie", "movies"), ("party", "parties"), ("dish", "dishes"), ("radio", "radios"),
     ("headache", "headaches"), ("axe", "axes"), ("child", "children")],
)  # fmt: skip
def test_a_plural_has_the_stem_of_its_singular(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_different_words_keep_different_stems() -> None:
    words = ["glass", "glasses", "bus", "business", "tie", "toy", "tool", "news", "tennis", "bra"]
    words += ["brass", "shoe", "show", "case", "cast", "pan", "pant", "card", "car", "cars"]
    stems = {w: stem(w) for w in words}
    assert len(set(stems.values())) == len(words) - 2  # glass, glasses; car, cars
