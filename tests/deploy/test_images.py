"""The images: what their files say, and whether pip finds what they install. None was built."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ("image", "image-vllm")


def instructions(image: str) -> list[tuple[str, str]]:
    """Instructions of a Dockerfile with their arguments; continued lines are joined."""
    text = (ROOT / "deploy" / image / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if not line.startswith("#")]
    return [(line[0], line[1]) for line in lines if line]


def pip_lines(image: str) -> list[str]:
    runs = [args for name, args in instructions(image) if name == "RUN"]
    return [part.strip() for args in runs for part in args.split("&&") if "pip install" in part]


@pytest.mark.parametrize("image", IMAGES)
def test_the_last_user_is_not_root(image: str) -> None:
    last = [name for name, _ in instructions(image)]
    stage = len(last) - 1 - last[::-1].index("FROM")
    users = [args for name, args in instructions(image)[stage:] if name == "USER"]
    assert users == ["10001:10001"]


@pytest.mark.parametrize("image", IMAGES)
def test_copied_files_exist_and_reach_the_build(image: str) -> None:
    shown = (ROOT / ".dockerignore").read_text().splitlines()
    for name, args in instructions(image):
        if name == "COPY" and "--from=" not in args:
            for source in args.split()[:-1]:
                assert (ROOT / source).exists()
                assert source == "." or f"!{source.split('/')[0]}" in shown
    assert shown[0] == "*"  # nothing else is sent: no home, no .env, no history


def test_the_image_installs_extras_that_exist_with_the_constraints() -> None:
    packages, project = pip_lines("image")
    extras = re.findall(r'"\.\[([\w,]+)\]"', packages)[0].split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"pipeline", "cluster", "s3"} <= {*extras} <= {*known}
    assert "-c constraints.txt" in packages
    assert "--no-deps" in project


@pytest.mark.pipeline
@pytest.mark.parametrize("image", IMAGES)
def test_pip_lines_resolve_in_a_fresh_environment(image: str, tmp_path: Path) -> None:
    """uv resolves what pip would install, but fetches none of the gigabytes."""
    python = tmp_path / "fresh/bin/python"
    subprocess.run([sys.executable, "-m", "uv", "venv", "-q", "-p", sys.executable, python.parents[1]], check=True)  # noqa: E501  # fmt: skip
    line = pip_lines(image)[0].replace("/tmp/vllm-gpu.txt", "locks/vllm-gpu.txt").replace('"', "")
    command = [sys.executable, "-m", "uv", *line.split(), "--dry-run", "--python", str(python)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"^ \+ ([\w.-]+)==(\S+)$", done.stderr, re.MULTILINE))
    pins = "locks/vllm-gpu.txt" if image == "image-vllm" else "constraints.txt"
    lines = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / pins).read_text(), re.MULTILINE)
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in lines}
    assert found["ray"] == pinned["ray"]
    assert {name: v for name, v in found.items() if pinned.get(name, v) != v} == {}
