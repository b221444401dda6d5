"""The browser of these tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.remote.webdriver import WebDriver


def _program(*names: str) -> str:
    for program in filter(None, map(shutil.which, names)):
        return program
    message = f"none of {', '.join(names)} is installed"
    if os.environ.get("CI"):
        pytest.fail(f"{message}: the CI script installs them")
    pytest.skip(f"{message}: install Debian's chromium and chromium-driver")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    """A headless Chromium that keeps what pages log."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium", "chromium-browser", "google-chrome")
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--window-size=2000,1250",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.ChromeService(_program("chromedriver", "chromium.chromedriver"))
    window = webdriver.Chrome(options=options, service=driver)
    yield window
    window.quit()
