"""Fetching a model while the disk is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import StoreError
from pipelines.llm.models import ModelFolder, get_model

pytestmark = [pytest.mark.faults, pytest.mark.pipeline]


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_full_disk_is_one_line_and_leaves_nothing(
    small_disk: Path, tmp_path: Path, tiny_model: Path, kind: str
) -> None:
    source = tiny_model
    if kind == "gguf":
        pytest.importorskip("gguf", reason="the extra `models` is not installed")
        from support.gguf_files import write_gguf

        source = write_gguf(tiny_model, tmp_path / "tiny.gguf")
    models = small_disk / "models"
    with pytest.raises(StoreError, match="no space left on the disk") as caught:
        get_model(models, "mine", origin=str(source))
    assert "\n" not in str(caught.value)
    assert ModelFolder(models).list() == []
    assert [p.name for p in (models / "_staging").iterdir()] == []
