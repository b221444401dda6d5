"""The documentation site builds without a warning and holds every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--quiet", "--site-dir", folder],
        cwd=REPOSITORY, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.mark.pipeline
def test_every_page_is_built(site: Path) -> None:
    pages = {p.relative_to(REPOSITORY / "docs") for p in (REPOSITORY / "docs").rglob("*.md")}
    built = {p.relative_to(site) for p in site.rglob("*.html")}
    assert {page.with_suffix(".html") for page in pages} <= built
    assert not list(site.rglob("*.py"))


@pytest.mark.pipeline
def test_reference_is_generated_from_the_code(site: Path) -> None:
    for name in ("open_release", "RecommendationEnv", "evaluate_offline"):
        assert re.search(
            rf'<h2 id="[\w.]*{name}"', (site / "reference/api.html").read_text("utf-8")
        )
    assert "understudy train" in (site / "reference/commands.html").read_text("utf-8")


@pytest.mark.pipeline
def test_no_link_leaves_the_site(site: Path) -> None:
    broken = []
    for page in site.rglob("*.html"):
        for target in re.findall(r'href="([^"#?]+)', page.read_text("utf-8")):
            if ":" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert [b for b in broken if not b.startswith("404.html")] == []
