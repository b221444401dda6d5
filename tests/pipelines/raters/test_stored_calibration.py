"""A calibration as a file: what is read back, what is refused, what it decides."""

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ConfigError
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.raters import LLMRater
from pipelines.raters.report.calibration import fit_calibration, read_calibration
from pipelines.scales import SCALES


@pytest.fixture
def fitted():
    rng = np.random.default_rng(0)
    sharp = np.full((400, 5), 0.0125)
    answer = rng.integers(0, 5, 400)
    # Says 95 %, is right in half of the cases.
    said = np.where(rng.random(400) < 0.5, answer, rng.integers(0, 5, 400))
    sharp[np.arange(400), said] = 0.95
    return fit_calibration(sharp, answer, np.arange(400) % 20), sharp


def test_stored_calibration_is_the_fitted_one(fitted, tmp_path):
    calibration, sharp = fitted
    file = tmp_path / "calibration.json"
    file.write_bytes(calibration.to_json("1-5"))
    again = read_calibration(file, "1-5")
    assert calibration.kind != "none"
    assert np.allclose(again(sharp), calibration(sharp))
    assert again.to_json("1-5") == calibration.to_json("1-5")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{}", "can't be read"), (b"\x80\x04N.", "can't be read"), (None, "can't be read")],
)
def test_what_is_no_calibration_is_refused(content, message, tmp_path):
    file = tmp_path / "calibration.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_calibration(file, "1-5")


def test_calibration_of_another_scale_is_refused(fitted, tmp_path):
    file = tmp_path / "calibration.json"
    file.write_bytes(fitted[0].to_json("1-5"))
    with pytest.raises(ConfigError, match=r"is of 1-5, scoring.scale is 1-10"):
        read_calibration(file, "1-10")


def test_rater_calibrates_what_was_answered_and_no_failure():
    replies = {"A": {"5": 0.9, "1": 0.1}}
    rater = LLMRater(
        ScriptedEngine(lambda r: replies["A"]),
        SCALES["1-5"],
        calibration=lambda p: np.full_like(p, 0.2),
    )
    people = pl.DataFrame({"persona_id": ["persona:a:0"]})
    items = pl.DataFrame({"item_id": ["ml:1"], "title": ["A"]})
    assert rater.rate(people, items).expected.tolist() == pytest.approx([3.0])
    assert rater.metadata()["calibrated"]
