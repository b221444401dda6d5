"""Checkpoints: the state of a model and its environment, in one verified file.

`<folder>/step-<steps>.pt` holds nested dicts of tensors and plain values (read without unpickling
anything else); `<folder>/step-<steps>.json` beside it, written after it, holds its size and hash.
Both are written atomically. A file without its `.json` is incomplete and ignored.
"""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from pipelines.errors import ConfigError, IntegrityError
from pipelines.store.files import LocalFiles

if TYPE_CHECKING:
    from sim.training._adapter import SB3VecEnv

#: The latest checkpoints are kept, so that there is one before a damaged one (count).
KEPT = 3
#: Bumped when earlier checkpoints can't be resumed.
FORMAT = 2


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: its ``.pt`` file and the steps that were taken before it.

    ``metadata`` is the content of the ``.json``: size, hash, settings, release, hashes of the item
    and persona sets.
    """

    path: Path
    steps: int
    metadata: dict[str, Any]


def checkpoints(folder: Path) -> list[Checkpoint]:
    """The complete checkpoints of a folder, by steps."""
    complete = []
    for metadata in sorted(folder.glob("step-*.json")):
        try:
            stored = orjson.loads(metadata.read_bytes())
            complete.append(Checkpoint(metadata.with_suffix(".pt"), int(stored["steps"]), stored))
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue  # another file, or a truncated one
    return sorted(complete, key=lambda c: c.steps)


def save(folder: Path, steps: int, state: dict[str, Any], metadata: dict[str, Any]) -> Path:
    """Write a checkpoint and remove all but the latest; StoreError if it can't be written."""
    import torch as th

    buffer = io.BytesIO()
    th.save(packed(state), buffer)
    data = buffer.getvalue()
    path = folder / f"step-{steps:010d}.pt"
    content = {
        **metadata,
        "format": FORMAT,
        "steps": steps,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    write(path, data)
    write(path.with_suffix(".json"), orjson.dumps(content, option=orjson.OPT_INDENT_2))
    for old in checkpoints(folder)[:-KEPT]:
        old.path.with_suffix(".json").unlink(missing_ok=True)
        old.path.unlink(missing_ok=True)
    return path


def write(path: Path, data: bytes) -> None:
    """Write a file atomically, and remove unfinished files of killed processes."""
    files = LocalFiles(path.parent)
    files.sweep()
    files.put(path, data)
    with suppress(OSError):  # another process writes there
        files.staging_root.rmdir()


def load(checkpoint: Checkpoint) -> dict[str, Any]:
    """Read a checkpoint's state.

    IntegrityError if the file is missing, cut short or changed (the hint names the checkpoint
    before it); ConfigError if it is of another version of the project's format.
    """
    import torch as th

    path, metadata = checkpoint.path, checkpoint.metadata
    if metadata.get("format") != FORMAT:
        raise ConfigError(
            f"a checkpoint of format {metadata.get('format')}, not {FORMAT}",
            where=str(path),
            hint="train again, or use the version that wrote it",
        )
    data = path.read_bytes() if path.is_file() else b""
    if len(data) != metadata["bytes"]:
        raise _damaged(checkpoint, f"{len(data):,} of {metadata['bytes']:,} bytes")
    if hashlib.sha256(data).hexdigest() != metadata["sha256"]:
        raise _damaged(checkpoint, "not the bytes that were written")
    state: dict[str, Any] = unpacked(th.load(io.BytesIO(data), weights_only=True))
    return state


def _damaged(checkpoint: Checkpoint, how: str) -> IntegrityError:
    before = [c for c in checkpoints(checkpoint.path.parent) if c.steps < checkpoint.steps]
    hint = (
        f"go on from the one before it: --checkpoint {before[-1].path}"
        if before
        else "there is none before it: train again without --resume"
    )
    return IntegrityError(
        f"the checkpoint is damaged ({how})",
        where=str(checkpoint.path),
        hint=hint,
        details={"before": [str(c.path) for c in before]},
    )


def packed(value: Any) -> Any:
    """Replace arrays by tensors in nested dicts, lists and tuples; tensors load without pickles."""
    import torch as th

    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            raise TypeError("an array of objects can't be checkpointed")
        raw = np.ascontiguousarray(value)
        return {
            "array": th.frombuffer(bytearray(raw.tobytes()), dtype=th.uint8)
            if raw.nbytes
            else th.zeros(0, dtype=th.uint8),
            "dtype": raw.dtype.str,
            "shape": list(value.shape),
        }
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {k: packed(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(packed(v) for v in value)
    return value


def unpacked(value: Any) -> Any:
    """Inverse of `packed`.

    >>> back = unpacked(packed({"a": np.arange(3, dtype=np.uint32), "b": [np.float64(2.5), "x"]}))
    >>> back["a"].dtype, back["a"].tolist(), back["b"]
    (dtype('uint32'), [0, 1, 2], [2.5, 'x'])
    """
    if isinstance(value, dict):
        if value.keys() == {"array", "dtype", "shape"}:
            raw = value["array"].numpy().tobytes()
            return np.frombuffer(raw, np.dtype(value["dtype"])).reshape(value["shape"]).copy()
        return {k: unpacked(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(unpacked(v) for v in value)
    return value


#: Counters of stable-baselines3's models, as far as a model has them.
_COUNTERS = (
    "num_timesteps",
    "_n_updates",
    "_episode_num",
    "_current_progress_remaining",
    "_n_calls",
    "exploration_rate",
)


def model_state(model: Any, env: SB3VecEnv) -> dict[str, Any]:
    """Networks, optimiser, counters, observations, random generators, replay buffer, environment.

    Transitions that were collected and not yet learnt from are left out: take it between rollouts.
    """
    import torch as th

    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002 - SB3's
    state: dict[str, Any] = {
        "policy": model.policy.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        "counters": {name: getattr(model, name) for name in _COUNTERS if hasattr(model, name)},
        "observation": model._last_obs,
        "episode_starts": model._last_episode_starts,
        "torch": th.get_rng_state(),
        "numpy": [kind, keys, position, has_gauss, gauss],
        "env": env.state(),
    }
    buffer = getattr(model, "replay_buffer", None)
    if buffer is not None:
        state["replay"] = buffer.stored()
    return state


def restore_model(model: Any, env: SB3VecEnv, state: dict[str, Any]) -> None:
    """Resume from a `model_state` of a model with the same settings."""
    import torch as th

    model.policy.load_state_dict(state["policy"])
    model.policy.optimizer.load_state_dict(state["optimizer"])
    for name, value in state["counters"].items():
        setattr(model, name, value)
    model._last_obs = state["observation"]
    model._last_episode_starts = state["episode_starts"]
    env.restore(state["env"])
    if "replay" in state:
        model.replay_buffer.restore(state["replay"])
    # Last: making the model has drawn from these generators.
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys, position, has_gauss, gauss))  # noqa: NPY002
    th.set_rng_state(state["torch"])
