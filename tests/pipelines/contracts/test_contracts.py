"""Table contracts: documented, ordered, and able to refuse."""

from __future__ import annotations

import polars as pl
import pytest

from pipelines.contracts import CONTRACTS, PUBLISHED
from pipelines.errors import ContractError

RATINGS = {
    "user_id": [1, 2],
    "movie_id": [1, 1],
    "rating": [4.0, 0.5],
    "scale": ["0.5-5", "0.5-5"],
    "timestamp": [1, 2],
}


@pytest.mark.parametrize("dataset", sorted(CONTRACTS))
def test_every_column_is_documented_and_every_key_exists(dataset: str) -> None:
    contract = CONTRACTS[dataset]
    names = [c.name for c in contract.columns()]
    assert contract.description
    assert all(c.description for c in contract.columns())
    assert set(contract.key) <= set(names)
    assert set(contract.key) <= set(contract.order), "the order must be total over the key"
    assert contract.arrow_schema().names == names


def test_a_good_frame_passes_and_comes_back_in_column_order() -> None:
    frame = pl.DataFrame(RATINGS).select("timestamp", "rating", "scale", "movie_id", "user_id")
    out = CONTRACTS["raw.movielens_ratings"].validate(frame)
    assert out.columns == ["user_id", "movie_id", "rating", "scale", "timestamp"]


def _raw(**changes: list[object]) -> pl.DataFrame:
    return pl.DataFrame({**RATINGS, **changes}, strict=False)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (_raw(rating=[7.0, 1.0]), "rating"),
        (_raw(user_id=[-1, 1]), "user_id"),
        (_raw(rating=[None, 1.0]), "rating"),
        (_raw(user_id=[1, 1]), r"share a key \(user_id, movie_id\)"),
        (_raw().drop("rating"), r"missing \['rating'\]"),
        (_raw().with_columns(extra=1), r"unexpected \['extra'\]"),
        (_raw().cast({"user_id": pl.String}), "user_id"),
    ],
    ids=["range", "bound", "null", "key", "missing", "extra", "type"],
)
def test_a_bad_frame_is_refused_naming_table_and_column(frame: pl.DataFrame, message: str) -> None:
    with pytest.raises(ContractError, match=message) as caught:
        CONTRACTS["raw.movielens_ratings"].validate(frame, dataset="raw.movielens_ratings")
    assert "raw.movielens_ratings" in str(caught.value)


def test_the_failing_rows_are_listed() -> None:
    with pytest.raises(ContractError) as caught:
        CONTRACTS["raw.movielens_ratings"].validate(_raw(rating=[7.0, 1.0]))
    assert caught.value.details["rows"][0]["failure_case"] == "7.0"


def test_a_release_has_no_two_tables_of_one_short_name() -> None:
    shared = [c.name for d, c in PUBLISHED.items() if "." not in d]
    domains = {d.partition(".")[0] for d in PUBLISHED if "." in d}
    for domain in domains:
        own = [c.name for d, c in PUBLISHED.items() if d.startswith(f"{domain}.")]
        assert len({*own, *shared}) == len(own) + len(shared), domain
