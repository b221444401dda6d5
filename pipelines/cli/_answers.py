"""``understudy answers``: what model calls are stored, reading them, and tidying up."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli import options as cli

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.llm.answers import AnswerStats, AnswerStore, GcReport, StoredAnswer
    from pipelines.llm.engines import Status

answers = cli.group("The answer store: all model calls made so far, indexed by request.")
#: Characters of an answer shown in a list.
_EXCERPT = 60


class Which(StrEnum):
    """Statuses of answers, as options take them."""

    OK = "ok"
    TRUNCATED = "truncated"
    INVALID = "invalid"
    REFUSED = "refused"
    ENGINE_ERROR = "engine_error"


@answers.command()
@cli.command(rows="models")
def stats(
    call: cli.Call,
) -> None:
    """Count stored answers by model and status, their tokens, and damaged files.

    JSON: {"folder", "answers", "failed", "files", "bytes", "oldest", "newest",
    "statuses": {status: count}, "models": [{"engine", "engine_version", "model",
    "revision", "weights", "tokenizer", "dtype", "quantisation", "answers",
    "statuses", "prompt_tokens", "completion_tokens", "cached_tokens",
    "seconds"}], "problems": [{"file", "reason"}]}.
    """
    store = _store(call)
    found = store.stats()
    payload = {"folder": str(store.folder), **found.to_dict()}

    def render(screen: Console) -> None:
        screen.print(str(store.folder), soft_wrap=True)
        if found.answers:
            _draw_stats(screen, found)
        else:
            screen.print("No answers are stored.")
        for problem in found.problems:
            screen.print(
                f"damaged, not counted: {problem.file} ({problem.reason})",
                style="yellow",
                soft_wrap=True,
            )
        if found.failed:
            screen.print(
                f"`understudy answers gc` would drop {found.failed:,} failed rows.", style="dim"
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
    found = store.select(key=key.lower(), statuses=_statuses(status), model=model, limit=limit)
    payload = {"answers": [answer.to_dict() for answer in found]}

    def render(screen: Console) -> None:
        if not found:
            screen.print("No such answer is stored.")
        elif len(found) == 1:
            _draw_answer(screen, found[0])
        else:
            rows = [
                (a.key[:12], a.status, _excerpt(a), a.identity.model,
                 cli.human_age(a.stored_at.isoformat()))
                for a in found
            ]  # fmt: skip
            columns = ("key", "status", "answer", "model", "age")
            screen.print(cli.table(*columns, rows=rows, numeric=["age"]))
            if len(found) == limit:
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

    def render(screen: Console) -> None:
        _draw_report(screen, report, store)

    call.emit(_as_dict(report), render)


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

    def render(screen: Console) -> None:
        screen.print(f"{count:,} answers written to {out}", soft_wrap=True)

    call.emit({"file": str(out), "answers": count}, render)


def _store(call: cli.Call) -> AnswerStore:
    from pipelines.llm.answers import AnswerStore

    return AnswerStore(call.home, call.settings.serving)


def _statuses(chosen: list[Which] | None) -> list[Status]:
    from pipelines.llm.engines import STATUSES

    return [status for status in STATUSES if Which(status) in (chosen or [])]


def _as_dict(report: GcReport) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(report)


def _draw_stats(screen: Console, found: AnswerStats) -> None:
    span = ""
    if found.oldest is not None and found.newest is not None:
        old, new = (cli.human_age(moment.isoformat()) for moment in (found.oldest, found.newest))
        span = f", {old} to {new} old"
    screen.print(
        f"{found.answers:,} answers in {found.files:,} files, {cli.human_bytes(found.size)}{span}"
    )
    figures = ["answers", "tokens in", "cached", "tokens out"]
    rows = [
        (f"{e.identity.model}\n{e.identity.engine}", e.answers, e.prompt_tokens, e.cached_tokens,
         e.completion_tokens,
         "\n".join(f"{n} {s}" for s, n in sorted(e.statuses.items()) if n and s != "ok"))
        for e in found.models
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


def _draw_report(screen: Console, report: GcReport, store: AnswerStore) -> None:
    verb = "would be dropped" if report.dry_run else "dropped"
    dropped = report.failed + report.forgotten + report.corrupt
    screen.print(
        f"{dropped:,} of {report.answers:,} rows {verb}: {report.failed:,} failed, "
        f"{report.forgotten:,} forgotten, {report.corrupt:,} damaged"
    )
    if not report.dry_run:
        screen.print(
            f"{cli.human_bytes(report.bytes_before)} before, "
            f"{cli.human_bytes(report.bytes_after)} now"
        )
    for problem in report.set_aside:
        where = "damaged" if report.dry_run else f"damaged, also in {store.folder / 'corrupt'}"
        screen.print(f"{where}: {problem.file} ({problem.reason})", style="yellow", soft_wrap=True)


def _excerpt(answer: StoredAnswer) -> str:
    line = answer.text if answer.status == "ok" else answer.detail
    text = " ".join((line or "-").split())
    return text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "…"
