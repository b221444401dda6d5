"""Models trained on published tables: rating models of people, surrogates of raters."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import polars as pl

from pipelines import raters, surrogates, tuning
from pipelines.config import Settings, identity_hash
from pipelines.contracts import SURROGATE_DOMAINS, TUNED_DOMAINS
from pipelines.llm.engines.checkpoints import Checkpoint, find_checkpoint
from pipelines.prompts import PromptStyle, rating_prompt_digest
from pipelines.stages._stage import Check, Inputs, Report, Stage, files_table, tables
from pipelines.store import CheckRecord, Table

#: Check that keeps a model from becoming the current one.
BEATS_MEAN = Check(
    "beats_item_mean",
    "The calibrated model's RMSE on validation ratings is at most the item mean's; otherwise the "
    "model is stored but does not become the current version.",
)


def rating_examples(inputs: Inputs, settings: Settings, report: Report) -> pl.DataFrame:
    """Format people's ratings as training lines for a model, without leakage."""
    held = _held_out(inputs, settings)
    examples = tuning.rating_examples(
        items=inputs["items"].read(),
        interactions=inputs["interactions"].scan(),
        splits=inputs["splits"].scan(),
        source=raters.source_scale(inputs["interactions"].scan()),
        style=_style(inputs, settings),
        held_out=held,
        window=tuning.RECIPE.window,
        cuts=tuning.RECIPE.cuts,
        history=tuning.RECIPE.window,
        seed=tuning.RECIPE.seed,
    )
    report.stats.update(
        held_out_users=len(held.users),
        held_out_items=len(held.items),
        rows={f"{s}, {w}": n for s, w, n in examples.group_by("split", "shows").len().iter_rows()},
    )
    return examples


def rating_model(inputs: Inputs, settings: Settings, report: Report) -> Iterable[Table]:
    """Train, calibrate and evaluate a rating model, and store it as files that engines open."""
    style, held = _style(inputs, settings), _held_out(inputs, settings)
    examples = inputs["rating_examples"].read().sort("window", "position")
    key = f"{inputs['rating_examples'].version}-{identity_hash(_training(settings))[:16]}"
    base = _base(settings)
    opened = None if base is None else tuning.open_base(base, style)
    folder = inputs.scratch / key
    # Checkpoints of these settings are gone on with; those of others are of no use.
    for other in inputs.scratch.glob("*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    model = tuning.train_rating_model(
        examples,
        style,
        settings.tuning,
        folder / "training",
        base=opened,
        recipe=tuning.RECIPE,
    )
    calibration = tuning.calibrate_model(model, examples)
    learned: dict[str, Any] = {
        "items": inputs["items"].read(),
        "interactions": inputs["interactions"].scan(),
        "splits": inputs["splits"].scan(),
        "item_embeddings": inputs["item_embeddings"].read(),
        "source": raters.source_scale(inputs["interactions"].scan()),
        "style": style,
        "held_out": held,
        "history": tuning.RECIPE.window,
        "seed": tuning.RECIPE.seed,
    }
    judged, validated = (
        tuning.judge_model(model.ask, calibration, split=split, **learned)
        for split in ("test", "validation")
    )
    facts = {
        **_terms(settings),
        "held_out_users": len(held.users),
        "held_out_items": len(held.items),
        "answer_mass": model.mass(examples.filter(pl.col("split") != "train")),
        "settings": _recipe(settings),
        "validation": validated.table.to_dicts(),
    }
    shutil.rmtree(folder / "model", ignore_errors=True)
    files = tuning.save_model(model, calibration, judged, facts, folder / "model")
    withheld = tuning.check_predictable(validated)
    report.checks.append(
        CheckRecord(
            name=BEATS_MEAN.name,
            passed=withheld is None,
            severity="error",
            kind="pandera",
            details={"reason": withheld or "RMSE is not above the item mean's"},
        )
    )
    report.texts["figures"] = judged.markdown()
    report.stats.update(
        training={"best_step": model.best["step"], "validation_nll": model.best["nll"]},
        redistributed=facts["redistributed"],
    )
    if withheld is not None:
        report.stats["withheld"] = withheld
    yield files_table(f"{inputs.domain}.rating_model", files, report)


def _held_out(inputs: Inputs, settings: Settings) -> tuning.HeldOut:
    users = inputs["interactions"].scan().select("user_id").unique().collect()["user_id"]
    return tuning.HeldOut.of(
        users,
        inputs["items"].read(["item_id"])["item_id"],
        tuning.RECIPE.hold_out_users,
        tuning.RECIPE.hold_out_items,
    )


def _style(inputs: Inputs, settings: Settings) -> PromptStyle:
    return PromptStyle(inputs.domain, raters.scale_named(settings.scoring.scale), layout="ledger")


def _terms(settings: Settings) -> dict[str, Any]:
    """Name and terms of the data, and whether what is made of them may be passed on."""
    world = settings.world
    name: str = world.source
    if world.folder is not None:
        name = "the archive of world.folder" if world.variant == "auto" else world.variant
    free = name in ("sample", "ml-latest-small") or (world.source == "sample" and not world.folder)
    terms = (
        "Generated by this project."
        if name == "sample"
        else "MovieLens data, GroupLens terms of use (research; no endorsement)."
    )
    return {"source": str(name), "terms": terms, "redistributed": bool(free)}


def _recipe(settings: Settings) -> dict[str, Any]:
    """Settings and the recipe: both decide what is made."""
    return {**settings.tuning.model_dump(mode="json"), **asdict(tuning.RECIPE)}


def _examples(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    """Settings that decide the examples."""
    del inputs
    names = {"hold_out_users", "hold_out_items", "window", "cuts", "seed"}
    return {
        "tuning": {n: v for n, v in _recipe(settings).items() if n in names},
        "scale": settings.scoring.scale,
        "prompt": rating_prompt_digest("ledger"),
    }


def _training(settings: Settings) -> dict[str, Any]:
    base = _base(settings)
    recipe = {n: v for n, v in _recipe(settings).items() if n != "base"}
    digests = None if base is None else [base.weights_digest(), base.tokenizer_digest()]
    return {"tuning": recipe, "base": digests, "scale": settings.scoring.scale}


def _base(settings: Settings) -> Checkpoint | None:
    if settings.tuning.base == "none":
        return None
    serving = settings.serving
    return find_checkpoint(settings.tuning.base, "", serving.models, serving.home)


def _model(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    return {**_training(settings), "terms": _terms(settings)["source"], "code": raters.CODE_VERSION}


_PEOPLE = ("items", "interactions", "splits")

STAGES = [
    Stage(
        datasets=(f"{domain}.rating_examples",),
        inputs=tables(domain, *_PEOPLE),
        identity=_examples,
        code_version="3",
        make=rating_examples,
    )
    for domain in TUNED_DOMAINS
] + [
    Stage(
        datasets=(f"{domain}.rating_model",),
        inputs=tables(domain, *_PEOPLE, "item_embeddings", "rating_examples"),
        identity=_model,
        code_version="4",
        make=rating_model,
        whole=True,
        checks=(BEATS_MEAN,),
        kinds=("python", "pytorch"),
    )
    for domain in TUNED_DOMAINS
]


_ASKED_ON = ("interactions", "splits")


def rating_surrogate(inputs: Inputs, settings: Settings, report: Report) -> Iterable[Table]:
    """Learn a surrogate from stored scores, and evaluate it on held-out pairs with baselines."""
    section, domain = settings.surrogate, inputs.domain
    read = {
        name: inputs[name].read()
        for name in ("personas", "items", "item_stats", "item_embeddings", "persona_embeddings")
    }
    read["personas"] = read["personas"].filter(pl.col("domain") == domain)
    teacher = surrogates.teacher_of(
        inputs["preference_scores"].read(),
        rater=section.teacher,
        error_budget=settings.serving.error_budget,
    )

    def ask() -> raters.Rater:
        learned: dict[str, Any] = {name: inputs[name].scan() for name in _ASKED_ON}
        more: dict[str, Any] = {k: v for k, v in read.items() if k != "personas"}
        return raters.open_rater(settings, domain=domain, **more, **learned)

    taught = surrogates.teach(teacher, **read, settings=section, ask=ask, recipe=surrogates.RECIPE)
    shutil.rmtree(inputs.scratch, ignore_errors=True)
    files = surrogates.save_surrogate(taught, inputs.scratch)
    metadata = taught.model.metadata
    report.stats.update(teacher=metadata["teacher"], **metadata["counts"], loss=taught.course)
    report.texts["fidelity"] = taught.markdown()
    yield files_table(f"{domain}.rating_surrogate", files, report)
    yield Table(
        f"{domain}.surrogate_fidelity",
        [taught.fidelity],
        lambda: {"teacher": metadata["teacher"]},
        ordered=False,
    )
    shutil.rmtree(inputs.scratch, ignore_errors=True)


def _identity(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    del inputs
    return _settings(settings)


def _settings(settings: Settings) -> dict[str, Any]:
    """Settings that decide a surrogate: its own, and those of the teacher if that is asked."""
    identity = {**settings.surrogate.identity_values(), **asdict(surrogates.RECIPE)}
    if not settings.surrogate.rounds:
        return {"surrogate": identity}
    return {"surrogate": identity, **settings.identity("scoring", "engine")}


STAGES += [
    Stage(
        datasets=(f"{domain}.rating_surrogate", f"{domain}.surrogate_fidelity"),
        inputs=tables(
            domain,
            *("preference_scores", "personas", "items", "item_stats"),
            *("item_embeddings", "persona_embeddings", *_ASKED_ON),
        ),
        identity=_identity,
        settings=_settings,
        code_version=f"{surrogates.CODE_VERSION}.{raters.CODE_VERSION}",
        make=rating_surrogate,
        kinds=("python", "numpy"),
    )
    for domain in SURROGATE_DOMAINS
]
