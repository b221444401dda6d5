"""Texts read by a model with closed choices: by a rule, and by a tiny checkpoint."""

from __future__ import annotations

import polars as pl

from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.personas import ModelReader, Reading

GENRES = ("Comedy", "Horror", "War")
ASKED: list[str] = []


def rule(request):
    question = request.messages[-1].content
    ASKED.append(question)
    options = request.constraint.options
    if "like or dislike" in question:
        best = "dislike" if "dislike horror films?" in question else "like"
    else:
        best = "harsh" if "harsh" in options else "unstated"
    return {o: 0.8 if o == best else 0.2 / (len(options) - 1) for o in options}


def test_each_named_genre_is_one_closed_choice():
    ASKED.clear()
    with ModelReader(ScriptedEngine(rule, name="reads")) as reader:
        found = reader.read(["Comedies, never horror.", "A nurse."], GENRES)
    assert found == [
        Reading(("Comedy",), ("Horror",), "harsh", None),
        Reading((), (), "harsh", None),
    ]
    assert len(ASKED) == 2 + 2 * 2


def test_an_unsure_or_failed_answer_reads_as_nothing():
    def unsure(request):
        return dict.fromkeys(request.constraint.options, 1.0)

    with ModelReader(ScriptedEngine(unsure, name="unsure")) as reader:
        assert not reader.read(["She loves comedies."], GENRES)[0]


def test_fields_of_imported_personas_are_filled():
    people = pl.DataFrame(
        {"description": ["Comedies, never horror."], "likes": [[]], "dislikes": [[]]},
        schema_overrides={"likes": pl.List(pl.String), "dislikes": pl.List(pl.String)},
    ).with_columns(leniency=pl.lit(None, pl.String), manner=pl.lit(None, pl.String))
    with ModelReader(ScriptedEngine(rule, name="fields")) as reader:
        filled = reader.read_fields(people, GENRES)
    assert filled.select("likes", "dislikes", "leniency").row(0) == (
        ["Comedy"],
        ["Horror"],
        "harsh",
    )


def test_the_taste_of_a_stated_income_stays_unless_the_text_has_one():
    people = pl.DataFrame(
        {
            "description": ["Loves things made of wood.", "Loves bargains."],
            "likes": [["price:high"], ["price:high"]],
            "dislikes": pl.Series([[], []], dtype=pl.List(pl.String)),
        }
    ).with_columns(leniency=pl.lit(None, pl.String), manner=pl.lit(None, pl.String))
    tastes = ("material:wood", "price:high", "price:low")
    with ModelReader(ScriptedEngine(rule, name="incomes"), "products") as reader:
        filled = reader.read_fields(people, tastes)
    assert filled["likes"].to_list() == [["material:wood", "price:high"], ["price:low"]]
