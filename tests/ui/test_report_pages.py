"""Pages of releases and suites in a real browser, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from pipelines.config import Settings
from pipelines.quality import release_report, report_page
from pipelines.store import Store
from sim.dialogue.suites import DialogueContext, run_suites, write_run
from sim.dialogue.testing import sample_world

pytestmark = pytest.mark.pipeline

ARTIFACTS = Path(__file__).resolve().parents[1] / "artifacts"


@pytest.fixture
def opened(browser: WebDriver, tmp_path: Path) -> Callable[[str, int, str], WebDriver]:
    """Show a page at a width, and keep a picture of it under a name."""

    def show(page: str, width: int, name: str) -> WebDriver:
        file = tmp_path / f"{name}.html"
        file.write_text(page, "utf-8")
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(file.as_uri())
        ARTIFACTS.mkdir(exist_ok=True)
        browser.save_screenshot(str(ARTIFACTS / f"{name}-{width}.png"))
        return browser

    return show


def overflow(browser: WebDriver) -> int:
    """Pixels by which the page is wider than its window."""
    return int(
        browser.execute_script(
            "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
        )
    )


@pytest.fixture(scope="module")
def release_page(published_home: Path) -> str:
    return report_page(release_report(Store(published_home).release("movies")))


@pytest.mark.parametrize("width", [1500, 400])
def test_release_page_fits_its_window(
    release_page: str, width: int, opened: Callable[[str, int, str], WebDriver]
) -> None:
    window = opened(release_page, width, "report")
    assert overflow(window) == 0
    headings = [h.text for h in window.find_elements(By.TAG_NAME, "h2")]
    assert headings[1:] == [
        *("Personas beside people", "Population report", "Raters on held-out ratings of people"),
        *("Checks", "Lineage", "Terms"),
    ]
    pictures = window.find_elements(By.TAG_NAME, "img")
    drawn = [window.execute_script("return arguments[0].naturalWidth", p) for p in pictures]
    assert len(drawn) >= 4
    assert min(drawn) > 300
    # An interval is one line, so a row is as high as its name.
    lines = "return [...document.querySelectorAll('td.i')].map(c => c.getClientRects().length)"
    wrap = "return getComputedStyle(document.querySelector('td.i')).whiteSpace"
    assert len(window.execute_script(lines)) > 20
    assert window.execute_script(wrap) == "nowrap"


@pytest.fixture(scope="module")
def dialogues_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("dialogues")
    world = sample_world(sets=12, personas=60)
    context = DialogueContext(world, Settings(), folder, seeds=4, episodes=3)
    files = write_run(run_suites(context, ["models"]), folder / "run")
    return files["html"].read_text("utf-8")


@pytest.mark.parametrize("width", [1500, 400])
def test_dialogues_page_is_readable_at_its_width(
    dialogues_page: str, width: int, opened: Callable[[str, int, str], WebDriver]
) -> None:
    window = opened(dialogues_page, width, "dialogues")
    assert overflow(window) == 0
    tables = window.find_elements(By.CSS_SELECTOR, ".wide")
    if width == 1500:
        wide = "return arguments[0].scrollWidth - arguments[0].clientWidth"
        assert all(window.execute_script(wide, table) == 0 for table in tables)
    # Legends are as wide as the window allows reading: pictures scroll instead of shrinking.
    pictures = window.find_elements(By.TAG_NAME, "img")
    assert len(pictures) == 2
    assert min(picture.rect["width"] for picture in pictures) >= 700
    # A row's name stays in view when its table is scrolled.
    first = tables[0].find_element(By.CSS_SELECTOR, "tbody td")
    before = first.rect["x"]
    window.execute_script("arguments[0].scrollLeft = 500", tables[0])
    at = "return arguments[0].getBoundingClientRect().x"
    assert window.execute_script(at, first) == pytest.approx(before, abs=1)
    # Intervals are one line.
    heights = {span.rect["height"] for span in window.find_elements(By.CSS_SELECTOR, "td span")}
    assert max(heights) < 30
