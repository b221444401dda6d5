"""The dbt project as Dagster sees it: where it is, its manifest, and how models are named."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_dbt import DagsterDbtTranslator, DagsterDbtTranslatorSettings
from filelock import FileLock

from orchestration.naming import OWNERS, SHARED, asset_key, domain_of
from pipelines.domains import DOMAINS
from pipelines.errors import ConfigError
from pipelines.extras import install_hint
from pipelines.paths import cache_folder

__all__ = ["PROJECT", "ModelNames", "dbt_executable", "manifest_path", "parsed_path"]

_INSTALLED = Path(__file__).resolve().with_name("dbt")
#: The dbt project: beside this file in a wheel, at the root in a checkout.
PROJECT = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1] / "dbt"


def dbt_executable() -> str:
    """The dbt program of this environment, activated or not.

    Raises :class:`ConfigError` if there is none beside the running interpreter or on the path.
    """
    beside = Path(sys.executable).with_name("dbt")
    found = str(beside) if beside.exists() else shutil.which("dbt")
    if not found:
        raise ConfigError(
            "dbt is not installed", where=str(beside.parent), hint=install_hint("pipeline")
        )
    return found


def manifest_path() -> Path:
    """The parsed project's manifest; parsed again when a source file is newer or dbt another.

    Raises :class:`ConfigError` if dbt can't parse the project.
    """
    target = _target()
    manifest = target / "manifest.json"
    target.mkdir(parents=True, exist_ok=True)
    with FileLock(target / ".parse.lock"):
        if not _fresh(manifest):
            result = subprocess.run(
                [dbt_executable(), "--quiet", "parse", "--no-partial-parse"],
                cwd=PROJECT,
                env=os.environ
                | {
                    "DBT_PROFILES_DIR": str(PROJECT),
                    "DBT_TARGET_PATH": str(target),
                    "DBT_LOG_PATH": str(target),
                    "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
                },
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
            )
            if result.returncode or not manifest.exists():
                lines = (result.stdout + result.stderr).strip().splitlines()
                raise ConfigError(
                    "dbt can't parse the project",
                    where=str(PROJECT),
                    hint=" ".join(lines[-3:])[:400],
                )
            # dagster-dbt would copy it to every invocation under its own name.
            (target / "partial_parse.msgpack").replace(parsed_path())
    return manifest


def parsed_path() -> Path:
    """The parsed project as dbt's invocations load it; :func:`manifest_path` writes it."""
    return _target() / f"parsed-{version('dbt-core')}.msgpack"


def _target() -> Path:
    """Folder of the manifest: in the checkout, or the user's cache if that can't be written."""
    target = PROJECT / "target"
    if PROJECT != _INSTALLED and os.access(target if target.exists() else PROJECT, os.W_OK):
        return target
    # Several environments may have the package, each with its own project.
    place = hashlib.sha256(str(PROJECT).encode()).hexdigest()[:16]
    return cache_folder() / f"dbt-{place}"


def _fresh(manifest: Path) -> bool:
    inputs = (manifest, parsed_path())
    if not all(path.exists() for path in inputs):
        return False
    written = min(path.stat().st_mtime for path in inputs)
    return all(
        path.stat().st_mtime <= written
        for path in PROJECT.rglob("*")
        if path.suffix in {".sql", ".yml", ".yaml", ".md", ".csv"}
        and not path.is_relative_to(PROJECT / "target")
        and not path.is_relative_to(PROJECT / "logs")
    )


class ModelNames(DagsterDbtTranslator):
    """Sources are the raw assets; models are grouped by domain, their keys begin with the layer."""

    def __init__(self) -> None:
        super().__init__(
            settings=DagsterDbtTranslatorSettings(
                enable_asset_checks=True, enable_source_tests_as_checks=False
            )
        )

    def get_asset_key(self, dbt_resource_props: Mapping[str, Any]) -> dg.AssetKey:
        """``raw/<table>`` for sources, ``<layer>/<model>`` for models."""
        if dbt_resource_props["resource_type"] == "source":
            return asset_key(f"raw.{dbt_resource_props['name']}")
        return dg.AssetKey([_layer(dbt_resource_props), dbt_resource_props["name"]])

    def get_group_name(self, dbt_resource_props: Mapping[str, Any]) -> str | None:
        """Tables of the domain, or of what several domains are made from."""
        return f"{_domain(dbt_resource_props)}_tables"

    def get_tags(self, dbt_resource_props: Mapping[str, Any]) -> Mapping[str, str]:
        """The domain, beside dbt's own tags."""
        tags = super().get_tags(dbt_resource_props)
        return {**tags, "domain": _domain(dbt_resource_props)}

    def get_asset_check_spec(
        self, asset_spec: dg.AssetSpec, manifest: Mapping[str, Any], unique_id: str, project: Any
    ) -> dg.AssetCheckSpec | None:
        """The test with its description, where dagster-dbt takes one from ``meta`` alone."""
        spec = super().get_asset_check_spec(asset_spec, manifest, unique_id, project)
        described = manifest["nodes"][unique_id].get("description") or None
        return None if spec is None else spec._replace(description=described)

    def get_owners(self, dbt_resource_props: Mapping[str, Any]) -> list[str]:  # noqa: ARG002
        """The team."""
        return OWNERS


def _domain(props: Mapping[str, Any]) -> str:
    if props["resource_type"] == "source":
        return domain_of(f"raw.{props['name']}")
    domains = {*props.get("tags", ())} & {*DOMAINS}
    return domains.pop() if len(domains) == 1 else SHARED


def _layer(props: Mapping[str, Any]) -> str:
    return str(props["fqn"][1])
