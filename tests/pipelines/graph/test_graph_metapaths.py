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


def test_wrong_step_is_refused_with_what_is_possible():
    with pytest.raises(ConfigError, match=r"no relation directed leads from User.*are disliked"):
        parsed({"name": "x", "path": ["rated-by", "directed"]})
    with pytest.raises(ConfigError, match=r"no meta-paths for this domain: music \(one of movies"):
        load_metapaths("music")
