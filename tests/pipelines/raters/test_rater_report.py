"""The report on raters: who is judged, on what, beside which baselines."""

import numpy as np
import polars as pl
import pytest

from pipelines.contracts._report import RATER_REPORT
from pipelines.errors import ContractError
from pipelines.raters import (
    BASELINES,
    BIAS,
    RatingBatch,
    fit_rater,
    rater_report,
    reliability_plot,
    scale_named,
    whole_report,
)
from pipelines.raters.report.held_out import (
    COLD_BASELINES,
    SPLITS,
    collect_people,
    in_source_units,
    persona_rows,
    time_split,
)

NAMES = ("statistical", "mean", "random")


def judged_on(world):
    return {"items": world.items, "interactions": world.interactions, "splits": world.splits}


@pytest.fixture(scope="module")
def raters(small_world):
    return [
        fit_rater(name, scale="1-10", **small_world.tables, **small_world.vectors) for name in NAMES
    ]


@pytest.fixture(scope="module")
def report(small_world, raters):
    return rater_report(raters, **judged_on(small_world))


def figure(report, predictor, metric):
    row = report.table.filter(predictor=predictor, metric=metric)
    return row.row(0, named=True)


def test_every_rater_and_baseline_has_every_figure_with_an_interval(report):
    RATER_REPORT.validate(report.table)
    assert set(report.table["predictor"]) == {*NAMES, *BASELINES}
    for metric in ("rmse", "mae", "ndcg@10", "pairwise", "similarity"):
        rows = report.table.filter(metric=metric)
        assert rows.height == len(NAMES) + len(BASELINES)
        assert (rows["low"] <= rows["value"]).all()
        assert (rows["value"] <= rows["high"]).all()
    kinds = dict(report.table.select("predictor", "kind").unique().rows())
    assert (kinds["statistical"], kinds["random"], kinds[BIAS]) == ("rater", "floor", "baseline")


def test_the_statistical_rater_beats_user_and_item_bias_with_a_history(report):
    assert figure(report, "statistical", "rmse_difference")["high"] < 0
    assert figure(report, "global mean", "rmse_difference")["low"] > 0
    assert not report.table.filter(predictor=BIAS, metric="rmse_difference").height


def test_the_statistical_rater_is_calibrated_on_ratings_it_has_not_seen(report):
    assert figure(report, "statistical", "ece")["value"] < 0.06
    rows = [r for r in report.reliability if r["predictor"] == "statistical"]
    assert sum(r["ratings"] for r in rows) == figure(report, "statistical", "ece")["ratings"]


def test_the_statement_says_what_was_fitted_and_that_no_model_was_asked(report):
    text = report.study().markdown()
    assert "fitted on training ratings only" in text
    assert "uses no language model" in text
    assert "1.738" in text
    assert report.metadata["reading"]["nothing"] == report.metadata["held_out_users"]
    assert "People as personas: Rated by fields: 0 of" in text
    assert f"| user | {BIAS} | baseline |" in text


def test_the_plot_is_a_png_of_the_same_bytes_each_time(report):
    picture = reliability_plot(report.reliability)
    assert picture.startswith(b"\x89PNG")
    assert reliability_plot(report.reliability) == picture
    assert reliability_plot([]).startswith(b"\x89PNG")


class Half:
    """Answers every second pair, and keeps what it was shown."""

    name = "half"
    scale = scale_named("1-10")

    def __init__(self):
        self.people, self.histories, self.asked = [], [], 0

    def rate(self, personas, items, histories=None, *, pairs=None):
        self.people.append(personas)
        self.histories.append(histories)
        self.asked += len(pairs)
        ok = np.arange(len(pairs)) % 2 == 0
        probabilities = np.where(ok[:, None], 0.1, np.nan) * np.ones(10)
        return RatingBatch(self.scale, probabilities, ["ok" if o else "invalid" for o in ok])

    def metadata(self):
        return {"rater": self.name, "scale": "1-10", "fitted": {}, "by_hand": {}}


def test_what_a_rater_does_not_answer_is_counted_and_in_no_figure(small_world):
    half = Half()
    found = rater_report([half], **judged_on(small_world), limits={"half": 100}, baselines=())
    row = figure(found, "half", "rmse")
    # As many validation ratings, to calibrate on.
    assert half.asked == 200
    assert (row["ratings"], row["failed"], row["statistical"]) == (50, 50, False)
    # Every answer as likely is far from people's histogram, which the calibration finds.
    assert 0 < figure(found, "half, calibrated", "rmse")["value"] < row["value"]
    assert found.metadata["calibration"]["half"]["kind"] == "baseline"
    assert "may ask a language model" in found.study().markdown()


def test_people_come_with_their_training_ratings_and_no_other(small_world):
    half = Half()
    rater_report([half], **judged_on(small_world), baselines=())
    shown = pl.concat(half.histories)
    train = small_world.splits.filter(split="train")
    assert shown.height == train.height
    both = shown.join(
        train, left_on=["persona_id", "item_id"], right_on=["user_id", "item_id"], how="semi"
    )
    assert both.height == shown.height
    assert half.scale.covers(shown["rating"].to_numpy()).all()


def test_traits_become_text_and_what_is_not_known_is_not_said():
    traits = pl.DataFrame(
        {
            "user_id": ["ml-user:1", "ml-user:2"],
            "age_band": ["25-34", None],
            "gender": ["F", None],
            "occupation": ["writer", None],
        }
    )
    rows = persona_rows(["ml-user:2", "ml-user:1", "ml-user:3"], traits)
    assert rows["description"].to_list() == [
        "",
        "A woman aged 25-34, by occupation: writer.",
        "",
    ]
    assert rows["origin"].unique().to_list() == ["human"]
    assert persona_rows(["u"], None)["description"].to_list() == [""]


def test_answers_give_their_probability_to_the_nearest_answer_of_the_source():
    ten, five = scale_named("1-10"), scale_named("1-5")
    probabilities = np.eye(10)[[0, 1, 2, 9]]
    expected, mapped = in_source_units(probabilities, ten, five)
    np.testing.assert_allclose(expected, [1, 13 / 9, 17 / 9, 5])
    np.testing.assert_array_equal(mapped.argmax(axis=1), [0, 0, 1, 4])


def test_answers_of_a_coarser_scale_share_out_their_probability():
    # On 0.5-5 the answers 1, 2 and 3 of 1-5 lie at 0.5, 1.625 and 2.75: each is the nearest to two.
    five, halves = scale_named("1-5"), scale_named("0.5-5")
    expected, mapped = in_source_units(np.eye(5)[[0, 1, 2]], five, halves)
    np.testing.assert_allclose(expected, [0.5, 1.625, 2.75])
    assert [halves.answers[row > 0].tolist() for row in mapped] == [[0.5, 1], [1.5, 2], [2.5, 3]]
    assert mapped.max() == 0.5


def test_cost_is_bounded_by_whole_users(small_world, monkeypatch):
    monkeypatch.setattr("pipelines.raters.report.held_out.MAX_TRAIN", 1_000)
    monkeypatch.setattr("pipelines.raters.report.held_out.MAX_HELD_OUT", 60)
    people = collect_people(**judged_on(small_world), split="test")
    assert len(people.train) <= 1_000
    assert len(people.held_out) <= 60
    per_user = np.bincount(people.held_out.user)
    assert (per_user == 4).all(), "a tenth of forty ratings each"


def test_a_split_without_ratings_is_an_error(small_world):
    tables = judged_on(small_world)
    tables["splits"] = tables["splits"].filter(pl.col("split") == "train")
    with pytest.raises(ContractError, match="no held-out rating"):
        rater_report([], **tables)


@pytest.fixture(scope="module")
def whole(small_world, raters):
    tables = {**judged_on(small_world), "item_stats": small_world.item_stats}
    return whole_report(raters, **tables)


def test_each_split_has_its_rows_and_its_caption(whole):
    RATER_REPORT.validate(whole.table)
    text = whole.study().markdown()
    for split, caption in SPLITS.items():
        names = set(whole.table.filter(split=split)["predictor"])
        assert names >= {"statistical", "statistical, no votes"}
        assert f"Split `{split}`: {caption}" in text
    cold = whole.table.filter(split="cold", kind="baseline")
    assert set(cold["predictor"]) == set(COLD_BASELINES)
    assert "issue" not in text


def test_page_shows_each_figure_under_its_own_split_only(whole):
    lines = whole.study().markdown().splitlines()
    for row in whole.table.filter(metric="rmse").iter_rows(named=True):
        shown = f"{row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        (line,) = [t for t in lines if t.startswith(f"| {row['split']} | {row['predictor']} |")]
        assert shown in line


def test_history_is_worth_something_and_cold_people_are_their_items(whole):
    rmse = {
        (row["split"], row["predictor"]): row["value"]
        for row in whole.table.filter(metric="rmse").iter_rows(named=True)
    }
    assert rmse["user", "statistical"] < rmse["cold", "statistical"] < rmse["cold", "global mean"]
    assert rmse["user", "gradient boosting"] < rmse["user", "item mean"]


def test_split_in_time_holds_out_the_latest_of_all(small_world):
    stats, splits = time_split(small_world.items, small_world.interactions)
    both = small_world.interactions.join(splits, on=["user_id", "item_id"])
    held = both.filter(split="test")
    assert held["rated_at"].min() > both.filter(split="train")["rated_at"].max()
    assert held.height == pytest.approx(0.1 * both.height, rel=0.3)
    assert stats["train_ratings"].sum() == both.filter(split="train").height
    assert time_split(small_world.items, small_world.interactions.head(0)) is None
