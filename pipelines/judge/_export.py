"""Questionnaires: one self-contained page and one sheet per judge, and the key that stays here."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from pipelines.errors import ConfigError, StoreError
from pipelines.judge._cases import Case, Reply
from pipelines.scales import scale_named
from pipelines.store.files import whole_file

KEY_FILE = "key.json"
#: Columns of a returned sheet.
COLUMNS = ("sheet", "entry", "grade")
#: Wording of the grades (SUBER asks for 1 to 5; the wording is ours).
GRADES = {
    1: "makes no sense for this person",
    2: "unlikely",
    3: "possible",
    4: "likely",
    5: "just what this person would say",
}


@dataclass(frozen=True)
class Questionnaire:
    """Files of a questionnaire."""

    #: Where.
    folder: Path
    #: One HTML page and one CSV sheet per judge.
    pages: tuple[Path, ...]
    sheets: tuple[Path, ...]
    #: File that maps entries to raters; not for judges.
    key: Path
    #: Entries on each sheet (count).
    entries: int


def export_questionnaire(
    cases: Sequence[Case], folder: Path, *, judges: int = 1, seed: int = 0
) -> Questionnaire:
    """Write questionnaires that hide the raters of the replies into an empty or new folder.

    Every judge (``judges`` is a count) gets every reply once, in an order of their own; the names
    of entries are hashes that differ between judges. Pages hold no address and load nothing: a
    judge opens one in a browser, grades, and saves a CSV file to send back.

    Raises
    ------
    ConfigError
        If there is nothing to ask, or the folder has files in it.
    StoreError
        If it can't be written.
    """
    if not cases or judges < 1:
        raise ConfigError("a questionnaire needs a case and a judge", where=str(folder))
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            "the folder has files in it", where=str(folder), hint="name a new or an empty one"
        )
    key: dict[str, Any] = {"version": 1, "seed": seed, "entries": {}}
    pages, sheets = [], []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for judge in range(1, judges + 1):
            asked = [(case, reply) for case in cases for reply in case.replies]
            random.Random(f"{seed}:{judge}").shuffle(asked)  # noqa: S311 - an order, no secret
            named = [(_name(seed, judge, case, reply), case, reply) for case, reply in asked]
            for name, case, reply in named:
                key["entries"][name] = {"sheet": judge, "case": case.key, "rater": reply.rater}
            sheet = folder / f"sheet-{judge:02d}.csv"
            page = folder / f"sheet-{judge:02d}.html"
            _write(sheet, _sheet(judge, named))
            _write(page, _page(judge, named))
            sheets.append(sheet)
            pages.append(page)
        # Last: a folder without its key is an export that did not finish.
        _write(folder / KEY_FILE, orjson.dumps(key, option=orjson.OPT_INDENT_2).decode())
    except OSError as error:
        raise StoreError(
            f"the questionnaire can't be written ({error.strerror})", where=str(folder)
        ) from None
    entries = sum(len(case.replies) for case in cases)
    return Questionnaire(folder, tuple(pages), tuple(sheets), folder / KEY_FILE, entries)


Named = Sequence[tuple[str, Case, Reply]]


def _name(seed: int, judge: int, case: Case, reply: Reply) -> str:
    text = f"{seed}|{judge}|{case.key}|{reply.rater}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _sheet(judge: int, named: Named) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((judge, name, "") for name, _, _ in named)
    return out.getvalue()


def _page(judge: int, named: Named) -> str:
    body = "\n".join(
        _entry(n, len(named), name, case, reply) for n, (name, case, reply) in enumerate(named, 1)
    )
    legend = "".join(f"<li><b>{g}</b> {html.escape(text)}</li>" for g, text in GRADES.items())
    return _PAGE.format(judge=judge, entries=len(named), legend=legend, body=body)


def _entry(number: int, of: int, name: str, case: Case, reply: Reply) -> str:
    scale = scale_named(reply.scale)
    why = f"<p><b>Why:</b> {html.escape(reply.explanation)}</p>" if reply.explanation else ""
    grades = "".join(
        f'<label><input type="radio" name="{name}" value="{grade}"> {grade}</label>'
        for grade in GRADES
    )
    ends = f"{scale.low:g} to {scale.high:g}"
    given = f"<p><b>Rating given:</b> {reply.rating} on a scale from {ends}</p>"
    if reply.log:
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in reply.log)
        given = f"<p><b>Then:</b></p><ol>{lines}</ol>"
    return (
        f'<section><h2>{number} of {of}</h2><p class="who">{html.escape(case.person)}</p>'
        f'<p class="what">{html.escape(case.item)}</p>'
        f"{given}{why}<fieldset>{grades}</fieldset></section>"
    )


#: Braces of the style and the script are doubled for `str.format`.
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Questionnaire {judge}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto;
  padding: 0 1rem; }}
section {{ border-top: 1px solid #ccc; padding: 1rem 0; }}
.who {{ background: #f3f6fa; padding: .6rem; }} .what {{ background: #faf6ee; padding: .6rem; }}
label {{ margin-right: 1.4rem; }} fieldset {{ border: 0; padding: 0; }}
button {{ font-size: 1rem; padding: .5rem 1.2rem; }} #left {{ color: #a00; }}
</style></head><body>
<h1>How sensible is each rating?</h1>
<p>Below are {entries} ratings that a person may have given. Read who the person is and what
was rated, and grade how well the rating fits that person. Judge each one alone; there is no right
number of good or bad ones.</p><ul>{legend}</ul>
{body}
<p><button onclick="save()">Save my grades</button> <span id="left"></span></p>
<script>
function save() {{
  const names = [...new Set([...document.querySelectorAll('input')].map(i => i.name))];
  const rows = names.map(n => [{judge}, n, (document.querySelector(
    `input[name="${{n}}"]:checked`) || {{value: ''}}).value]);
  const open = rows.filter(r => r[2] === '').length;
  document.getElementById('left').textContent = open ? open + ' without a grade' : '';
  const text = 'sheet,entry,grade\\n' + rows.map(r => r.join(',')).join('\\n') + '\\n';
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], {{type: 'text/csv'}}));
  link.download = 'sheet-{judge:02d}.csv';
  link.click();
}}
</script></body></html>
"""


def _write(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode())
