"""Meta-paths: appendix D's are there, and a wrong one says what is wrong with it."""

import pytest

from pipelines.errors import ConfigError
from pipelines.graph import load_metapaths, load_schema
from pipelines.graph._schema import parse_metapaths

#: Appendix D, as sequences of relations.
PAPER = {
    "movies": [
        "rated-by rated", "viewed-by viewed", "liked-by liked", "disliked-by disliked",
        "belongs-to contains", "directed-by directed", "features acts-in",
        "rated-by gives-rating given-to", "released-in contains",
        "rated-by has-occupation has-users rated", "rated-by has-age has-users rated",
    ],
    "games": [
        "reviewed-by reviewed", "viewed-by viewed", "liked-by liked", "disliked-by disliked",
        "belongs-to-genre contains", "developed-by developed", "published-by published",
        "reviewed-by has-review-sentiment reviewed", "has-price contains",
        "released-on-date contains", "tagged-as contains",
        "reviewed-by has-occupation has-users reviewed", "reviewed-by has-age has-users reviewed",
    ],
    "books": [
        "reviewed-by reviewed", "viewed-by viewed", "liked-by liked", "disliked-by disliked",
        "belongs-to-genre contains", "written-by wrote", "published-by published",
        "reviewed-by has-review-sentiment reviewed", "has-price contains",
        "released-on-date contains", "tagged-as contains", "bought-by bought-together",
        "also-bought-by also-bought", "also-viewed-by also-viewed",
        "reviewed-by has-occupation has-users reviewed", "reviewed-by has-age has-users reviewed",
    ],
}  # fmt: skip


def parsed(*items, users=(), domain="movies"):
    return parse_metapaths(load_schema(domain), {"items": list(items), "users": list(users)})


@pytest.mark.parametrize("domain", PAPER)
def test_every_path_of_the_paper_is_there(domain):
    paths = load_metapaths(domain)
    assert {" ".join(path.relations) for path in paths.items} >= set(PAPER[domain])
    assert len({path.name for path in paths.items + paths.users}) == len(paths.items + paths.users)


@pytest.mark.parametrize("domain", PAPER)
def test_paths_start_and_end_where_they_should_and_are_short(domain):
    paths, item = load_metapaths(domain), load_schema(domain).item_type
    for path in paths.items:
        assert (path.start_type, path.steps[-1].tail_type) == (item, item)
    for path in paths.users:
        assert (path.start_type, path.steps[-1].tail_type) == ("User", item)
        assert path.left[-1].tail_type == path.right[-1].tail_type
    assert max(len(path) for path in paths.items + paths.users) <= 4


def test_only_paths_that_come_back_as_they_went_are_symmetric():
    by_name = {path.name: path for path in load_metapaths("movies").items}
    assert by_name["Movie-Age-Movie"].symmetric
    assert not by_name["Movie-User-Rating-Movie"].symmetric
    assert [n for n, path in by_name.items() if not path.symmetric] == ["Movie-User-Rating-Movie"]


def test_a_path_that_is_not_symmetric_is_cut_in_the_middle():
    (path,) = parsed({"name": "a", "path": ["rated-by", "gives-rating", "given-to"]}).items
    assert [step.relation for step in path.left] == ["rated-by"]
    assert [step.relation for step in path.right] == ["^given-to", "^gives-rating"]
    assert path.relations == ("rated-by", "gives-rating", "given-to")


def test_longer_paths_can_be_left_out():
    short = load_metapaths("movies", 2)
    assert {len(path) for path in short.items} == {2}
    assert "Movie-Age-Movie" not in {path.name for path in short.items}
    assert len(load_metapaths("movies", 3).items) == len(short.items) + 1
    with pytest.raises(ConfigError, match="no meta-path of movies is that short: length 1"):
        load_metapaths("movies", 1)
    with pytest.raises(ConfigError, match=r"no meta-paths for this domain: music \(one of movies"):
        load_metapaths("music")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"path": ["rated-by", "rated"]}, "a meta-path has no name"),
        ({"name": "x"}, "needs either `path` or `half`: meta-path x of movies"),
        ({"name": "x", "path": ["a"], "half": ["a"]}, "needs either `path` or `half`"),
        ({"name": "x", "path": []}, "has no relations"),
        ({"name": "x", "path": ["rated-by"]}, "ends at User, not at Movie"),
        ({"name": "x", "path": ["rated-by", "directed"]},
         r"step 2: no relation directed leads from User: meta-path x.*there are disliked, gives"),
        ({"name": "x", "half": ["rated-by", "gives-rating", "given-to"]}, "6 relations; at most 4"),
        ({"name": "x", "half": ["rated-by"], "colour": "red"}, r"unknown keys \['colour'\]"),
    ],
)  # fmt: skip
def test_a_wrong_path_is_refused_saying_where(line, message):
    with pytest.raises(ConfigError, match=message):
        parsed(line)


def test_walks_of_a_user_path_must_meet_at_one_type():
    good = {"name": "u", "user": ["rated", "belongs-to"], "item": ["belongs-to"]}
    assert parsed(users=[good]).users[0].relations == ("rated", "belongs-to", "contains")
    with pytest.raises(ConfigError, match="does not meet: Genre against User"):
        parsed(users=[good | {"item": ["rated-by"]}])
    with pytest.raises(ConfigError, match="needs `user` and `item`"):
        parsed(users=[{"name": "u", "user": ["rated"]}])


def test_two_paths_of_one_name_are_refused():
    one = {"name": "x", "half": ["rated-by"]}
    with pytest.raises(ConfigError, match="two meta-paths are named x: movies"):
        parsed(one, one)
