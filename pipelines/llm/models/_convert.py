"""GGUF files as ordinary checkpoints: dequantised, saved as safetensors with the tokenizer."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import orjson

from pipelines.errors import ConfigError
from pipelines.llm.models._folder import storage_errors

__all__ = ["convert_gguf"]

#: Entries of the configuration that name the program or the file, not the model: without them
#: two machines that convert one file get one digest.
_INCIDENTAL = (
    "_from_model_config",
    "_name_or_path",
    "is_local",
    "local_files_only",
    "quantization_config",
    "transformers_version",
)


def convert_gguf(file: Path, folder: Path) -> str:
    """Write the checkpoint that a GGUF file holds, in float32.

    Parameters
    ----------
    file
        The GGUF file; of an architecture that transformers reads.
    folder
        An empty folder that gets ``model.safetensors``, the configuration and the tokenizer
        with its chat template.

    Returns
    -------
    The most frequent tensor type of the file, such as `Q4_1`.

    Raises
    ------
    ConfigError
        If the packages for it are missing, or the file is no GGUF file that can be read.
    StoreError
        If the checkpoint can't be written.
    """
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"reading a GGUF file needs {' and '.join(missing)}",
            where=str(file),
            hint="pip install 'understudy[models]'",
        )
    # Not all progress bars of transformers can be turned off.
    with _readable(file), redirect_stderr(StringIO()):
        quantisation = _quantisation(file)
        model, tokenizer = _load(file)
    with storage_errors(folder), redirect_stderr(StringIO()):
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))
        for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
            _drop_incidental(folder / name)
        _drop_added_tokens(folder / "tokenizer.json", model.config.vocab_size)
        for path in folder.iterdir():
            path.chmod(0o644)
    return quantisation


def _quantisation(file: Path) -> str:
    from collections import Counter

    from gguf import GGUFReader

    types = Counter(tensor.tensor_type.name for tensor in GGUFReader(str(file)).tensors)
    return str(types.most_common(1)[0][0])


def _load(file: Path) -> tuple[Any, Any]:
    """The model without its quantisation entry, and the tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place, name = str(file.parent), file.name
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        place, gguf_file=name, dtype=torch.float32, local_files_only=True
    )
    # transformers refuses to save a model that says it is quantised. It isn't any more.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    plain = type(model)(model.config)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    return plain, tokenizer


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    # The readers raise whatever the broken bytes lead to.
    except Exception as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise ConfigError(
            "the GGUF file can't be read",
            where=f"{file}: {line}",
            hint="it must be whole, and of an architecture that transformers reads",
        ) from error


def _drop_incidental(path: Path) -> None:
    if path.is_file():
        # Not orjson: a tokenizer's longest text may be an integer beyond 64 bits.
        config = json.loads(path.read_text(encoding="utf-8"))
        kept = {key: value for key, value in config.items() if key not in _INCIDENTAL}
        path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _drop_added_tokens(path: Path, vocabulary: int) -> None:
    """Remove tokens that the reader adds to every tokenizer and that this model has no row for."""
    tokenizer = orjson.loads(path.read_bytes())
    added = tokenizer["added_tokens"]
    tokenizer["added_tokens"] = [token for token in added if token["id"] < vocabulary]
    path.write_bytes(orjson.dumps(tokenizer))
