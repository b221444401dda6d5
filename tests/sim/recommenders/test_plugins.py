"""Recommenders of others: entry points, module:Class, and every way in which one can be wrong."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pipelines.errors import ConfigError, ContractError
from sim import Release
from sim.recommenders import open_recommender

GOOD = """
import numpy as np

class Mine:
    \"\"\"Items in the order of their numbers.\"\"\"

    def __init__(self, seed=0):
        if seed < 0:
            raise ValueError("a seed below zero")

    def fit(self, release, *, interactions=None):
        {fit}
        return self

    def recommend(self, users, k, *, seen=None, ratings=None):
        lists = np.tile(np.arange(k), (len(users), 1))
        {recommend}
        return lists

nothing = 3

class Idle:
    def fit(self, release): ...
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(GOOD.format(fit="pass", recommend="pass"))
    return path


def broken(path: Path, **parts: str) -> str:
    path.write_text(GOOD.format(**{"fit": "pass", "recommend": "pass", **parts}))
    return f"{path}:Mine"


def test_a_file_and_class_open_a_plugin(plugin: Path, release: Release) -> None:
    made = open_recommender(f"{plugin}:Mine").fit(release)
    assert made.recommend([1], 3).tolist() == [[0, 1, 2]]
    assert made.note == "Items in the order of their numbers."


def test_a_module_and_class_open_a_plugin(
    plugin: Path, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(plugin.parent)
    assert open_recommender("mine:Mine", seed=2).fit(release).recommend([1], 1).tolist() == [[0]]


def test_an_entry_point_is_opened_by_its_name(
    plugin: Path, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines import plugins

    entry = EntryPoint("mine", f"{plugin}:Mine", "understudy.recommenders")
    monkeypatch.setattr(
        plugins, "entry_points", lambda group: [entry] if group == entry.group else []
    )
    assert open_recommender("mine").fit(release).recommend([1], 1).tolist() == [[0]]
    with pytest.raises(ConfigError, match="did you mean mine"):
        open_recommender("mime")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("no_such_module:Mine", "can't be imported.*no_such_module"),
        ("no/such/file.py:Mine", "can't be imported.*no/such/file.py"),
        ("{file}:Mien", "has no Mien.*did you mean Mine"),
        ("{file}:nothing", r"nothing is not a class \(int\)"),
        ("{file}:Idle", "has no recommend"),
        ("mine", "unknown recommender.*module:Class"),
    ],
)
def test_what_is_no_recommender_is_named(plugin: Path, place: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_recommender(place.format(file=plugin))


def test_a_file_that_does_not_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "torn.py"
    path.write_text("1 / 0")
    with pytest.raises(ConfigError, match=r"ZeroDivisionError.*torn\.py:Mine"):
        open_recommender(f"{path}:Mine")


def test_unknown_options_are_named_with_the_known_ones(plugin: Path) -> None:
    with pytest.raises(ConfigError, match=r"sed.*options: seed"):
        open_recommender(f"{plugin}:Mine", sed=1)
    with pytest.raises(ConfigError, match=r"'size'.*options: regularization"):
        open_recommender("ease", size=1)


def test_a_constructor_that_raises_is_named(plugin: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't be opened.*a seed below zero.*mine\.py:Mine"):
        open_recommender(f"{plugin}:Mine", seed=-1)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"fit": "return None"}, "fit returned NoneType.*return self"),
        ({"fit": "raise KeyError('x')"}, "fit raised KeyError"),
        ({"recommend": "raise KeyError('x')"}, "recommend raised KeyError"),
        ({"recommend": "lists[:, 1] = lists[:, 0]"}, "ml:1 twice"),
        ({"recommend": "lists[:, 0] = 99"}, "unknown item 99"),
        ({"recommend": "lists[:, 0] = -2"}, "unknown item -2"),
        ({"recommend": "lists[:, 2:] = -1"}, "recommended 2 items, then none"),
        ({"recommend": "lists[:, 0] = -1"}, "-1 only pads the end"),
        ({"recommend": "return lists[:, :2]"}, r"of shape \(1, 2\).*shape \(1, 3\)"),
        ({"recommend": "return lists + 0.5"}, "recommend returned float64"),
        ({"recommend": "return None"}, "recommend returned object"),
    ],
)
def test_a_plugin_that_breaks_the_seam_is_named(
    plugin: Path, release: Release, parts: dict[str, str], message: str
) -> None:
    with pytest.raises(ContractError, match=message) as caught:
        open_recommender(broken(plugin, **parts)).fit(release).recommend([1], 3)
    assert "mine.py:Mine" in str(caught.value)


def test_a_seen_item_is_named_with_its_persona(plugin: Path, release: Release) -> None:
    made = open_recommender(f"{plugin}:Mine").fit(release)
    with pytest.raises(ContractError, match=r"which was seen.*persona:default:1"):
        made.recommend([0, 1], 3, seen=np.array([[5], [1]]))


def test_errors_of_the_project_pass_through(
    plugin: Path, release: Release, small: ModuleType
) -> None:
    place = broken(plugin, fit="release.require('maps')")
    with pytest.raises(Exception, match="lacks the table maps"):
        open_recommender(place).fit(release)
