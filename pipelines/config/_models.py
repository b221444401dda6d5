"""Settings of language models: which one answers (identity), and how it is run (runtime)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, SecretStr

from pipelines.config._base import Home, Section


class EngineSettings(Section):
    """The language model that answers; part of every answer's key."""

    # It decides whether a reply is taken, never what one says: the answers that are stored are
    # the same under both values, and so are their keys and what is built from them.
    runtime_fields = frozenset({"require_model"})

    kind: Literal[
        "none", "transformers", "vllm", "vllm_server", "openai", "guidance", "scripted"
    ] = Field(
        "none",
        description="`none`: no model, statistical implementations everywhere. `transformers` and "
        "`vllm` load a model in this process, `vllm_server` starts vLLM's "
        "server out of its own environment for the run, `openai` asks any OpenAI-compatible "
        "server, `guidance` writes constrained answers with Guidance's own loop, one at a time, "
        "`scripted` answers by rule (tests, demos).",
    )
    model: str = Field(
        "",
        description="Name of a model fetched with `understudy models get`, folder of a Hugging "
        "Face checkpoint, `maker/model` on the hub, `movies.rating_model@latest` (a model that "
        "was trained here), or the model's name on the server.",
    )
    revision: str = Field("", description="Commit or tag of the model, where it has one.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Precision of the weights; `auto`: bfloat16 on a GPU, float32 on a CPU.",
    )
    quantisation: str = Field(
        "none", description="Quantisation of the weights, as the engine names it."
    )
    draws: int = Field(
        0,
        ge=0,
        le=1000,
        description="Answers drawn to estimate the distribution of a closed choice on a server "
        "that shows no probabilities (openai; count). A share has a standard error of at most "
        "0.5/√draws. 0 refuses such choices, since an estimate should be asked for.",
    )
    require_model: Literal["any", "exact"] = Field(
        "any",
        description="`exact`: a reply that names another model than the one asked for, or none, "
        "ends the run (openai). `any`: it is taken and logged. Which model answered is in each "
        "answer's detail either way; answers that are stored already are not asked again.",
    )


class ServingSettings(Section):
    """Execution of the model: changes speed and cost, never an answer's key."""

    identity: ClassVar[bool] = False

    device: str = Field("auto", description="`auto`, `cpu`, `cuda` or `cuda:0` (transformers).")
    window: int = Field(256, ge=1, description="Requests in flight or waiting (count).")
    batch_tokens: int = Field(
        16_384, ge=64, description="Tokens per forward pass (transformers, vllm; count)."
    )
    prefix_reuse: bool = Field(
        True,
        description="Whether prompts that begin alike share the work for it (transformers, vllm); "
        "off only for measuring and for checking.",
    )
    base_url: str = Field(
        "http://127.0.0.1:8000/v1", description="Root of the OpenAI-compatible server."
    )
    api_key: SecretStr | None = Field(
        None,
        description="Key of the server, from the environment only: UNDERSTUDY_SERVING__API_KEY or "
        "OPENAI_API_KEY. A key in a file is refused.",
    )
    tokenizer: Path | None = Field(
        None,
        description="Folder or file with the tokenizer of the server's model (openai): prompts "
        "are then made as token ids here. Without it the server's own tokenizer is used where "
        "it offers one, else its chat endpoint.",
    )
    concurrency: int = Field(32, ge=1, le=4096, description="Most HTTP requests in flight (count).")
    timeout: float = Field(120.0, gt=0, description="Limit for one HTTP request (seconds).")
    retries: int = Field(6, ge=0, le=50, description="Further tries after a transient fault.")
    max_wait: float = Field(120.0, gt=0, description="Longest honoured Retry-After (seconds).")
    max_tokens: int | None = Field(
        None, ge=1, description="Stop the run after this many tokens in and out (count)."
    )
    max_cost: float | None = Field(
        None, ge=0, description="Stop the run after this cost (in the currency of the prices)."
    )
    input_price: float = Field(0.0, ge=0, description="Price of a million prompt tokens.")
    output_price: float = Field(0.0, ge=0, description="Price of a million completion tokens.")
    error_budget: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Share of failed answers above which a run stops (after the first hundred).",
    )
    vllm_python: Path | None = Field(
        None,
        description="Python of the environment that has vLLM (vllm_server); default: "
        "`.venv-vllm/bin/python` in the working folder.",
    )
    start_seconds: float = Field(
        600.0, gt=0, description="Longest wait for a server that the run starts (seconds)."
    )
    tensor_parallel: int = Field(1, ge=1, description="GPUs per model replica (vllm).")
    pipeline_parallel: int = Field(1, ge=1, description="Pipeline stages per replica (vllm).")
    data_parallel: int = Field(1, ge=1, description="Replicas (vllm).")
    gpu_memory: float = Field(0.9, gt=0, le=1, description="Share of GPU memory to use (vllm).")
    kv_cache_gib: float | None = Field(
        None,
        gt=0,
        description="Memory for cached prompts (GiB, vllm); default: what `gpu_memory` leaves on a "
        "GPU, 1 on a CPU.",
    )
    max_context: int | None = Field(
        None, ge=16, description="Longest context (tokens); default: the model's own."
    )
    commit_every: int = Field(500, ge=1, description="Answers per stored part (count).")
    commit_seconds: float = Field(30.0, gt=0, description="Longest time between parts (seconds).")
    keep_requests: bool = Field(
        False,
        description="Store the question beside each answer, for people to read; prompts are most "
        "of what a store then holds.",
    )
    models: Path | None = Field(
        None, description="Folder of fetched models; default: `models` in the store's folder."
    )
    home: Home | None = Field(
        None,
        description="Store whose rating models `engine.model` may name; default: the run's own.",
    )
    chat_template: Path | None = Field(
        None, description="Jinja file with a chat template, for models that bring none."
    )
