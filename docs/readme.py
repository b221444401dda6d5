"""Write the blocks of pages that show output: run their commands and code, put in what they print.

python docs/readme.py [--check] [--homes FOLDER] [--archive ml-latest-small.zip] [BLOCK ...]

A block stands below a comment such as ``<!-- docs/readme.py: first -->``. ``--check`` compares
and writes nothing. Long output is shortened; a run's duration and folder are left out.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Pages with blocks.
PAGES = (ROOT / "README.md", ROOT / "docs/training.md")
#: A comment with a block's name, and the block: fenced, or a table.
BLOCK = re.compile(
    r"(?<=^<!-- docs/readme\.py: )(\w+)( -->\n+)(```text\n.*?\n```|\|.*?\|)(?=\n\n)", re.M | re.S
)
#: Lines of a description, rows and columns of a report on training that are shown.
DESCRIPTION = 3
ROWS = ("random", "popular", "mean-rating", "best common list", "a2c", "oracle")
COLUMNS = {
    "recommender": "recommender",
    "average_reward": "Average reward",
    "headroom": "Headroom earned",
    "liked@10": "Liked, top 10",
    "disliked@10": "Disliked, top 10",
}
#: A figure with its interval.
FIGURE = re.compile(r"(-?\d+\.\d+) \[(-?\d+\.\d+), (-?\d+\.\d+)\]")


class Session:
    """A user's shell, in a folder that is the home of its commands."""

    def __init__(self, home: Path) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("UNDERSTUDY_", "TMDB_"))}
        self.home = home.resolve()
        self.env = clean | {"UNDERSTUDY_HOME": str(self.home), "COLUMNS": "80"}

    def understudy(self, *words: str) -> str:
        """What the command prints."""
        return self._printed(Path(sys.executable).with_name("understudy"), *words)

    def python(self, code: str) -> str:
        """What the code prints."""
        return self._printed(sys.executable, "-c", code)

    def _printed(self, *words: str | Path) -> str:
        self.home.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            words, cwd=self.home, env=self.env, stdout=subprocess.PIPE, text=True, check=True
        )
        return "\n".join(map(str.rstrip, done.stdout.splitlines()))


def first(homes: Path) -> str:
    """What README's first code prints where there is no home; the description is shortened."""
    session = Session(homes / "nothing")
    del session.env["UNDERSTUDY_HOME"]
    shown = session.python(_code("play_episode("))
    persona, *rest = shown.strip().split("\n\n")
    lines = persona.splitlines()
    tastes = sum(line.startswith(("likes ", "dislikes ")) for line in lines[1:3])
    lines[1 + tastes + DESCRIPTION :] = ["[...]"]
    return "```text\n" + "\n\n".join(["\n".join(lines), *rest]) + "\n```"


def training(homes: Path) -> str:
    """Rows and columns of the report that the page's code prints."""
    shown = _real(homes).python(_code("= train("))
    head, line, *rows = (
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in shown.splitlines()
        if row.startswith("|")
    )
    places = [head.index(column) for column in COLUMNS]
    chosen = [line, *(row for row in rows if row[0] in ROWS)]
    cells = [[*COLUMNS.values()], *([row[n] for n in places] for row in chosen)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


#: Our figure, its control, or the value that it is compared with, on the page of claims.
MEASURED = re.compile(r" is (.*?) \(n [\d,]+\)(?:; control (.*?); |, against (\d+)\.)")
#: Question and name of the control, by the experiment that answers on the page of claims.
QUESTIONS = {
    "rating": (
        "Are ratings expected as well as by the best simple rule? (RMSE, 1-5)",
        "user and item biases",
    ),
    "believability": ("Are held-out items told from equally popular ones? (AUC)", "EASE"),
    "offline": ("Do agents rank nine recommenders as held-out items do? (tau)", "by chance"),
    "judge": ("Does a blind judge take visits for people's? (grade 1-5)", "people's own"),
}


def people(_homes: Path) -> str:
    """The packaged release beside its people, and four rows of the page of claims."""
    from pipelines.packaged import SAMPLE_HOME
    from understudy import open_release

    table = open_release("movies", home=SAMPLE_HOME)["population"].polars().rows_by_key("figure")
    ((_, *figures),) = table["item_person_share"]
    ours, theirs = (
        f"{value:.3f} [{low:.3f}, {high:.3f}]" for value, low, high in (figures[:3], figures[3:6])
    )
    apart = figures[1] > figures[5] or figures[4] > figures[2]
    rows = [
        "| question | simulated | people or baseline | verdict |",
        "|---|---|---|---|",
        "| Do personas differ as people do? (item x person share of variance) | "
        f"{ours} | people {theirs} | {'no: the intervals are apart' if apart else 'yes'} |",
    ]
    claims = (ROOT / "docs/reproduction.md").read_text("utf-8").splitlines()
    for name, (question, beside) in QUESTIONS.items():
        (line,) = (line for line in claims if line.startswith(f"| [`{name}`]"))
        *_, measured, verdict, _ = line.split(" |")
        ours, control, bound = MEASURED.findall(measured)[0]
        short = verdict.partition(":")[0].strip().lower()
        rows.append(
            f"| {question} | {ours} | {beside} {control.rpartition(': ')[2] or bound} | {short} |"
        )
    return "\n".join(rows)


@cache
def _real(homes: Path) -> Session:
    """A session after the run on real data."""
    session = Session(homes / "real")
    (line,) = re.findall(r"^\$ understudy (run .*--source.*)$", PAGES[1].read_text("utf-8"), re.M)
    session.understudy(*line.split())
    return session


def _code(mark: str) -> str:
    """The block of the pages' Python that holds a text."""
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    return next(block for block in blocks if mark in block)


#: Makers of the blocks, by the name in the comment.
BLOCKS = {"first": first, "people": people, "training": training}


def _agree(stated: str, printed: str) -> bool:
    """Compare a line; figures of a trained policy agree if they are within the other's interval.

    Torch uses the processor's newest instructions, and sums differ in their last digits.
    """
    if "| a2c |" not in stated:
        return stated == printed
    pairs = zip(FIGURE.findall(stated), FIGURE.findall(printed), strict=False)
    return FIGURE.sub("", stated) == FIGURE.sub("", printed) and all(
        float(low) <= float(value) <= float(high) for (value, *_), (_, low, high) in pairs
    )


def main() -> None:
    """Write the blocks, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("blocks", nargs="*", metavar="BLOCK", help=f"of {', '.join(BLOCKS)}")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--homes", type=Path, help="folder of the homes; default: a new one")
    parser.add_argument("--archive", type=Path, help="a copy of ml-latest-small.zip")
    options = parser.parse_args()
    names = options.blocks or list(BLOCKS)
    texts = {page: page.read_text("utf-8") for page in PAGES}
    shown = {match[1]: match[3] for text in texts.values() for match in BLOCK.finditer(text)}
    if unknown := set(names) - set(shown) | set(shown) ^ set(BLOCKS):
        sys.exit(f"no block, or no maker of it: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as scratch:
        homes = options.homes or Path(scratch)
        if options.archive:  # a file that is there is verified, not downloaded
            folder = homes / "real/downloads/ml-latest-small/movielens"
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(options.archive, folder)
        printed = {name: BLOCKS[name](homes) for name in names}
    if not options.check:
        for page, text in texts.items():
            new = BLOCK.sub(lambda m: f"{m[1]}{m[2]}{printed.get(m[1], m[3])}", text)
            page.write_text(new, encoding="utf-8")
        return
    stale = False
    for name in names:
        before, after = shown[name].splitlines(), printed[name].splitlines()
        if len(before) != len(after) or not all(map(_agree, before, after)):
            stale = True
            lines = difflib.unified_diff(before, after, f"page, {name}", "printed", lineterm="")
            print("\n".join(lines))
    if stale:
        sys.exit("a page shows other output than is printed: run `make readme`")


if __name__ == "__main__":
    main()
