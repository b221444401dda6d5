"""``understudy doctor``: what is in order on this machine, and what to do about the rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pipelines.cli._doctor_checks import Finding
from pipelines.cli.options import (
    ConfigOption,
    HomeOption,
    JsonOption,
    emit,
    open_settings,
    progress_bar,
    table,
)
from pipelines.errors import UnderstudyError

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.config import Settings
    from pipelines.llm.engines import Answer, Engine


#: Scales whose reading is shown: those that answers are asked on.
_SCALES = ("0-9", "1-10", "one-ten", "1-5", "0-100")
#: Share of its probability below which a model hardly answers with one of the options.
_LITTLE = 0.1


def check_engines(_settings: Settings, _home: Path) -> Finding:
    """Which engines can run here, and on what."""
    from pipelines.llm.engines import ENGINES
    from pipelines.llm.engines.vllm import vllm_version

    vllm = vllm_version()
    ready = {
        "transformers": _transformers(),
        "vllm": f"{vllm} ({_vllm_device()})" if vllm else "not installed",
        "vllm_server": "needs an environment with vLLM (make vllm)",
        "openai": f"httpx {_version('httpx')}, needs a server",
        "guidance": f"{_version('guidance')}, one answer at a time",
        "scripted": "built in",
    }
    return Finding("ok", "; ".join(f"{name}: {ready.get(name, 'known')}" for name in ENGINES))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _transformers() -> str:
    try:
        import torch
    except ImportError:
        return "torch can't be imported"
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [f"cuda:{n}" for n in range(torch.cuda.device_count())]
    return f"{_version('transformers')}, torch {torch.__version__} ({', '.join(devices)})"


def _vllm_device() -> str:
    """By its distribution: importing vLLM takes ten seconds."""
    return "cpu" if _version("vllm") == "missing" else "gpu"


def model_findings(settings: Settings) -> Iterator[tuple[str, Finding]]:
    """Check the configured model; yield the name of a line and what was found, per check.

    With no engine configured that is one line. Otherwise the model is loaded (or the server asked),
    its tokenizer's reading of every rating scale is shown, and one prompt is answered.
    """
    from pipelines.llm.engines import ENGINES, load_engine

    if settings.engine.kind == "none":
        yield (
            "language model",
            Finding(
                "ok",
                "none configured: everything uses the statistical implementations; to use one set "
                f"engine.kind ({', '.join(ENGINES)}) and engine.model; {_offer(settings)}",
            ),
        )
        return
    began = time.perf_counter()
    try:
        engine = load_engine(settings.engine, settings.serving)
    except UnderstudyError as error:
        yield "language model", _failed(error)
        return
    with closing(engine):
        yield "language model", _loaded(engine, time.perf_counter() - began)
        yield from _scale_findings(settings)
        yield "smoke test", _smoke(engine)


def _offer(settings: Settings) -> str:
    """Which checkpoints are here already, or how to get one."""
    from pipelines.llm.models import PUBLISHED, ModelFolder

    models = settings.serving.models
    here = [] if models is None else [stored.name for stored in ModelFolder(models).list()]
    if here:
        return f"here: {', '.join(here)} (such as engine.kind transformers, engine.model {here[0]})"
    return f"`understudy models get {next(iter(PUBLISHED))}` fetches one that runs on any CPU"


def _failed(error: UnderstudyError) -> Finding:
    found = error.what + (f": {error.where}" if error.where else "")
    return Finding("fail", " ".join(found.split()), error.hint or "see docs/engines.md")


def _loaded(engine: Engine, seconds: float) -> Finding:
    identity, facts = engine.identity, engine.metadata()
    parts = [f"{identity.engine} {identity.engine_version}", identity.model]
    parts += [str(p) for p in (identity.revision, identity.dtype) if p]
    if identity.quantisation != "none":
        parts.append(identity.quantisation)
    if identity.weights:
        parts.append(f"weights {identity.weights[:12]}")
    parts.append(f"device {facts.get('device', 'unknown')}")
    if facts.get("context"):
        parts.append(f"context {facts['context']:,} tokens")
    parts.append(f"ready in {seconds:.1f} s")
    found = "; ".join(parts) + f"; distributions by {facts.get('distributions', 'unknown')}"
    return Finding("ok", found)


def _scale_findings(settings: Settings) -> Iterator[tuple[str, Finding]]:
    """How the model's tokenizer cuts the answers of each scale, where it is to be had."""
    from pipelines.llm.engines import Message
    from pipelines.llm.engines.chat import read_template, render_text
    from pipelines.prompts import answer_start, scale_report
    from pipelines.raters import model_tokenizer
    from pipelines.scales import SCALES

    try:
        tokenizer = model_tokenizer(settings.engine, settings.serving)
        if tokenizer is None:
            yield (
                "rating scales",
                Finding("ok", "the server's own tokenizer reads them; see how it reads choices"),
            )
            return
        template = read_template(settings.serving.chat_template)
        question = render_text(tokenizer, [Message("user", "How many stars?")], template)
    except UnderstudyError as error:
        yield "rating scales", _failed(error)
        return
    for name in _SCALES:
        scale = SCALES[name]
        try:
            reading = scale_report(tokenizer, scale, question + answer_start(scale))
        except UnderstudyError as error:
            yield f"scale {name}", _failed(error)
            continue
        if reading.adds_up:
            yield f"scale {name}", Finding("ok", reading.describe())
        else:
            advice = "end the prompt where a new token begins, on a line break or a space"
            yield f"scale {name}", Finding("warn", reading.describe(), advice)


def _smoke(engine: Engine) -> Finding:
    """One prompt, answered."""
    from pipelines.llm.engines import Choice, Message, Request

    options = tuple("12345")
    request = Request(
        (
            Message("system", "You rate films with 1 to 5 stars. Answer with the number alone."),
            Message("user", "A quiet drama about two friends and a boat. How many stars?"),
        ),
        constraint=Choice(options),
    )
    began = time.perf_counter()
    try:
        [answer] = engine.submit([request])
    except UnderstudyError as error:
        return _failed(error)
    return _judged(answer, time.perf_counter() - began)


def _judged(answer: Answer, seconds: float) -> Finding:
    if answer.status != "ok" or answer.probabilities is None:
        found = f"the answer is {answer.status}: {answer.detail or answer.finish_reason}"
        return Finding("fail", found, "see docs/engines.md for what the engine needs")
    best = max(answer.probabilities)
    found = f'"{answer.text}" of 1-5 with {best:.0%}, {answer.prompt_tokens} tokens'
    found += f" in {seconds * 1000:,.0f} ms"
    if answer.mass is None:
        return Finding("ok", found)
    found += f"; {answer.mass:.0%} of the model's probability is on the five answers"
    if answer.mass >= _LITTLE:
        return Finding("ok", found)
    return Finding(
        "warn",
        found,
        "the model hardly answers like this: is it instruction-tuned, and its chat template right?",
    )


_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Check this installation, machine and language model; exit code 1 if a line fails.

    If a language model is configured it is loaded and asked one question.

    JSON: {"checks": [{"name", "status": "ok", "warn" or "fail", "found",
    "advice"}], "summary": {"ok", "warn", "fail"}}.
    """
    from pipelines.cli._doctor_checks import CHECKS

    settings = open_settings(home, config)
    checks = {**CHECKS, "engines": check_engines}
    rows: list[dict[str, str]] = []

    def note(name: str, finding: Finding) -> None:
        rows.append({"name": name, **asdict(finding)})

    with progress_bar("checking", total=len(checks) + 1, unit="checks", disable=as_json) as advance:
        for name, check in checks.items():
            advance(0, text=name)
            note(name, check(settings, Path(settings.runtime.home)))
            advance()
        advance(0, text="language model")
        for name, finding in model_findings(settings):
            note(name, finding)
        advance()
    counts = Counter(str(row["status"]) for row in rows)
    summary = {status: counts[status] for status in _STYLE}

    def render(screen: Console) -> None:
        grid = table("check", "", "found")
        for row in rows:
            found = str(row["found"]) + (f"\n→ {row['advice']}" if row["advice"] else "")
            grid.add_row(str(row["name"]), _mark(str(row["status"])), found)
        screen.print(grid)
        screen.print(", ".join(f"{n} {status}" for status, n in summary.items()))

    emit({"checks": rows, "summary": summary}, render, as_json=as_json)
    if summary["fail"]:
        raise typer.Exit(1)


def _mark(status: str) -> Any:
    from rich.text import Text

    return Text(status, style=_STYLE[status])
