"""The site of `understudy explore` in a real browser: every view, keys, the width of a phone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait
from support import small_release
from support.dialogue_release import publish
from support.running import run_understudy

from pipelines.config import Settings
from sim import open_release
from sim.dialogue.testing import sample_world
from sim.environment import World
from sim.explore import VIEWS, explore
from sim.training import RunSettings, train

pytestmark = pytest.mark.pipeline

ARTIFACTS = Path(__file__).resolve().parents[1] / "artifacts"
#: Runs if a page reads it as HTML or as a script.
HOSTILE = '</script><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
#: Address of a page of each view.
PAGES = (
    *("", "people", "people/1", "visits", "visits/0", "dialogues", "dialogues/0", "graph"),
    *("experiments", "training", "beside"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with every view, over releases with hostile texts."""
    home = tmp_path_factory.mktemp("explore") / "home"
    tables = small_release.matched_frames()
    small_release.build(home, replace=tables)
    first = open_release("movies@latest", home=home)
    plain = small_release.frames()
    items = plain["movies.items"].with_columns(
        title=pl.when(pl.col("item_id") == "ml:1").then(pl.lit(HOSTILE)).otherwise("title"),
        popularity=pl.col("popularity") ** 2 / 24,
    )
    people = tables["movies.personas"].with_columns(description=pl.lit(HOSTILE))
    scores = plain["movies.preference_scores"].with_columns(
        expected=pl.when(pl.col("item_id").str.ends_with("2")).then(2.5).otherwise("expected")
    )
    replaced = {"items": items, "personas": people, "preference_scores": scores}
    small_release.build(
        home, replace={**tables, **{f"movies.{name}": frame for name, frame in replaced.items()}}
    )
    release = open_release("movies@latest", home=home)
    publish(home, sample_world(sets=6, personas=40))
    settings = RunSettings(algo="a2c", steps=64, envs=4, users=4, evaluate_every=32)
    train(World.open(release), settings, [0], home / "training" / "movies-a2c")
    understudy = Path(sys.executable).with_name("understudy")
    words = ("experiment", "run", "feeling", "distribution", "--agents", "12")
    done = run_understudy(understudy, *words, "--home", str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path_factory.mktemp("site") / "site"
    explore(release, folder, Settings(runtime={"home": home}), beside=first)
    return folder


@pytest.fixture
def opened(browser: WebDriver, site: Path) -> Callable[..., WebDriver]:
    """Show a page of the site at a width, with its data."""

    def show(page: str, width: int = 1300) -> WebDriver:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get("about:blank")
        browser.get(f"{(site / 'index.html').as_uri()}#/{page}")
        WebDriverWait(browser, 60).until(
            lambda window: (
                window.find_elements(By.CSS_SELECTOR, "main h1")
                and not window.find_elements(By.CSS_SELECTOR, "main > .loading")
            )
        )
        return browser

    return show


@pytest.mark.parametrize("width", [1300, 390])
@pytest.mark.parametrize("page", PAGES)
def test_view_fits_its_window_and_logs_nothing(
    page: str, width: int, opened: Callable[..., WebDriver]
) -> None:
    window = opened(page, width)
    ARTIFACTS.mkdir(exist_ok=True)
    name = f"explore-{page.replace('/', '-') or 'home'}-{width}.png"
    window.save_screenshot(str(ARTIFACTS / name))
    overflow = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
    assert window.execute_script(overflow) == 0
    assert window.get_log("browser") == []
    assert window.execute_script("return window.hacked") is None


def focused(window: WebDriver) -> str:
    return str(window.switch_to.active_element.get_attribute("href"))


def press(window: WebDriver, *keys: str) -> None:
    for key in keys:
        window.switch_to.active_element.send_keys(key)


def test_every_view_is_in_the_menu(opened: Callable[..., WebDriver]) -> None:
    links = opened("").find_elements(By.CSS_SELECTOR, ".menu a")
    assert [str(a.get_attribute("href")).partition("#/")[2] for a in links] == ["", *VIEWS]


def test_people_are_searched_and_reached_by_keys(opened: Callable[..., WebDriver]) -> None:
    window = opened("people")
    window.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("carpenter")
    cards = (By.CSS_SELECTOR, ".cards .card")
    WebDriverWait(window, 30).until(lambda w: len(w.find_elements(*cards)) == 1)
    press(window, Keys.TAB, Keys.ENTER)
    WebDriverWait(window, 30).until(lambda w: w.find_element(By.TAG_NAME, "h1").text == "Cleo")
    # What is hostile is shown as it is.
    assert window.find_element(By.CLASS_NAME, "story").text == HOSTILE
    before = window.current_url
    window.find_element(By.TAG_NAME, "body").send_keys(Keys.ARROW_RIGHT)
    WebDriverWait(window, 30).until(lambda w: w.current_url != before)


def test_arrow_keys_walk_through_cards(opened: Callable[..., WebDriver]) -> None:
    window = opened("people")
    window.execute_script("document.querySelector('.cards .card').focus()")
    press(window, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_LEFT)
    assert focused(window).endswith("#/people/1")


def test_slider_of_a_dialogue_moves_the_choice_on_the_shelf(
    opened: Callable[..., WebDriver],
) -> None:
    window = opened("dialogues/0")
    bubbles = (By.CSS_SELECTOR, ".chat .bubble")
    everything = len(window.find_elements(*bubbles))
    slider = window.find_element(By.CSS_SELECTOR, "input[type=range]")
    slider.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    WebDriverWait(window, 30).until(lambda w: len(w.find_elements(*bubbles)) == 2 < everything)
    marks = window.find_elements(By.CSS_SELECTOR, ".shelf em")
    assert [mark.text for mark in marks] == ["would sell"]


def test_path_to_the_focused_neighbour_is_highlighted(opened: Callable[..., WebDriver]) -> None:
    window = opened("graph")
    window.execute_script("document.querySelector('.neighbour').focus()")
    press(window, Keys.ARROW_DOWN)
    chosen = window.find_element(By.CSS_SELECTOR, ".neighbour[aria-selected=true]")
    assert chosen == window.switch_to.active_element
    title = chosen.find_element(By.TAG_NAME, "b").text
    assert title in window.find_element(By.CSS_SELECTOR, ".because h2").text
    assert window.find_elements(By.CSS_SELECTOR, ".graph path.on")
