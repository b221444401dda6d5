"""The supervised set: what a line may show, and what it may not."""

import hashlib

import polars as pl
import pytest

from pipelines.errors import ContractError
from pipelines.prompts import Past, PromptStyle, rating_messages
from pipelines.scales import SCALES
from pipelines.tuning import HeldOut, rating_examples, training_rows
from tests.pipelines.tuning.worlds import noise, world

STYLE = PromptStyle("movies", SCALES["1-10"], layout="ledger")
NOBODY = HeldOut(frozenset(), frozenset())
STARS = SCALES["0.5-5"]


@pytest.fixture(scope="module")
def tables():
    return world(120, 150, 56, noise)


@pytest.fixture(scope="module")
def examples(tables):
    return made(tables)


def made(tables, held_out=NOBODY, **more):
    more = {"cuts": 2, "window": 20, "history": 15, **more}
    return rating_examples(**tables, source=STARS, style=STYLE, held_out=held_out, **more)


def test_only_training_ratings_are_targets_once_per_cut(tables, examples):
    train = examples.filter(split="train")
    known = tables["splits"].filter(split="train").select("user_id", "item_id")
    assert train.height == 2 * known.height
    assert train.join(known, on=["user_id", "item_id"], how="anti").is_empty()
    asked = examples.filter(split="validation").select("user_id", "item_id")
    held = tables["splits"].filter(split="validation").select("user_id", "item_id")
    assert asked.sort(asked.columns).equals(held.sort(held.columns))


@pytest.mark.pipeline
def test_held_out_people_and_items_are_in_no_row(tables):
    held = HeldOut.of(tables["interactions"]["user_id"], tables["items"]["item_id"], 0.1, 0.05)
    assert 3 <= len(held.users) <= 25
    assert 1 <= len(held.items) <= 20
    rows = made(tables, held)
    assert not set(rows["user_id"]) & held.users
    assert not set(rows["item_id"]) & held.items
    # Nor do their ratings count in the means beside others' lines.
    spoilt = dict(tables)
    out = pl.col("user_id").is_in(sorted(held.users)) | pl.col("item_id").is_in(sorted(held.items))
    spoilt["interactions"] = tables["interactions"].with_columns(
        rating=pl.when(out).then(5.0).otherwise("rating")
    )
    assert made(spoilt, held).equals(rows)


def test_history_is_earlier_than_its_target(tables, examples):
    times = tables["interactions"].select("user_id", "item_id", "rated_at")
    dated = examples.join(times, on=["user_id", "item_id"], how="left", maintain_order="left")
    step = dated.select(
        (pl.col("rated_at") >= pl.col("rated_at").shift(1)).over("window").alias("later"),
        (pl.col("position") == pl.col("position").shift(1) + 1).over("window").alias("next"),
    )
    assert step["later"].drop_nulls().all()
    assert step["next"].drop_nulls().all()


def test_training_mean_counts_what_others_gave_before(tables):
    rows = made(tables, cuts=1).filter(split="train")
    item = rows["item_id"][0]
    given = (
        tables["interactions"]
        .join(tables["splits"], on=["user_id", "item_id"])
        .filter(item_id=item, split="train")
        .sort("rated_at")
    )
    for n, (user, stars) in enumerate(given.select("user_id", "rating").iter_rows()):
        (line,) = rows.filter(item_id=item, user_id=user)["line"]
        if not n:
            assert "mean" not in line
            continue
        # Half stars and the answers of 1-10 are the same steps.
        mean = 2 * given["rating"][:n].mean()
        assert f"mean {mean:.1f} of" in line
        assert stars is not None


@pytest.mark.pipeline
def test_later_ratings_do_not_change_an_earlier_line(tables):
    """Rules 2 to 4 at once: what comes after a rating leaves its text as it was."""
    before = made(tables, cuts=1).filter(split="train")
    point = tables["interactions"]["rated_at"].quantile(0.5)
    moved = dict(tables)
    moved["interactions"] = tables["interactions"].with_columns(
        rating=pl.when(pl.col("rated_at") > point).then(5.5 - pl.col("rating")).otherwise("rating")
    )
    after = made(moved, cuts=1).filter(split="train")
    early = before.join(
        tables["interactions"].select("user_id", "item_id", "rated_at"), on=["user_id", "item_id"]
    ).filter(pl.col("rated_at") <= point)
    both = early.join(after, on=["window", "position"], suffix="_after")
    assert both.height > 1000
    assert (both["line"] == both["line_after"]).all()


@pytest.mark.pipeline
def test_description_does_not_change_with_what_its_window_holds(tables):
    rows = made(tables, cuts=1).filter(split="train", user_id="ml-user:7")
    last = rows.filter(pl.col("description") != "")["window"][-1]
    inside = rows.filter(window=last)["item_id"].implode()
    moved = dict(tables)
    other = (pl.col("user_id") == "ml-user:7") & pl.col("item_id").is_in(inside)
    moved["interactions"] = tables["interactions"].with_columns(
        rating=pl.when(other).then(5.5 - pl.col("rating")).otherwise("rating")
    )
    after = made(moved, cuts=1).filter(split="train", user_id="ml-user:7")
    assert after["description"].equals(rows["description"])
    assert not after["rating"].equals(rows["rating"])


def test_description_is_of_earlier_windows_only(tables, examples):
    described = examples.filter(split="train").filter(pl.col("description") != "")
    assert described.height
    # The first window of everybody has no ratings before it.
    assert not described["window"].str.ends_with(":0").any()
    shares = described.group_by("shows").agg(pl.col("window").n_unique())
    windows = dict(shares.iter_rows())
    assert set(windows) == {"both", "description"}
    plain = examples.filter(split="train", shows="history")
    assert (plain["description"] == "").all()


def test_held_out_lines_show_training_means_as_served(tables, examples):
    """The digest of a validation target is that of the prompt that a rater would send."""
    rows = training_rows(tables["interactions"], tables["splits"], NOBODY)
    stats = {
        item: (2 * mean, count)
        for item, mean, count in rows.group_by("item_id")
        .agg(pl.col("rating").mean(), pl.len())
        .iter_rows()
    }
    items = {row["item_id"]: row for row in tables["items"].iter_rows(named=True)}
    target = examples.filter(split="validation").row(0, named=True)
    own = rows.filter(user_id=target["user_id"]).tail(15)
    past = [
        Past(items[item], rating, STARS, *stats[item])
        for item, rating in own.select("item_id", "rating").iter_rows()
    ]
    mean, count = stats[target["item_id"]]
    item = items[target["item_id"]]
    # The mean of the question is shown through its line.
    user = rating_messages({}, target["line"], STYLE, past=past)[1].content
    assert f"mean {mean:.1f}" in target["line"]
    assert item["title"] in target["line"]
    assert count > 1
    assert hashlib.sha256(user.encode()).hexdigest() == target["text_sha256"]


@pytest.mark.pipeline
def test_same_inputs_give_same_rows_and_cuts_differ(tables, examples):
    assert made(tables).equals(examples)
    first, second = (
        examples.filter(pl.col("window").str.starts_with(f"{n}:")).select("item_id", "text_sha256")
        for n in (0, 1)
    )
    assert not first.sort(first.columns).equals(second.sort(second.columns))


@pytest.mark.parametrize(
    ("users", "rate", "message"),
    [
        (40, noise, r"2,080 training ratings of 10 different values"),
        (120, lambda *_: 3.5, r"6,240 training ratings of 1 different values"),
    ],
)
def test_too_little_to_learn_from_is_refused_with_counts(users, rate, message):
    with pytest.raises(ContractError, match=message):
        made(world(users, 150, 56, rate))


def test_ratings_without_a_time_are_refused(tables):
    without = dict(tables)
    without["interactions"] = tables["interactions"].with_columns(
        rated_at=pl.lit(None, pl.Datetime("us", "UTC"))
    )
    with pytest.raises(ContractError, match="have no time"):
        made(without)
