"""Cohorts: the contract, ids, ranges, writers that fail."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.config import PersonaSettings
from pipelines.contracts import CONTRACTS
from pipelines.errors import AnswerError, ConfigError
from pipelines.personas import generate, generate_batches, load_lists, load_writer


def test_a_cohort_keeps_the_contract_and_its_order():
    frame = generate(PersonaSettings(count=1_200))
    assert CONTRACTS["movies.personas"].validate(frame).equals(frame)
    assert frame["persona_id"].is_sorted(), "numbers are padded, so that text order is their order"
    assert frame["origin"].unique().to_list() == ["sampled"]


@settings(max_examples=12, deadline=None)
@given(
    batch=st.integers(1, 40),
    cuts=st.sets(st.integers(1, 39), max_size=4),
    cohort=st.sampled_from(["default", "books-2026-w47", "games"]),
)
def test_a_cohort_is_the_same_whatever_the_batches_and_whoever_makes_its_parts(batch, cuts, cohort):
    config = PersonaSettings(count=40)
    whole = generate(config, cohort=cohort)
    assert pl.concat(list(generate_batches(config, cohort=cohort, batch=batch))).equals(whole)
    ends = [0, *sorted(cuts), 40]
    with ThreadPoolExecutor(3) as workers:
        parts = workers.map(
            lambda ab: generate(config, cohort=cohort, start=ab[0], count=ab[1] - ab[0]),
            pairwise(ends),
        )
        assert pl.concat(list(parts)).equals(whole)


def test_the_first_word_of_a_cohort_says_its_domain_else_the_settings_do():
    config = PersonaSettings(count=30, domain="games")
    for cohort, domain in (("books-pilot", "books"), ("movies", "movies"), ("pilot", "games")):
        frame = generate(config, cohort=cohort)
        assert frame["domain"].unique().to_list() == [domain]
        assert set(frame["likes"].explode()) <= set(load_lists(domain).genres)


def test_the_cohort_of_the_call_wins_over_the_settings():
    frame = generate(PersonaSettings(count=3), cohort="2026-w31")
    assert frame["cohort"].unique().to_list() == ["2026-w31"]
    assert frame["persona_id"][0] == "persona:2026-w31:0000000"
    assert not frame["name"].equals(generate(PersonaSettings(count=3))["name"])


@pytest.mark.parametrize(
    "given", [{"count": 0}, {"start": -1}, {"start": 10}, {"start": 10**7, "count": 1}]
)
def test_an_empty_or_impossible_range_is_an_error(given):
    with pytest.raises(ConfigError, match="numbered from 0"):
        generate(PersonaSettings(count=10), **given)


def test_an_unknown_writer_names_the_known_ones():
    with pytest.raises(ConfigError, match="statistical"):
        load_writer("llm")


class Refusing:
    """A writer whose every third answer is unusable, as a model's may be."""

    name = "refusing"

    def write(self, attributes: pl.DataFrame) -> pl.DataFrame:
        bad = attributes["index"] % 3 == 0
        return pl.DataFrame({"bad": bad}).select(
            pl.when(pl.col("bad")).then(None).otherwise(pl.lit("x" * 50)).alias("description"),
            pl.when(pl.col("bad"))
            .then(pl.lit("truncated"))
            .otherwise(pl.lit("ok"))
            .alias("status"),
        )


def test_a_description_that_could_not_be_written_is_never_dropped_in_silence():
    with pytest.raises(AnswerError, match=r"4 of 10 personas .*4 truncated") as caught:
        generate(PersonaSettings(count=10), writer=Refusing())
    assert [r["index"] for r in caught.value.details["rows"]] == [0, 3, 6, 9]
