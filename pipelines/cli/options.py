"""Commands by declaration, and helpers that they share, also those of higher layers.

A command is a function of a :class:`Call` and its own options. The decorator adds the options that
every command has and those of the settings that it names::

    @cli.command({"--n": "personas.count"}, rows="personas")
    def show(call: cli.Call, long: Annotated[bool, typer.Option("--long")] = False) -> None:
        call.emit(payload, render)

It raises :class:`pipelines.errors.UnderstudyError` for faults; the top level prints one line and
sets the exit code.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pipelines.cli._terminal import (
    INTERRUPTED,
    console,
    human_age,
    human_bytes,
    human_seconds,
    progress_bar,
    show,
    shown_outcomes,
    table,
    write_csv,
    write_json,
)
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pipelines.config import Settings
    from pipelines.store import Release, Store

__all__ = [
    "INTERRUPTED",
    "REF_HELP",
    "Call",
    "DryRunOption",
    "RefArgument",
    "ReleaseOption",
    "command",
    "complete_refs",
    "console",
    "expected_calls",
    "folder_option",
    "group",
    "human_age",
    "human_bytes",
    "human_seconds",
    "key_values",
    "newest_run",
    "overrides_of",
    "port_fault",
    "progress_bar",
    "shown_outcomes",
    "table",
    "write_json",
]


def complete_refs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Release references in the store that start with what was typed (shell completion)."""
    import os

    home = Path(ctx.params.get("home") or os.environ.get("UNDERSTUDY_HOME") or ".understudy")
    refs = sorted(p.stem for p in (home / "releases").glob("*@*.json"))
    names = sorted({ref.partition("@")[0] for ref in refs})
    return [r for r in [*(f"{n}@latest" for n in names), *refs] if r.startswith(incomplete)]


def folder_option(flag: str, help: str) -> Any:  # noqa: A002
    """Declare an optional folder that a command writes, for ``Annotated[Path | None, ...]``."""
    return typer.Option(flag, file_okay=False, help=help)


#: Forms of a release's name, for the help of options and arguments.
REF_HELP = "Release: NAME@latest, NAME@VERSION (a prefix is enough), NAME, latest, or a lock file."
RefArgument = Annotated[str, typer.Argument(help=REF_HELP, autocompletion=complete_refs)]
ReleaseOption = Annotated[
    str, typer.Option("--release", help=REF_HELP, autocompletion=complete_refs)
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Show what a language model would be asked, and do nothing."),
]


def overrides_of(home: Path | str | None, assignments: Sequence[str] | None) -> dict[str, Any]:
    """The nested mapping that ``--home`` and ``--set`` stand for.

    >>> overrides_of("here", ["personas.count=50", "personas.seed=1"])
    {'personas': {'count': '50', 'seed': '1'}, 'runtime': {'home': 'here'}}
    >>> overrides_of(None, ['scoring.ensemble=[{"rater": "llm"}, {"rater": "statistical"}]'])
    {'scoring': {'ensemble': [{'rater': 'llm'}, {'rater': 'statistical'}]}}

    Raises
    ------
    ConfigError
        If a text is not ``section.key=value``.
    """
    from pipelines.config import read_value

    out: dict[str, Any] = {}
    for text in assignments or ():
        key, sign, value = text.partition("=")
        parts = key.strip().split(".")
        if not sign or len(parts) < 2 or not all(parts):
            raise ConfigError(
                "--set takes section.key=value", where=key, hint="such as personas.count=50"
            )
        _assign(out, parts, read_value(value), f"--set {key}")
    if home is not None:
        out.setdefault("runtime", {})["home"] = str(home)
    return out


def _assign(tree: dict[str, Any], parts: list[str], value: Any, where: str) -> None:
    for part in parts[:-1]:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigError("two values for one setting", where=where)
    tree[parts[-1]] = value


def key_values(texts: list[str] | None, flag: str, example: str) -> dict[str, Any]:
    """Options of a plug-in's class from ``key=value`` texts; a value is JSON, or else text.

    >>> key_values(["depth=2", "name=x"], "--agent-option", "depth=2")
    {'depth': 2, 'name': 'x'}
    """
    import json

    out: dict[str, Any] = {}
    for text in texts or ():
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"{flag} takes key=value", where=text, hint=f"such as {example}")
        try:
            out[key.strip()] = json.loads(value)
        except json.JSONDecodeError:
            out[key.strip()] = value
    return out


def port_fault(host: str, port: int) -> str | None:
    """Reason why no server can listen there; None if one can.

    >>> port_fault("127.0.0.1", 0) is None
    True
    """
    import socket

    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # As a web server would: a port in TIME_WAIT counts as free.
        socket.create_server(address[:2], family=family).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def newest_run(root: Path, file: str, kind: str, command: str) -> Path:
    """The newest folder below ``root`` that holds a run's ``file``; ConfigError without any."""
    runs = sorted(root.glob(f"*/{file}"), key=lambda path: path.stat().st_mtime)
    if not runs:
        raise ConfigError(f"no finished run of {kind}", where=str(root), hint=command)
    return runs[-1].parent


@dataclass(frozen=True)
class Call:
    """One call of a command: its settings, and the form in which it prints its result."""

    settings: Settings
    #: What options set, over file and environment.
    overrides: dict[str, Any]
    #: The settings file, if one is named.
    config: Path | None = None
    as_json: bool = False
    #: True if rows are printed as CSV, and the payload's list that holds them.
    as_csv: bool = False
    rows: str = ""

    @property
    def home(self) -> Path:
        """The store's folder."""
        return self.settings.runtime.home

    @property
    def quiet(self) -> bool:
        """True if the result is for a program: no bars, no text."""
        return self.as_json or self.as_csv

    def also(self, overrides: Mapping[str, Any]) -> Call:
        """The call with more settings set, over all others."""
        from pipelines.config import load_settings

        merged = _merged(self.overrides, overrides)
        return replace(self, overrides=merged, settings=load_settings(self.config, merged))

    def store(self) -> Store:
        """Open the store."""
        from pipelines.store import Store

        return Store(self.home)

    def ref(self, ref: str) -> str:
        """A release reference with its name: ``latest`` alone means the configured release."""
        return f"{self.settings.release.name}@latest" if ref == "latest" else ref

    def release(self, ref: str) -> Release:
        """Open a release of the store, or a packaged one; see `pipelines.packaged.open_stored`."""
        from pipelines.packaged import open_stored

        return open_stored(self.ref(ref), self.settings)

    def progress(
        self, text: str, unit: str = "", *, lines: bool = False
    ) -> AbstractContextManager[None]:
        """Show a progress bar, unless the result is for a program; see :func:`progress_bar`."""
        return progress_bar(text, unit=unit, disable=self.quiet, lines=lines)

    def emit(
        self,
        payload: Mapping[str, Any] | Sequence[Any],
        *shown: str | Table | Callable[[Console], None],
    ) -> None:
        """Print the result: the documented payload as JSON, its rows as CSV, or else ``shown``.

        That is lines, tables, and functions that draw on the console, in this order.
        """
        if self.as_csv:
            write_csv(payload[self.rows] if isinstance(payload, Mapping) else payload)
        elif self.as_json:
            write_json(payload)
        else:
            show(*shown)


def _merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    return dict(values) | {
        key: _merged(values.get(key, {}), value) if isinstance(value, Mapping) else value
        for key, value in more.items()
    }


def _shared(
    set: Annotated[  # noqa: A002
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Set one setting, such as personas.count=50; may be repeated.",
        ),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="The store's folder (default: UNDERSTUDY_HOME, else .understudy).",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="Settings file (default: UNDERSTUDY_CONFIG, else understudy.yaml if there is "
            "one).",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of text.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print the rows as CSV instead of text.")
    ] = False,
) -> None:
    """Options of every command; the last one of those whose result has rows."""


def command(
    settings: Mapping[str, str] | None = None, *, rows: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a command: a function of a :class:`Call` and of options of its own.

    Parameters
    ----------
    settings
        Options that set settings, such as ``{"--n": "personas.count"}``. Their help, type, range
        and default are the settings', which validate the values.
    rows
        Key of the payload's list that ``--csv`` prints; ``""`` if the payload is a list. Without
        it there is no ``--csv``.
    """
    flags = dict(settings or {})

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        named = {f"set_{flag.lstrip('-').replace('-', '_')}": flag for flag in flags}
        shared = dict(inspect.signature(_shared, eval_str=True).parameters)
        if rows is None:
            del shared["csv"]

        @functools.wraps(function)
        def called(**values: Any) -> None:
            from pipelines.config import load_settings

            given = {flags[flag]: values.pop(name) for name, flag in named.items()}
            options = {name: values.pop(name) for name in shared}
            if options["json"] and options.get("csv"):
                raise ConfigError("--json and --csv exclude each other", where="--csv")
            overrides = overrides_of(options["home"], options["set"])
            for key, value in given.items():
                if value not in (None, []):
                    _assign(overrides, key.split("."), value, key)
            call = Call(
                load_settings(options["config"], overrides),
                overrides,
                options["config"],
                options["json"],
                options.get("csv", False),
                rows or "",
            )
            function(call, **values)

        settings_options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=_setting_option(flag, flags[flag]),
            )
            for name, flag in named.items()
        ]
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            # Defaults may stand before parameters without any: all are passed by name.
            [
                parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                for parameter in (*parameters, *settings_options, *shared.values())
            ]
        )
        return called

    return decorate


def _setting_option(flag: str, key: str) -> Any:
    """An option that sets a setting; its text is validated with the other settings."""
    from pipelines.config import setting_of

    field, takes = setting_of(key)
    repeated = isinstance(field.default, tuple)
    default = ", ".join(map(str, field.default)) if repeated else field.default
    words = {"a whole number": "<int>", "a number": "<float>", "a path": "<path>"}
    about = [f"setting {key}", *([takes] if takes not in ("text", "a path") else [])]
    about += [f"default {default}"] if default not in (None, "") else []
    return Annotated[
        list[str] | None if repeated else str | None,
        typer.Option(
            flag,
            metavar=next((kind for word, kind in words.items() if takes.startswith(word)), "<str>"),
            help=f"{field.description} ({'; '.join(about)})" + " May be repeated." * repeated,
        ),
    ]


def group(help: str, former: str | None = None) -> typer.Typer:  # noqa: A002
    """A group of commands.

    ``former`` is the command that the group's name alone called in the last version. It still
    does, with a warning.
    """

    class _Group(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if former and self._of_former(args, ctx):
                if not ctx.resilient_parsing:
                    console(stderr=True).print(
                        f"warning: `{ctx.command_path}` is now `{ctx.command_path} {former}`; the "
                        "old spelling goes with the next version",
                        soft_wrap=True,
                    )
                args = [former, *args]
            return super().parse_args(ctx, args)

        def _of_former(self, args: list[str], ctx: Any) -> bool:
            if not args or args[0].startswith("-"):
                return not args or args[0] not in ctx.help_option_names
            takes_words = any(
                p.param_type_name == "argument" for p in self.commands[str(former)].params
            )
            return args[0] not in self.commands and takes_words

    app = typer.Typer(help=help, cls=_Group, no_args_is_help=former is None)
    app.callback()(_no_options)  # a group, even of one command
    return app


def _no_options() -> None:
    pass


def expected_calls(call: Call, builds: Sequence[tuple[str, str]], dry_run: bool) -> bool:
    """Show the expected calls of a model, before builds of tables, each for a cohort.

    They go to standard error, and are the command's result in a dry run. Returns ``dry_run``.
    """
    from pipelines.stages import expect_calls, stage_of

    store = call.store()
    calls = [
        one
        for dataset, cohort in builds
        for one in expect_calls([stage_of(dataset)], store, call.settings, cohort)
    ]
    totals: dict[str, Any] = {
        "requests": sum(one.requests for one in calls),
        "prompt_tokens": sum(one.prompt_tokens for one in calls),
        "completion_tokens": sum(one.completion_tokens for one in calls),
        "seconds": sum(one.seconds for one in calls),
        "price": None if any(c.price is None for c in calls) else sum(c.price or 0 for c in calls),
    }

    def render(screen: Console) -> None:
        if not calls:
            screen.print("No language model is asked: no tokens, no price.")
            return
        price = totals["price"]
        shown = "unknown (serving.input_price)" if price is None else f"{price:,.2f}"
        rows = [(c.table, c.requests, c.prompt_tokens, c.completion_tokens) for c in calls]
        heads = ("table", "requests", "prompt tokens", "answer tokens")
        screen.print(table(*heads, rows=rows, numeric=heads[1:]))
        screen.print(
            f"About {totals['requests']:,} requests, {human_seconds(totals['seconds'])} at "
            f"{call.settings.serving.concurrency} at once (0.5 s and 50 tokens a second each), "
            f"price {shown}. Stored answers are not asked again; serving.max_cost is a limit.",
            soft_wrap=True,
        )

    if dry_run:
        call.emit({"calls": [one.as_json() for one in calls], **totals}, render)
    elif calls and not call.quiet and call.settings.engine.kind != "none":
        render(console(stderr=True))
    return dry_run
