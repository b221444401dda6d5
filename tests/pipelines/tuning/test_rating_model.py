"""The rating model as a stage: a snapshot of files that engines open, pinned by its version."""

import numpy as np
import polars as pl
import pytest

from pipelines import tuning
from pipelines.context import PipelineContext
from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError
from pipelines.llm.engines.checkpoints import find_checkpoint
from pipelines.raters import open_rater
from pipelines.stages import build, stage_of
from pipelines.store import Store
from tests.pipelines.tuning.worlds import world

pytestmark = pytest.mark.night

TUNING = {"steps": 24, "every": 12, "batch": 2, "rate": 1e-2}
RECIPE = tuning.Recipe(width=32, cuts=1, looked_at=100, window=20)


@pytest.fixture(scope="module", autouse=True)
def small_recipe():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "RECIPE", RECIPE)
        yield


FILES = [
    "README.md",
    "calibration.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "metrics.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
]


def by_item(user, item, rng):
    """Good and bad films, alike to everybody."""
    return float(np.clip(rng.integers(-1, 2) + 2 * (item % 9) // 2 + 1, 1, 10)) / 2


def empty(kind):
    return pl.lit([]) if isinstance(kind, pl.List) else pl.lit(None)


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """A store with a small world's tables, and the settings that a model of it is trained with."""
    home = tmp_path_factory.mktemp("home")
    store, tables = Store(home), world(130, 150, 56, by_item)
    films = tables["items"]
    tables["item_embeddings"] = films.select("item_id")
    for name, rows in tables.items():
        contract = CONTRACTS[f"movies.{name}"]
        schema = contract.polars_schema()
        filled = {
            "has_tmdb": pl.lit(False),
            "vector": pl.lit([1.0] + [0.0] * 383),
            "model": pl.lit("test"),
            "text_sha256": pl.lit("0" * 64),
        }
        given = [
            (pl.col(c) if c in rows.columns else filled.get(c, empty(t))).cast(t).alias(c)
            for c, t in schema.items()
        ]
        store.commit(f"movies.{name}", rows.select(given), code_version="test")
    return PipelineContext(
        {
            "runtime": {"home": str(home)},
            "tuning": TUNING,
            "scoring": {"layout": "ledger", "rater": "llm", "calibration": "model"},
            "engine": {"kind": "transformers"},
        }
    )


@pytest.fixture(scope="module")
def model(context):
    build(stage_of("movies.rating_examples"), context)
    built = build(stage_of("movies.rating_model"), context)
    return built, built.snapshots["movies.rating_model"]


def test_model_is_a_snapshot_of_files(model):
    snapshot = model[1]
    assert snapshot.read()["file"].to_list() == FILES
    assert not snapshot.problems()
    weights = snapshot.path / "model.safetensors"
    data = weights.read_bytes()
    weights.chmod(0o644)
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "model.safetensors" in str(snapshot.problems()[0])
    weights.write_bytes(data)
    assert not list(snapshot.path.glob("*.bin"))


def test_worse_than_the_item_mean_is_stored_and_not_current(context, model):
    """24 steps are too few: the check fails, the pointer stays, and a rerun finds the same."""
    snapshot = model[1]
    assert "the item mean has" in snapshot.manifest.stats["withheld"]
    record = context.store.checks(snapshot.dataset, snapshot.version)["beats_item_mean"]
    assert record.blocks
    assert not context.store.has("movies.rating_model")
    again = build(stage_of("movies.rating_model"), context)
    assert again.reused
    assert again.snapshots["movies.rating_model"].version == snapshot.version
    assert not context.store.has("movies.rating_model")
    with pytest.raises(ConfigError, match=r"no such model.*train_rater"):
        find_checkpoint("movies.rating_model@latest", home=context.store.home)
    assert "does not beat" in (snapshot.path / "README.md").read_text()


def test_engine_model_names_a_snapshot_and_pins_it(context, model):
    snapshot = model[1]
    context.store.point(snapshot.dataset, snapshot.version)
    named = {**context.overrides, "engine": {"kind": "transformers"}}
    named["engine"]["model"] = "movies.rating_model@latest"
    pinned = PipelineContext(named).settings.engine.model
    assert pinned == f"movies.rating_model@{snapshot.version}"
    found = find_checkpoint(pinned, home=context.store.home)
    assert (found.folder, found.name) == (snapshot.path, pinned)
    context.store.withdraw(snapshot.dataset)


def test_engine_serves_the_distributions_that_were_judged(context, model):
    """Through the rater and the transformers engine, calibrated, as by the packed pass."""
    from transformers import AutoModelForCausalLM

    from pipelines.prompts import PromptStyle
    from pipelines.raters.report.calibration import read_calibration
    from pipelines.scales import SCALES
    from pipelines.tuning import Prompts, RatingModel

    snapshot = model[1]
    store = context.store
    examples = store.current("movies.rating_examples").read().sort("window", "position")
    user = examples.filter(split="validation")["user_id"][0]
    rows = examples.filter(window=f"validation:{user}")
    engine = {"kind": "transformers", "model": f"movies.rating_model@{snapshot.version}"}
    settings = PipelineContext(
        {**context.overrides, "engine": engine, "serving": {"device": "cpu"}}
    ).settings
    settings = settings.model_copy(
        update={"scoring": settings.scoring.model_copy(update={"history": 20})}
    )
    items = store.current("movies.items").read()
    splits = store.current("movies.splits").read()
    trained = set(examples["user_id"]), set(examples["item_id"])
    known = (
        store.current("movies.interactions")
        .read()
        .join(splits.filter(split="train"), on=["user_id", "item_id"])
        .filter(pl.col("user_id").is_in(trained[0]), pl.col("item_id").is_in(trained[1]))
        .sort("user_id", "rated_at", "item_id")
    )
    stats = known.group_by("item_id").agg(
        train_ratings=pl.len().cast(pl.Int64), train_mean_rating=pl.col("rating").mean()
    )
    rater = open_rater(settings, items=items, item_stats=stats, interactions=known, splits=splits)
    asked = rows.filter(split="validation")
    place = {item: n for n, item in enumerate(items["item_id"])}
    batch = rater.rate(
        pl.DataFrame({"persona_id": [user]}),
        items,
        known.filter(user_id=user).select(
            pl.col("user_id").alias("persona_id"), "item_id", pl.col("rating") * 2
        ),
        pairs=np.array([[0, place[item]] for item in asked["item_id"]]),
    )
    rater.close()
    assert set(batch.status) == {"ok"}
    loaded = AutoModelForCausalLM.from_pretrained(snapshot.path).eval()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(snapshot.path)
    style = PromptStyle("movies", SCALES["1-10"], layout="ledger")
    answers = tuple(tokenizer.encode(text)[0] for text in style.scale.texts)
    mine = RatingModel(loaded, Prompts(tokenizer, answers, style, lists=True)).ask(rows)
    calibrate = read_calibration(snapshot.path / "calibration.json", "1-10")
    assert np.abs(calibrate(mine) - batch.probabilities).max() < 1e-4
