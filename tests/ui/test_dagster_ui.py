"""A person opens the UI: sees the graph, rematerialises an asset, sees it succeed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import support.dagster_ui
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from pipelines.contracts import CONTRACTS
from pipelines.domains import DOMAINS
from pipelines.personas import OWN

pytestmark = pytest.mark.pipeline

ARTIFACTS = Path(__file__).resolve().parents[1] / "artifacts"
PATIENCE = 120

#: Errors of a click when the page redraws its target at that moment.
REDRAWN = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)

#: Text of the smallest part of the page about the run of this asset alone and how it ended.
NEWEST_RUN = """
const about = [...document.querySelectorAll('*')].map(e => e.innerText || '').filter(
  t => t.includes('graph_triples') && !t.includes('everything') && /Success|Failure/.test(t)
);
return about.sort((a, b) => a.length - b.length)[0] || '';
"""


@pytest.fixture(scope="module")
def dagster_ui(working_home: Path, word_encoder: Path) -> Iterator[str]:
    """Address of `understudy ui` over a home in which a run has been published."""
    # With the settings of the run: others would make its tables stale.
    env = {"UNDERSTUDY_EMBEDDING__MODEL": str(word_encoder)}
    with support.dagster_ui.dagster_ui(working_home, env=env) as address:
        yield address


def _picture(browser: WebDriver, name: str) -> None:
    ARTIFACTS.mkdir(exist_ok=True)
    browser.save_screenshot(str(ARTIFACTS / f"{name}.png"))


def _see(browser: WebDriver, text: str, within: float = PATIENCE) -> None:
    """Wait until the page shows the text, leaving a picture if it never does."""
    try:
        WebDriverWait(browser, within).until(
            lambda page: text in page.execute_script("return document.body.innerText")
        )
    except Exception:
        _picture(browser, "failure")
        raise


def _click(browser: WebDriver, label: str) -> None:
    """Press the first enabled button with this label, however often the page redraws it."""

    def pressed(page: WebDriver) -> bool:
        page.find_element(By.XPATH, f"//button[contains(., '{label}') and not(@disabled)]").click()
        return True

    # The page replaces its elements while data arrives: one found may be gone when it is clicked.
    WebDriverWait(browser, PATIENCE, ignored_exceptions=[NoSuchElementException, *REDRAWN]).until(
        pressed
    )


def _see_nodes(browser: WebDriver) -> None:
    """Wait until the graph shows assets; the page draws only those in view."""
    names = [name.rpartition(".")[2] for name in CONTRACTS]
    WebDriverWait(browser, PATIENCE).until(
        lambda page: sum(name in page.page_source for name in names) >= 5
    )


def test_the_asset_graph_shows_every_stage(browser: WebDriver, dagster_ui: str) -> None:
    browser.get(f"{dagster_ui}/asset-groups")
    for group in ("shared_raw", "movies_tables", "books_scores", "games_reports", "ablations"):
        _see(browser, group)
    WebDriverWait(browser, PATIENCE).until(
        lambda page: "fetching" not in page.find_element(By.TAG_NAME, "body").text.lower()
    )
    _picture(browser, "asset_groups")
    ActionChains(browser).key_down(Keys.ALT).send_keys("e").key_up(Keys.ALT).perform()
    _see_nodes(browser)
    time.sleep(3)  # the layout is animated; only the picture needs this
    _picture(browser, "asset_graph")


def test_lineage_of_the_pipeline_materializes_nothing_else(
    browser: WebDriver, dagster_ui: str
) -> None:
    browser.get(f"{dagster_ui}/asset-groups~code_location%3A%22understudy%22")
    _see(browser, "movies_reports")
    _see(browser, "Materialize all")
    assert "ablations" not in browser.execute_script("return document.body.innerText")
    _picture(browser, "pipeline")


def test_full_run_is_on_the_timeline_and_leaves_nothing_missing(
    browser: WebDriver, dagster_ui: str
) -> None:
    browser.get(f"{dagster_ui}/overview/activity/timeline")
    for job in ("understudy", "movies", "books", "games", "products", "ingest"):
        _see(browser, job)
    _picture(browser, "timeline")
    dagster = support.dagster_ui.Dagster(dagster_ui)
    made = {key for name in DOMAINS if name != OWN for key in dagster.upstream(f"releases/{name}")}
    assert len(made) > 100
    assert dagster.stale(sorted(made)) == set()


def test_an_assets_page_tells_rows_schema_and_checks(browser: WebDriver, dagster_ui: str) -> None:
    browser.get(f"{dagster_ui}/assets/movies/items")
    _see(browser, "items")
    _see(browser, "overview")
    _picture(browser, "asset_items")
    browser.get(f"{dagster_ui}/assets/movies/items?view=checks")
    _see(browser, "contract")
    _picture(browser, "asset_checks")


def test_rematerialising_an_asset_succeeds(browser: WebDriver, dagster_ui: str) -> None:
    browser.get(f"{dagster_ui}/assets/movies/graph_triples")
    _click(browser, "Materialize")
    _see(browser, "Launched run")
    browser.get(f"{dagster_ui}/runs")
    _see(browser, "graph_triples")
    until, newest = time.monotonic() + PATIENCE, ""
    while not ("Success" in newest or "Failure" in newest) and time.monotonic() < until:
        time.sleep(1)
        # In one script: the page redraws the row between two calls.
        newest = browser.execute_script(NEWEST_RUN)
    _picture(browser, "runs")
    assert "Success" in newest, newest
