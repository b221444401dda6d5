"""Settings of language models: which one answers (identity), and how it is run (runtime)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, SecretStr

from pipelines.config._base import Home, Section
from pipelines.seams import ENGINES


def _kind(name: str) -> str:
    return name if name == "none" else ENGINES.checked(name)


class EngineSettings(Section):
    """The language model that answers; part of every answer's key."""

    # It decides whether a reply is taken, never what one says: the answers that are stored are
    # the same under both values, and so are their keys and what is built from them.
    runtime_fields = frozenset({"require_model"})

    kind: Annotated[str, AfterValidator(_kind)] = Field(
        "none",
        description="`none`: no model, statistical implementations everywhere. `transformers` and "
        "`vllm` load a model in this process, `vllm_server` starts vLLM's server from "
        "its own environment for the run, `openai` uses any OpenAI-compatible server, "
        "`guidance` writes constrained answers with Guidance's own loop, one at a "
        "time, `scripted` answers by rule (tests, demos).",
    )
    model: str = Field(
        "",
        description="Name of a model fetched with `understudy models get`, folder of a Hugging "
        "Face checkpoint, `maker/model` on the hub, `movies.rating_model@latest` (a "
        "model trained here), or the model's name on the server.",
    )
    revision: str = Field("", description="Commit or tag of the model, if it has one.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Precision of the weights; `auto`: bfloat16 on a GPU, float32 on a CPU."
    )
    quantisation: str = Field(
        "none", description="Quantisation of the weights, by the engine's name."
    )
    draws: int = Field(
        0,
        ge=0,
        le=1000,
        description="Answers sampled to estimate the distribution of a closed choice on a server "
        "that returns no probabilities (openai; count). A share has a standard error "
        "of at most 0.5/√draws. 0 refuses such choices: an estimate must be requested "
        "explicitly.",
    )
    require_model: Literal["any", "exact"] = Field(
        "any",
        description="`exact`: a reply that names another model than the requested one, or none, "
        "ends the run (openai). `any`: it is accepted and logged. Each answer's "
        "detail names the model that answered; stored answers are not requested again.",
    )


class ServingSettings(Section):
    """Execution of the model: affects speed and cost, never an answer's key."""

    identity: ClassVar[bool] = False

    device: str = Field("auto", description="`auto`, `cpu`, `cuda` or `cuda:0` (transformers).")
    window: int = Field(256, ge=1, description="Requests in flight or waiting (count).")
    batch_tokens: int = Field(
        16_384, ge=64, description="Tokens per forward pass (transformers, vllm; count)."
    )
    prefix_reuse: bool = Field(
        True,
        description="Whether prompts with a common prefix share its computation (transformers, "
        "vllm); turn off only to measure or check.",
    )
    base_url: str = Field(
        "http://127.0.0.1:8000/v1", description="Root of the OpenAI-compatible server."
    )
    api_key: SecretStr | None = Field(
        None,
        description="API key of the server, from the environment only: "
        "UNDERSTUDY_SERVING__API_KEY or OPENAI_API_KEY. A key in a file is refused.",
    )
    tokenizer: Path | None = Field(
        None,
        description="Folder or file with the tokenizer of the server's model (openai), to send "
        "prompts as token ids. Default: the server's own tokenizer if it offers one, "
        "else its chat endpoint.",
    )
    concurrency: int = Field(
        32, ge=1, le=4096, description="Maximum HTTP requests in flight (count)."
    )
    timeout: float = Field(120.0, gt=0, description="Timeout of an HTTP request (seconds).")
    retries: int = Field(6, ge=0, le=50, description="Retries after a transient error (count).")
    max_wait: float = Field(
        120.0, gt=0, description="Maximum Retry-After that is honoured (seconds)."
    )
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
        description="Python of the environment with vLLM (vllm_server); default: "
        "`.venv-vllm/bin/python` in the working directory.",
    )
    start_seconds: float = Field(
        600.0, gt=0, description="Maximum wait for a server started by the run (seconds)."
    )
    tensor_parallel: int = Field(1, ge=1, description="GPUs per model replica (vllm).")
    pipeline_parallel: int = Field(1, ge=1, description="Pipeline stages per replica (vllm).")
    data_parallel: int = Field(1, ge=1, description="Replicas (vllm).")
    gpu_memory: float = Field(0.9, gt=0, le=1, description="Share of GPU memory to use (vllm).")
    kv_cache_gib: float | None = Field(
        None,
        gt=0,
        description="Memory for cached prompts (GiB, vllm); default: the memory that `gpu_memory` "
        "leaves on a GPU, 1 on a CPU.",
    )
    max_context: int | None = Field(
        None, ge=16, description="Maximum context (tokens); default: the model's own."
    )
    commit_every: int = Field(500, ge=1, description="Answers per stored part (count).")
    commit_seconds: float = Field(30.0, gt=0, description="Maximum time between parts (seconds).")
    keep_requests: bool = Field(
        False,
        description="Store the request with each answer, for inspection; prompts then make up "
        "most of the store.",
    )
    models: Path | None = Field(
        None, description="Folder of fetched models; default: `models` in the store's folder."
    )
    home: Home | None = Field(
        None,
        description="Store with the rating models that `engine.model` may name; default: the "
        "run's own.",
    )
    chat_template: Path | None = Field(
        None, description="Jinja file with a chat template, for models without one."
    )
