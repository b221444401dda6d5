"""A disk that fills up under the answer store: an error that says so, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.calls import LineEngine, answer, question

from pipelines.config import ServingSettings
from pipelines.errors import StoreError
from pipelines.llm.answers import AnswerStore, Tally, ask
from pipelines.llm.engines import Answer, Request

pytestmark = [pytest.mark.faults, pytest.mark.pipeline]

SERVING = ServingSettings(commit_every=20)


def long(request: Request) -> Answer:
    """A text of 4 KiB that doesn't compress well."""
    dice = request.tag.to_bytes(4)
    return answer(request, text=(dice * 4 + os.urandom(2048)).hex())


def test_a_run_that_fills_the_disk_ends_and_goes_on_after_space_is_made(small_disk: Path) -> None:
    home = small_disk / "home"
    filler = small_disk / "filler"
    filler.write_bytes(b"\0" * 600_000)
    asked = [question(n, tag=n) for n in range(300)]
    engine = LineEngine(long)
    store = AnswerStore(home)
    with pytest.raises(StoreError) as caught:
        list(ask(engine, asked, store, serving=SERVING))
    text = str(caught.value)
    assert text.startswith("no space left on the disk")
    assert "bytes are free" in text
    stored = store.committed
    assert f"{stored} answers of this run are stored, 20 are not" in text
    assert len(engine.asked) == stored + 20
    assert 0 < stored < 300
    assert AnswerStore(home).stats().answers == stored
    filler.unlink()
    assert store.flush() == 20, "what could not be written was kept"
    again = LineEngine(lambda r: answer(r))
    tally = Tally()
    fresh = AnswerStore(home)
    assert len(list(ask(again, asked, fresh, serving=SERVING, tally=tally))) == 300
    assert (tally.hits, tally.calls) == (stored + 20, 280 - stored)


def test_a_limit_on_file_sizes_is_one_clear_error(tmp_path: Path) -> None:
    """Runs without special rights: the kernel refuses the write with EFBIG."""
    root = Path(__file__).parents[2]
    code = (
        "import resource, sys\n"
        f"sys.path[:0] = [{str(root)!r}, {str(root / 'tests')!r}, {str(Path(__file__).parent)!r}]\n"
        "from test_answers_full_disk import *\n"
        f"store = AnswerStore({str(tmp_path)!r}, ServingSettings(commit_every=1000))\n"
        "made = [long(question(n, tag=n)) for n in range(200)]\n"
        "from support.calls import IDENTITY\n"
        "store.add(IDENTITY, made)\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))\n"
        "try: store.flush()\n"
        "except StoreError as error: print(error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))\n"
        "assert store.flush() == 200\n"
        "print(store.stats().answers)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("the file size limit is reached")
    assert result.stdout.splitlines()[-1] == "200"
    assert result.stderr == ""
