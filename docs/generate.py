"""Write reference pages and dbt's YAML of raw tables and marts; ``--check`` only compares.

python docs/generate.py [--check]
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from pipelines.cli.main import EXIT_CODES, RootGroup, load_command
from pipelines.cli.main import commands as registered
from pipelines.config import Section, Settings
from pipelines.contracts import (
    ABLATIONS,
    CONTRACTS,
    DIALOGUE,
    EXPERIMENTS,
    MATCHING,
    PUBLISHED,
    RAW,
    SIMULATIONS,
    TRAINING,
    TUNING,
    Contract,
)
from pipelines.contracts.dbt import mart_models
from pipelines.domains import DOMAINS
from pipelines.warehouse import SOURCES

ROOT = Path(__file__).resolve().parents[1]
DBT = ROOT / "dbt"
_SOURCES_YAML, _TABLES = "models/staging/_sources.yml", "    tables:\n"
NOTE = "<!-- Written by docs/generate.py; change the code, then run `make docs`. -->\n\n"


def tables() -> str:
    """The tables reference, from the contracts."""
    out = [NOTE, "# Tables\n\n"]
    out.append(
        "Every table has one contract in `pipelines/contracts`; this page is written from it. "
        "Keys are strings that stay the same across versions. Lists are never null, only empty. "
        "A release holds the published tables under their short names.\n\n"
    )
    for title, group in (
        ("Published tables", PUBLISHED),
        ("Matched personas", MATCHING),
        ("Raw snapshots", RAW),
        ("Ablation suites", ABLATIONS),
        ("Trained policies", TRAINING),
        ("Rating models", TUNING),
        ("Visits of simulated users", SIMULATIONS),
        ("Experiments on simulated users", EXPERIMENTS),
        ("Shopping dialogues", DIALOGUE),
    ):
        out.append(f"## {title}\n\n")
        for dataset, contract in group.items():
            out.append(_table(dataset, contract))
    return "".join(out)


def _table(dataset: str, contract: Contract) -> str:
    lines = [f"### `{dataset}`\n\n{contract.description}\n\n"]
    lines.append(f"Key: {', '.join(f'`{c}`' for c in contract.key)}.\n\n")
    lines.append("| column | type | null | meaning | unit | range |\n|---|---|---|---|---|---|\n")
    lines.extend(
        f"| `{c.name}` | {c.dtype} | {'yes' if c.nullable else ''} | {c.description} "
        f"| {c.unit} | {c.range} |\n"
        for c in contract.columns()
    )
    return "".join(lines) + "\n"


def settings() -> str:
    """The settings reference, from the settings tree."""
    out = [NOTE, "# Settings\n\n"]
    out.append(
        "One tree, highest precedence first: command line (`--set section.key=value`), environment "
        "(`UNDERSTUDY_<SECTION>__<KEY>`), `understudy.yaml` (or the file that `UNDERSTUDY_CONFIG` "
        "or `--config` names), defaults. An unknown key is an error. *Identity* sections are "
        "hashed into versions; *runtime* sections never are. Secrets come from the environment "
        "only.\n\n"
    )
    for name, field in Settings.model_fields.items():
        section = field.annotation
        assert isinstance(section, type)
        assert issubclass(section, Section)
        kind = "identity" if section.identity else "runtime"
        out.append(f"## `{name}` ({kind})\n\n{_first_line(section)}\n\n")
        out.append("| key | type | default | meaning |\n|---|---|---|---|\n")
        out.extend(_rows(section, ""))
        out.append("\n")
    return "".join(out)


def _rows(section: type[BaseModel], prefix: str) -> list[str]:
    rows = []
    for key, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            rows.extend(_rows(inner, f"{prefix}{key}."))
            continue
        default: Any = field.default if field.default is not PydanticUndefined else ""
        kind = _kind(inner)
        rows.append(f"| `{prefix}{key}` | {kind} | `{default}` | {field.description} |\n")
    return rows


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) is tuple:
        inner = [a for a in get_args(annotation) if a is not Ellipsis]
        return "list of " + " and ".join(dict.fromkeys(_kind(a) for a in inner))
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{option}`" for option in get_args(annotation))
    options = [o for o in get_args(annotation) if o is not type(None)]
    if options:
        return " or ".join(_kind(option) for option in options) + ", or empty"
    return str(annotation.__name__)


def _first_line(section: type[BaseModel]) -> str:
    return (section.__doc__ or "").strip().splitlines()[0]


def marts(domain: str) -> str:
    """Dbt's models of a domain's published tables: from the contracts and the declared tests."""
    tests = yaml.safe_load((DBT / "mart_tests.yml").read_text(encoding="utf-8"))
    names = {table: f"{domain}.{table}" for table in tests}
    declared = {table: PUBLISHED[name] for table, name in names.items() if name in PUBLISHED}
    note = "# Written by `make docs` from pipelines/contracts and dbt/mart_tests.yml.\n"
    return note + mart_models(domain, declared, tests)


def sources() -> str:
    """Dbt's raw tables, from the contracts; what stands above them in the file stays."""
    text = (DBT / _SOURCES_YAML).read_text(encoding="utf-8")
    out = [text.partition(_TABLES)[0] + _TABLES]
    for name in SOURCES:
        contract = CONTRACTS[name]
        out.append(f"      - name: {name.removeprefix('raw.')}\n")
        out.append(f"        description: {_quoted(contract.description)}\n        columns:\n")
        for column in contract.columns():
            out.append(f"          - name: {column.name}\n")
            out.append(f"            description: {_quoted(column.description)}\n")
    return "".join(out)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def commands() -> str:
    """The reference of the command line, from its own help."""
    import typer

    from pipelines.cli.main import app

    root = typer.main.get_command(app)
    assert isinstance(root, RootGroup)
    out = [NOTE, "# Commands\n\n"]
    out.append(
        "Most commands take `--json` and `--home`; "
        "`understudy COMMAND --help` prints the same text.\n\n"
    )
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    out.append(f"| exit code | meaning |\n|---|---|\n{codes}\n")
    context = typer.Context(root, info_name="understudy")
    for name in root.list_commands(context):
        out.extend(_command(load_command(registered()[name]), f"understudy {name}"))
    return "".join(out)


def _command(command: Any, path: str) -> Iterator[str]:
    about = inspect.cleandoc(command.help or "").replace("\b\n", "")
    head, _, rest = about.partition("\n\n")
    yield f"## `{path}`\n\n{' '.join(head.split())}\n\n"
    if rest:
        yield f"```text\n{rest.rstrip()}\n```\n\n"
    if inner := getattr(command, "commands", None):
        for name in sorted(inner):
            yield from _command(inner[name], f"{path} {name}")
        return
    yield "| option | meaning | default |\n|---|---|---|\n"
    for option in command.params:
        shown = getattr(option, "show_default", False)
        default = option.default if shown and option.default not in (None, False, ()) else ""
        name = ", ".join(option.opts) if option.param_type_name == "option" else option.name.upper()
        text = " ".join((option.help or "").split()).replace("|", "\\|")
        yield f"| `{name}` | {text} | {f'`{default}`' if default != '' else ''} |\n"
    yield "\n"


def files() -> dict[Path, str]:
    """Content of every generated file."""
    return {
        ROOT / "docs/reference/tables.md": tables(),
        ROOT / "docs/reference/settings.md": settings(),
        ROOT / "docs/reference/commands.md": commands(),
        DBT / _SOURCES_YAML: sources(),
        **{DBT / f"models/marts/_{d}__models.yml": marts(d) for d in DOMAINS},
    }


def main() -> int:
    """Write or compare the files; exit code 1 if one is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    stale = []
    for path, text in files().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"out of date: {', '.join(stale)} (run `make docs`)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
