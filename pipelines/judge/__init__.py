"""Human judgement of ratings: blind questionnaires out, returned sheets in.

SUBER, section 4.3 and appendix E: people see who somebody is, what was rated and which rating a
rater gave, and say how sensible the answer is, not knowing whose it is; one rater of each
questionnaire draws its ratings at random.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from pipelines.errors import ConfigError, ContractError, SourceError, StoreError
from pipelines.scales import scale_named
from pipelines.seeding import combine, hash_ids, hash_text, uniform
from pipelines.store.files import whole_file

#: Name of the rater that draws at random: what judges say of it is what chance is worth.
CONTROL = "random control"
#: Characters of an item's prose that a judge is shown.
_PROSE = 700


@dataclass(frozen=True)
class Reply:
    """A rater's reply: a rating on a scale and, if given, an explanation; or a log of several."""

    #: Name of the rater.
    rater: str
    #: On `scale`; None where there is a log.
    rating: int | None
    #: Name of the scale.
    scale: str
    #: Why; None without one.
    explanation: str | None = None
    #: Lines of what was watched and rated, in their order.
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A persona, an item, and every rater's reply."""

    #: Stable name of the pair.
    key: str
    #: Text about both, as a judge reads it.
    person: str
    item: str
    #: One per rater, the control included.
    replies: tuple[Reply, ...]


def draw_cases(
    scores: Mapping[str, pl.DataFrame],
    personas: pl.DataFrame,
    items: pl.DataFrame,
    *,
    count: int = 10,
    seed: int = 0,
) -> list[Case]:
    """Pairs that every rater scored, drawn at random, with a random control added.

    A failed answer is no reply: its pair is not asked about. Explanations are kept only if
    every rater gave one for every drawn pair, and dropped otherwise: a reply without one among
    others that have one would give its rater away. (The control has none, unless the caller
    puts in one: without a model to write it, no explanation is shown.)

    Parameters
    ----------
    scores
        Rows of `preference_scores` by name of the rater, all on one scale.
    personas, items
        Tables that hold everybody and everything in them.
    count, seed
        Number of pairs, and the seed of their choice.

    Raises
    ------
    ConfigError
        If no rater is given, or fewer pairs than asked for are common to all.
    ContractError
        If the raters answered on different scales.
    """
    if not scores:
        raise ConfigError("there is no rater to judge", where="judge export")
    usable = {
        name: frame.filter(pl.col("status") == "ok") for name, frame in sorted(scores.items())
    }
    scales = {s for frame in usable.values() for s in frame["scale"].unique()}
    if len(scales) != 1:
        raise ContractError(
            "raters must answer on one scale to be compared", where=", ".join(sorted(scales))
        )
    scale = scales.pop()
    keys = ["persona_id", "item_id"]
    common = next(iter(usable.values())).select(keys)
    for frame in usable.values():
        common = common.join(frame.select(keys), on=keys, how="semi")
    common = common.sort(keys)
    if common.height < count:
        raise ConfigError(
            f"{common.height} pairs were scored by every rater, {count} are requested",
            where=", ".join(usable),
            hint="request fewer, or score the same plan with all raters",
        )
    draw = combine(seed, hash_ids(common["persona_id"]), hash_ids(common["item_id"]))
    chosen = common[np.argsort(draw)[:count].tolist()]
    return [
        _case(row, usable, personas, items, scale, seed) for row in chosen.iter_rows(named=True)
    ]


def _case(
    pair: Mapping[str, str],
    scores: Mapping[str, pl.DataFrame],
    personas: pl.DataFrame,
    items: pl.DataFrame,
    scale: str,
    seed: int,
) -> Case:
    person = personas.filter(pl.col("persona_id") == pair["persona_id"])
    item = items.filter(pl.col("item_id") == pair["item_id"])
    if not person.height or not item.height:
        raise ContractError("a scored pair has an unknown persona or item", where=f"{dict(pair)}")
    replies = []
    for rater, frame in scores.items():
        row = frame.filter(
            (pl.col("persona_id") == pair["persona_id"]) & (pl.col("item_id") == pair["item_id"])
        ).row(0, named=True)
        replies.append(Reply(rater, int(row["mode"]), scale, row.get("explanation")))
    answers = scale_named(scale).answers
    key = f"{pair['persona_id']} {pair['item_id']}"
    drawn = float(np.asarray(uniform(seed, hash_text(key), 1)).ravel()[0])
    control = int(answers[int(drawn * len(answers))])
    replies.append(Reply(CONTROL, control, scale))
    return Case(
        key, person["description"][0], _item_text(item.row(0, named=True)), tuple(_blind(replies))
    )


def _blind(replies: Sequence[Reply]) -> Sequence[Reply]:
    """All explanations or none."""
    if all(r.explanation for r in replies):
        return replies
    return [Reply(r.rater, r.rating, r.scale) for r in replies]


def _item_text(item: Mapping[str, object]) -> str:
    year = f" ({item['year']})" if item.get("year") else ""
    genres = item.get("genres")
    listed = f" {', '.join(map(str, genres))}." if isinstance(genres, list) and genres else ""
    prose = str(item.get("overview") or item.get("description") or "")
    if len(prose) > _PROSE:
        prose = prose[:_PROSE].rsplit(" ", 1)[0] + " …"
    return f"{item['title']}{year}.{listed} {prose}".strip()


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


_RESAMPLES = 2_000


@dataclass(frozen=True)
class Judgement:
    """Judges' grades by rater, with their agreement."""

    #: Rows ``rater, mean, low, high, deviation, grades``, best first; the interval is of 95 %.
    raters: list[dict[str, Any]]
    #: Krippendorff's alpha for interval data: 1 is full agreement, 0 is chance; None if no reply
    #: was graded by two judges.
    alpha: float | None
    #: Sheets returned, cases graded, and entries left without a grade (counts).
    judges: int
    cases: int
    ungraded: int


def score_sheets(key: Path, sheets: Sequence[Path], *, seed: int = 0) -> Judgement:
    """Aggregate returned sheets.

    ``key`` is the ``key.json`` of the export, ``sheets`` are the CSV files that judges sent back
    (columns ``sheet, entry, grade``; a grade may be empty). The interval of a mean comes from a
    bootstrap that draws judges and cases with replacement, both at once (Owen 2007, "The pigeonhole
    bootstrap"): grades of one judge are alike, and so are grades of one case.

    Raises
    ------
    ConfigError
        If there is no sheet, or no grade in any.
    SourceError
        If a file can't be read, an entry is not of this questionnaire or comes twice, or a
        grade is none of 1 to 5: file, line and value are named.
    """
    entries = _key(key)
    if not sheets:
        raise ConfigError("there is no returned sheet", where=str(key.parent))
    grades: dict[tuple[str, str], dict[int, int]] = {}
    seen: set[str] = set()
    ungraded = 0
    for path in sheets:
        for line, name, grade in _rows(path):
            if name not in entries:
                raise SourceError(
                    "no such entry in this questionnaire", where=f"{path}:{line}: {name}"
                )
            if name in seen:
                raise SourceError("an entry is graded twice", where=f"{path}:{line}: {name}")
            seen.add(name)
            if grade is None:
                ungraded += 1
                continue
            entry = entries[name]
            place = (entry["case"], entry["rater"])
            grades.setdefault(place, {})[entry["sheet"]] = grade
    if not grades:
        raise ConfigError("no sheet has a grade", where=", ".join(map(str, sheets)))
    cases = sorted({case for case, _ in grades})
    judges = sorted({judge for given in grades.values() for judge in given})
    raters = sorted({rater for _, rater in grades})
    cube = np.full((len(raters), len(judges), len(cases)), np.nan)
    for (case, rater), given in grades.items():
        for judge, grade in given.items():
            cube[raters.index(rater), judges.index(judge), cases.index(case)] = grade
    rows = _means(raters, cube, seed)
    return Judgement(rows, _alpha(cube), len(judges), len(cases), ungraded)


def _means(raters: list[str], cube: npt.NDArray[np.float64], seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    _, judges, cases = cube.shape
    there, filled = ~np.isnan(cube), np.nan_to_num(cube)
    means = np.full((_RESAMPLES, len(raters)), np.nan)
    for draw in range(_RESAMPLES):
        weight = np.outer(
            rng.multinomial(judges, np.full(judges, 1 / judges)),
            rng.multinomial(cases, np.full(cases, 1 / cases)),
        )
        total = (there * weight).sum(axis=(1, 2))
        with np.errstate(invalid="ignore", divide="ignore"):
            means[draw] = (filled * weight).sum(axis=(1, 2)) / total
    rows = []
    for n, rater in enumerate(raters):
        given = cube[n][there[n]]
        low, high = np.nanquantile(means[:, n], [0.025, 0.975])
        rows.append(
            {
                "rater": rater,
                "mean": float(given.mean()),
                "low": float(low),
                "high": float(high),
                "deviation": float(given.std(ddof=1)) if len(given) > 1 else 0.0,
                "grades": len(given),
            }
        )
    return sorted(rows, key=lambda row: (-row["mean"], row["rater"]))


def _alpha(cube: npt.NDArray[np.float64]) -> float | None:
    """Agreement over all replies that two judges graded at least."""
    import krippendorff

    judges = cube.shape[1]
    table = cube.transpose(1, 0, 2).reshape(judges, -1)
    paired = table[:, (~np.isnan(table)).sum(axis=0) >= 2]
    if paired.shape[1] == 0:
        return None
    if np.nanmin(paired) == np.nanmax(paired):
        return 1.0
    return float(krippendorff.alpha(paired, level_of_measurement="interval"))


def _key(path: Path) -> dict[str, dict[str, Any]]:
    try:
        content = orjson.loads(path.read_bytes())
        entries: dict[str, dict[str, Any]] = content["entries"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        raise SourceError(
            "not the key of a questionnaire",
            where=str(path),
            hint="give the key.json that `understudy judge export` wrote",
        ) from None
    return entries


def _rows(path: Path) -> list[tuple[int, str, int | None]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            if not reader.fieldnames or set(COLUMNS) - set(reader.fieldnames):
                raise SourceError(
                    "the sheet's columns are not those of the export",
                    where=str(path),
                    hint=f"expected {', '.join(COLUMNS)}",
                )
            return [
                (reader.line_num, row["entry"], _grade(path, reader.line_num, row))
                for row in reader
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(
            f"the sheet can't be read ({type(error).__name__})", where=str(path)
        ) from None


def _grade(path: Path, line: int, row: dict[str, Any]) -> int | None:
    text = (row["grade"] or "").strip()
    if not text:
        return None
    if text not in {str(g) for g in GRADES}:
        raise SourceError(
            "a grade is not 1 to 5", where=f"{path}:{line}: {text[:40]}", hint="or empty"
        )
    return int(text)
