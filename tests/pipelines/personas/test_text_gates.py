"""Gates on written texts: noise, loops and other people are refused, descriptions are not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.config import PersonaSettings
from pipelines.personas import generate, load_lists, sample_attributes
from pipelines.personas._gates import TextGates, text_faults

ANN = {
    "name": "Ann Lee",
    "age": 30,
    "gender": "female",
    "likes": ["Comedy"],
    "dislikes": ["Horror"],
    "domain": "movies",
}
GENRES = ("Comedy", "Horror", "War")
GOOD = (
    "Ann Lee, 30, works as a nurse and cycles to the clinic every morning. She likes comedies "
    "because they cheer her up after a long shift. She dislikes horror films because she lies "
    "awake for hours."
)


def test_a_plain_description_has_no_fault() -> None:
    assert text_faults(GOOD, ANN, GENRES, plain=True) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Ann is nice.", "empty"),
        (GOOD + " Qwerg zblit frnak worpel mibble snorf tlagg vreep gloob.", "unknown_words"),
        (GOOD + " She walks on and on and on and on and on and on and on and on and on.",
         "repetition"),
        (GOOD + " " + GOOD, "repetition"),
        (GOOD + " I want to say u are cool.", "first_or_second_person"),
        ("You are Ann Lee, 30, and you like your comedies, but you avoid horror films.",
         "first_or_second_person"),
        (GOOD.replace("Ann Lee", "She"), "name"),
        (GOOD + " She often meets with Robert at noon.", "other_name"),
        (GOOD.replace("30", "31"), "age"),
        (GOOD.replace("She", "He").replace(" her ", " him ").replace(" she ", " he "), "pronouns"),
        (GOOD.replace("horror films", "long queues"), "tastes_not_named"),
        (GOOD.replace("likes", "hates"), "tastes_contradicted"),
        (GOOD + " She remembers 2021, 2022, 2023 well.", "years_or_address"),
        (GOOD + " She lives at 12 Green Hill Road near the sea.", "years_or_address"),
        (GOOD + " Write to ann@example.org for more.", "years_or_address"),
    ],
)  # fmt: skip
def test_each_fault_is_found(text: str, fault: str) -> None:
    assert fault in text_faults(text, ANN, GENRES)


def test_a_taste_that_is_taken_back_contradicts_a_plain_statement() -> None:
    text = GOOD.replace("because they cheer her up", "but she does not enjoy them")
    assert text_faults(text, ANN, GENRES, plain=True) == ["tastes_contradicted"]


def test_only_what_is_stated_is_compared() -> None:
    text = "This man of 40 years was born in Ohio and works in a bank in Columbus."
    assert text_faults(text, {"name": None, "likes": None}, GENRES) == []


@pytest.mark.parametrize("cohort", ["gates", "books-gates", "games-gates"])
def test_statistical_texts_pass(cohort: str) -> None:
    domain = cohort.split("-")[0] if "-" in cohort else "movies"
    lists = load_lists(domain)
    rows = sample_attributes(7, cohort, np.arange(100), lists).to_dicts()
    texts = generate(PersonaSettings(count=100), cohort=cohort)["description"]
    faults = [text_faults(t, r, lists.genres) for t, r in zip(texts, rows, strict=True)]
    assert sum(map(bool, faults)) <= 5, [f for f in faults if f]


def test_most_texts_that_a_model_wrote_for_others_pass(shared_data: Path) -> None:
    with gzip.open(shared_data / "personas" / "llm_written_personas.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines][::10]
    faults = [text_faults(r["PERSONA"], {"gender": r.get("Sex", "").lower()}) for r in rows]
    assert sum(map(bool, faults)) <= 0.05 * len(rows), [f for f in faults if f]


def test_the_model_is_asked_about_texts_that_pass_the_rules_only() -> None:
    asked: list[str] = []

    def nats(texts: Sequence[str]) -> list[float]:
        asked.extend(texts)
        return [9.0 if "cycles" in text else 3.0 for text in texts]

    calm = GOOD.replace("cycles", "walks")
    gates = TextGates(nats)
    rows: list[dict[str, Any]] = [ANN] * 3
    assert gates([GOOD, calm, "Hello."], rows)[:2] == [["improbable"], []]
    assert asked == [GOOD, calm]
    assert "improbable" in gates.names
    assert "improbable" not in TextGates().names
