"""Checkpoints on disk: where a model is, what it is called, and digests of its files."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import ConfigError, EngineError, StoreError
from pipelines.hints import first_line
from pipelines.store import Store
from pipelines.store.files import known_sha256

__all__ = ["CHECKPOINT_FILES", "Checkpoint", "find_checkpoint", "no_progress_bars", "pinned_model"]

#: A dataset of the store and its version.
_SNAPSHOT = re.compile(r"[a-z][a-z0-9_]*\.[a-z0-9_]+@(latest|[0-9a-f]{4,16})")

#: Files that decide what a model computes.
_WEIGHTS = ("*.safetensors", "config.json", "generation_config.json")
#: Files that decide how text becomes tokens.
_TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.*",
)
#: Files of a checkpoint, as patterns; no pickled weights, no code.
CHECKPOINT_FILES = (*_WEIGHTS, *_TOKENIZER, "*.safetensors.index.json")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's folder on this machine, and its public name."""

    folder: Path
    name: str

    def weight_files(self) -> list[Path]:
        """Files of the weights; EngineError if there is no ``.safetensors`` file."""
        files = sorted(self.folder.glob("*.safetensors"))
        if not files:
            raise EngineError(
                "the checkpoint has no .safetensors file",
                where=str(self.folder),
                hint="other formats can run code when they are read; convert it",
            )
        return files

    def weights_digest(self) -> str:
        """SHA-256 (hex) over names and bytes of the weights and the model's configuration.

        Raises EngineError if there is no ``.safetensors`` file.
        """
        self.weight_files()
        return self._digest(_WEIGHTS)

    def tokenizer_digest(self, chat_template: str | None = None) -> str:
        """SHA-256 (hex) over names and bytes of the tokenizer's files, and a given template."""
        digest = self._digest(_TOKENIZER)
        if chat_template is None:
            return digest
        return hashlib.sha256(f"{digest}\n{chat_template}".encode()).hexdigest()

    def copy_tokenizer(self, folder: Path) -> None:
        """Copy the tokenizer's files to another folder."""
        for pattern in _TOKENIZER:
            for file in self.folder.glob(pattern):
                shutil.copyfile(file, folder / file.name)

    def _digest(self, patterns: tuple[str, ...]) -> str:
        files = sorted({f for p in patterns for f in self.folder.glob(p) if f.is_file()})
        digest = hashlib.sha256()
        for file in files:
            digest.update(f"{file.name} {known_sha256(file)}\n".encode())
        return digest.hexdigest()


def find_checkpoint(
    model: str, revision: str = "", models: Path | None = None, home: Path | None = None
) -> Checkpoint:
    """The checkpoint that ``engine.model`` names.

    Parameters
    ----------
    model
        The name of a checkpoint that ``understudy models get`` fetched; a folder; a dataset of
        the store with its version (``movies.rating_model@latest``); or ``maker/model`` on the
        Hugging Face hub, whose files are taken from the local cache or fetched, unless
        ``HF_HUB_OFFLINE`` forbids it.
    revision
        Commit or tag, for a name on the hub.
    models
        Folder of fetched checkpoints (``serving.models``).
    home
        Store of the datasets (``serving.home``). The version is part of the checkpoint's name.

    Raises
    ------
    ConfigError
        If there is no checkpoint of that name or in that folder.
    EngineError
        If a named model can't be had from the hub.
    """
    bare = "/" not in model and not model.startswith((".", "~"))
    if bare and models is not None and (models / model / "config.json").is_file():
        return Checkpoint(models / model, model)
    if home is not None and _SNAPSHOT.fullmatch(model):
        model = pinned_model(model, home)
        dataset, _, version = model.partition("@")
        return Checkpoint(Store(home).get(dataset, version).path, model)
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError("the folder holds no checkpoint", where=f"{folder}: no config.json")
        return Checkpoint(folder, folder.resolve().name)
    if model.startswith(("/", ".", "~")) or model.count("/") > 1:
        raise ConfigError("there is no such folder", where=f"engine.model is {model}")
    if bare:
        raise ConfigError(
            "no checkpoint of this name is on this machine",
            where=f"engine.model is {model}",
            hint=f"understudy models get {model}; or a folder, or maker/model on the hub",
        )
    return Checkpoint(_fetched(model, revision), model)


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Reading and writing of checkpoints without the progress bars of transformers."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def pinned_model(model: str, home: Path) -> str:
    """A model of the store with its version in place of ``latest``; other names as they are.

    Raises ConfigError if the store has no such model.
    """
    if not _SNAPSHOT.fullmatch(model):
        return model
    dataset, _, version = model.partition("@")
    try:
        store = Store(home)
        snapshot = store.current(dataset) if version == "latest" else store.get(dataset, version)
    except StoreError as error:
        raise ConfigError(
            "the store has no such model",
            where=f"engine.model is {model}: {error}",
            hint="understudy run --job train_rater",
        ) from None
    return f"{dataset}@{snapshot.version}"


def _fetched(model: str, revision: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(model, revision=revision or None, allow_patterns=[*CHECKPOINT_FILES])
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        line = first_line(error)
        raise EngineError(
            "the model is neither a folder nor available on the hub",
            where=f"{model}: {line}",
            hint="give the folder of a checkpoint as engine.model",
        ) from error
