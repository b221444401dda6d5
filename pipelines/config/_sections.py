"""The sections of the settings tree, and the tree.

A section is either *identity* (it changes what is produced, so it is hashed into build keys
and manifests) or *runtime* (it changes only how fast or where). Every field states its unit
and default in its description; `docs/reference/settings.md` is generated from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pipelines.config._inputs import (
    BooksSettings,
    DataSettings,
    EngineSettings,
    GamesSettings,
    Home,
    ProductsSettings,
    Section,
    ServingSettings,
    Share,
)
from pipelines.errors import ConfigError
from pipelines.paths import home_path
from pipelines.seams import RATERS


class SampleSettings(Section):
    """Size and seed of the generated sample world."""

    films: int = Field(300, ge=20, le=1_000_000, description="Films in the catalogue (count).")
    users: int = Field(200, ge=10, le=10_000_000, description="Human users (count).")
    ratings: int = Field(
        20_000, ge=200, le=1_000_000_000, description="Ratings over all users (count)."
    )
    seed: int = Field(2026, ge=0, description="Seed of the generator; same seed, same bytes.")


class WorldSettings(Section):
    """Original files that the pipeline starts from."""

    # Identity is the content of the files, which enters as input versions.
    runtime_fields = frozenset({"folder"})

    source: Literal["sample", "ml-latest-small", "ml-25m", "ml-32m", "ml-1m", "ml-100k"] = Field(
        "sample",
        description="`sample` generates files; the others are downloaded (checksum verified) "
        "unless `folder` holds them.",
    )
    folder: Path | None = Field(
        None,
        description="Folder with original files in the documented layout (docs/data.md); "
        "overrides `source`. Only the files' contents are hashed, never this path.",
    )
    variant: Literal[
        "auto",
        "ml-latest-small",
        "ml-25m",
        "ml-32m",
        "ml-20m",
        "ml-latest",
        "ml-10m",
        "ml-1m",
        "ml-100k",
    ] = Field(
        "auto",
        description="MovieLens archive to use from `folder`; `auto`: the only one, or "
        "ml-latest-small if there are several.",
    )
    sample: SampleSettings = Field(
        default_factory=SampleSettings, description="The sample world's size and seed."
    )


class IngestSettings(Section):
    """Strictness of reading original files."""

    max_rejected_share: Share = Field(
        0.01, description="Share of rows of one file that may be rejected before the run fails."
    )


class SplitSettings(Section):
    """The per-user split of interactions by time."""

    validation: Share = Field(0.1, description="Share of each user's interactions, before test.")
    test: Share = Field(0.1, description="Share of each user's latest interactions.")
    min_interactions: int = Field(
        5,
        ge=1,
        description="Users with fewer interactions are left out of their domain, and counted "
        "(count).",
    )

    @model_validator(mode="after")
    def _leaves_training_data(self) -> Self:
        if self.validation + self.test >= 1:
            raise ValueError("validation + test must leave a share for training")
        return self


#: Pattern of a cohort's name, and the same in words.
COHORT_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
COHORT_NAME_IN_WORDS = "lower-case letters, digits and hyphens (63 at most)"


class PersonaSettings(Section):
    """The cohort of synthetic users."""

    cohort: str = Field(
        "default",
        pattern=COHORT_NAME,
        description=f"Name of the cohort: {COHORT_NAME_IN_WORDS}.",
    )
    count: int = Field(100, ge=1, le=10_000_000, description="Personas in the cohort (count).")
    seed: int = Field(7, ge=0, description="Cohort seed; persona n depends on (seed, n) only.")
    min_age: int = Field(
        18,
        ge=4,
        le=94,
        description="Minimum age of the personas (years); ages have the census' shares from it on.",
    )
    writer: Literal["statistical", "model"] = Field(
        "statistical",
        description="Writer of the descriptions: `statistical` needs no model, `model` asks the "
        "engine of the section `engine`.",
    )
    domain: Literal["movies", "books", "games", "products", "own"] = Field(
        "movies",
        description="Domain whose items the configured cohort likes, unless the cohort's name "
        "begins with one (such as `books-2026`).",
    )
    genres: Literal["sampled", "model"] = Field(
        "sampled",
        description="Source of liked and disliked genres: `sampled` draws them from shares "
        "(SUBER's second dataset), `model` leaves them to the model (its first).",
    )
    reader: Literal["statistical", "model"] = Field(
        "statistical",
        description="Reader of the texts of imported personas: `statistical` applies rules at "
        "rating time, `model` asks the engine of the section `engine` closed "
        "questions and fills the personas' fields.",
    )
    style: Literal["free", "slots"] = Field(
        "free",
        description="Style of a model's texts: `free` in sentences of its own, `slots` in the "
        "blanks of a plan that states every attribute (for models too small to write freely).",
    )
    temperature: float | None = Field(
        None,
        ge=0,
        description="Sampling temperature; 0 is greedy decoding. Default of this and the next "
        "three: recommended values of a model fetched by name, else 1, 1, 0 and 1.",
    )
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Nucleus sampling: share of the probability that tokens are drawn from.",
    )
    min_p: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Minimum probability of a token, relative to the most probable one.",
    )
    repetition_penalty: float | None = Field(
        None, gt=0, description="Repetition penalty; above 1, earlier tokens are drawn less often."
    )
    gates: Literal["rules", "perplexity", "none"] = Field(
        "rules",
        description="Gates for a model's texts: `rules` on words, repetition, the person and "
        "stated tastes; `perplexity` also a bound on the text's probability under smollm2-135m, "
        "which must have been fetched.",
    )
    draws: int = Field(
        6, ge=1, le=100, description="Texts drawn per persona until one passes the gates (count)."
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="Maximum length of a model's reply (tokens); default: 400. A text beyond it is "
        "cut back to its last full sentence.",
    )

    @model_validator(mode="after")
    def _somebody_decides(self) -> Self:
        if self.writer == "statistical" and self.genres == "model":
            raise ValueError("genres: model needs writer: model")
        if self.style == "slots" and self.genres == "model":
            raise ValueError("genres: model needs style: free")
        return self


class EmbeddingSettings(Section):
    """The text encoder."""

    model: str = Field(
        "all-MiniLM-L6-v2",
        description="`all-MiniLM-L6-v2` is bundled and works offline; else a model name or folder "
        "that sentence-transformers can load.",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Precision of the encoder's weights. `bfloat16` is twice as fast where the "
        "processor or GPU has instructions for it; elsewhere it means float32.",
    )


class EnsembleMember(Section):
    """A rater of an ensemble."""

    rater: Literal[
        "statistical", "random", "mean", "llm", "facets", "text", "words", "listwise"
    ] = Field("llm", description="Rater, as for `scoring.rater`.")
    engine: EngineSettings | None = Field(
        None, description="Its model, for `llm` and `listwise`; default: the section `engine`."
    )


class ScoringSettings(Section):
    """Preference scores of personas for items."""

    rater: Annotated[str, AfterValidator(RATERS.checked)] = Field(
        "statistical",
        description="Rater of the scores: `statistical` needs no model, `llm` asks the engine of "
        "the section `engine`, `ensemble` averages the raters of `ensemble`, `replay` "
        "repeats stored scores, `surrogate` is a model learned from a rater's scores "
        "(section `surrogate`); `random` and `mean` are baselines; `module:Class` is "
        "your own. For products in choice sets: `facets` uses stated tastes, `text` "
        "the similarity of texts, `words` the words of the description, `listwise` "
        "asks the engine about a whole set.",
    )
    taste: Literal["drawn", "mean"] = Field(
        "drawn",
        description="Taste of a persona for `rater: statistical`: `drawn` from the covariance of "
        "people's tastes given the persona's stated ones, fixed by its id and `seed`; "
        "`mean`, the mean of these draws, which makes personas alike (for ablation).",
    )
    scale: Literal["1-5", "1-10", "0-9", "one-ten", "0-100"] = Field(
        "1-10",
        description="Answers of the rating scale (integers, both ends included; `one-ten` is "
        "1-10 in words).",
    )
    shots: int = Field(
        0,
        ge=0,
        le=2,
        description="Worked examples in a model's prompt (count): 1 shows one rated high, 2 one "
        "rated low as well.",
    )
    system: str | None = Field(
        None,
        min_length=1,
        description="Role of the model, instead of the built-in text; the rules about scale and "
        "reply always follow it.",
    )
    system_role: bool = Field(
        True,
        description="Whether the model's chat template supports a system message; otherwise its "
        "text starts the first user message.",
    )
    layout: Literal["letter", "plain", "ledger"] = Field(
        "letter",
        description="Layout of a model's prompt: `letter` with role, rules, tagged blocks and the "
        "plot; `plain`, a few lines without these, for models too small for long "
        "instructions; `ledger`, past ratings and the item as lines of the same form "
        "(the training format of rating models).",
    )
    question: Literal["scale", "like", "compare"] = Field(
        "scale",
        description="Question that a model is asked about an item: `scale`, a rating; `like`, "
        "whether the person will like it, yes or no; `compare`, which of two items the person will "
        "like better. The last two are a few lines (`layout` and `shots` do not apply), for models "
        "that are too small to rate on a scale; their odds become ratings by a fixed map.",
    )
    calibration: str = Field(
        "none",
        description="Calibration of the rater `llm`: `none`; `model`, the `calibration.json` "
        "beside the model's files; or a JSON file of that form. Answers are stored uncalibrated.",
    )
    history: int = Field(
        10,
        ge=0,
        le=10_000,
        description="Maximum past ratings in a model's prompt, the latest of those given (count).",
    )
    explain: bool = Field(
        False, description="Whether a model also explains each score, in a separate call."
    )
    explained: Share = Field(
        1.0,
        description="Share of the pairs that `explain` asks about; which ones depends on the pair "
        "and the seed only.",
    )
    judged: int = Field(
        2_000,
        ge=1,
        le=10_000_000,
        description="Maximum held-out human ratings that a rater which asks a model is evaluated "
        "on in `rater_report` (count).",
    )
    ensemble: tuple[EnsembleMember, ...] = Field(
        (), description="Raters that `rater: ensemble` averages, each with equal weight."
    )
    replay: str | None = Field(
        None,
        description="Rater whose scores `rater: replay` repeats (the column `rater`); default: "
        "the only rater.",
    )
    max_pairs: int = Field(
        200_000,
        ge=1,
        description="All personas x items are scored up to this many pairs (count); "
        "above it every persona gets an equal share.",
    )
    plan: Literal["stratified", "exposure"] = Field(
        "stratified",
        description="Items of a persona above `max_pairs`: `stratified`, equal parts of popular, "
        "less popular and rare items; `exposure`, drawn by the model of what people "
        "choose to watch.",
    )
    seed: int = Field(11, ge=0, description="Seed of the pair sample and of sampled ratings.")

    def identity_values(self) -> dict[str, Any]:
        """Values that are hashed; without those that are at defaults from before they existed."""
        values = super().identity_values()
        earlier = {"layout": "letter", "calibration": "none", "question": "scale"}
        return {k: v for k, v in values.items() if k not in earlier or v != earlier[k]}

    @model_validator(mode="after")
    def _has_members(self) -> Self:
        if self.layout == "ledger" and self.shots:
            raise ValueError("layout: ledger has no worked examples (shots: 0)")
        if (self.rater == "ensemble") != bool(self.ensemble) or len(self.ensemble) == 1:
            raise ValueError("rater: ensemble needs two or more members in ensemble, others none")
        return self


class ProductScoringSettings(ScoringSettings):
    """Preference scores of personas for products, by choice set (BIEL, section 4)."""

    rater: Annotated[str, AfterValidator(RATERS.checked)] = Field(
        "ensemble", description="Rater of the scores, as `scoring.rater`."
    )
    scale: Literal["1-5", "1-10", "0-9", "one-ten", "0-100"] = Field(
        "0-100", description="Answers of the rating scale; shopping dialogues read `0-100`."
    )
    ensemble: tuple[EnsembleMember, ...] = Field(
        (EnsembleMember(rater="facets"), EnsembleMember(rater="text")),
        description="Raters that `rater: ensemble` averages, each with equal weight.",
    )
    plan: Literal["choice_set"] = Field(  # type: ignore[assignment]
        "choice_set", description="Pairs of a persona: all products of whole choice sets."
    )
    max_pairs: int = Field(
        2_000_000,
        ge=1,
        description="Every persona scores every choice set up to this many pairs (count); above "
        "it all personas score the same sets, as many as fit, drawn by hash.",
    )


class GraphSettings(Section):
    """Edges of the knowledge graph, and similarity computed from it."""

    liked_from: float = Field(
        4.0, ge=1, le=5, description="Minimum rating for `liked` (on a 1-5 scale; SimUSER D)."
    )
    disliked_to: float = Field(
        2.0, ge=1, le=5, description="Maximum rating for `disliked` (on a 1-5 scale)."
    )
    alpha: Share = Field(
        0.8,
        description="Weight of item-item similarity; the rest is user-item similarity (SimUSER D).",
    )
    embedding_weight: float = Field(
        0.25, ge=0, le=10, description="Weight of the cosine of node embeddings (SimUSER D)."
    )
    k: int = Field(3, ge=1, le=1000, description="Items retrieved per query (k2 of SimUSER D).")


class QualitySettings(Section):
    """Thresholds of the checks on whole datasets."""

    min_tmdb_coverage: Share = Field(
        0.4,
        description="Minimum share of films with a plot, a cast and a director where there are "
        "TMDB records; below it, a check warns.",
    )
    max_row_drop: Share = Field(
        0.5,
        description="Maximum share of rows that a table may lose against the last release of the "
        "same world; above it, publishing is blocked.",
    )
    max_drift: Share = Field(
        0.2,
        description="Maximum total variation distance of the rating histogram from the last "
        "release of the same world; above it, publishing is blocked.",
    )
    max_near_duplicates: Share = Field(
        0.02,
        description="Maximum share of personas with a near-duplicate description (embedding "
        "cosine of 0.97 or more); above it, publishing is blocked.",
    )
    max_taste_ratio: float = Field(
        2.0,
        ge=1,
        description="Maximum factor between personas and people in item x person share and "
        "split-half covariance (the nearest value of its 95 % interval); above it, "
        "publishing is blocked.",
    )


class ReleaseSettings(Section):
    """Published releases."""

    name: str = Field("movies", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Release name.")


class CaptionSettings(Section):
    """Captions of items' posters (SimUSER, section 3.2.2)."""

    # A release does not depend on later captions; the table's own build is hashed
    # with it.
    identity: ClassVar[bool] = False

    captioner: str = Field(
        "statistical",
        min_length=1,
        description="Captioner of posters: `statistical` (pixel statistics), `model` (the engine "
        "of the section `engine`, which must support images), or `module:Class` of "
        "your own.",
    )


class MatchingSettings(Section):
    """Personas matched to real users (SimUSER, section 3.1 and appendix B)."""

    # A release is the same however many users are matched afterwards; the tables' own build is
    # hashed with all of these.
    identity: ClassVar[bool] = False

    method: str = Field(
        "statistical",
        min_length=1,
        description="Matcher that proposes and rates candidates: `statistical` (needs no language "
        "model), `model` (the engine of the section `engine`), or `module:Class` of your own.",
    )
    users: int = Field(
        1_000, ge=1, description="Users matched per domain, sampled by hash (count)."
    )
    candidates: int = Field(
        5,
        ge=1,
        le=100,
        description="Candidate personas per user (SimUSER's m; its appendix has 10).",
    )
    items: int = Field(
        50,
        ge=1,
        le=1_000,
        description="Training items that candidates are derived from (count; 25 in Agent4Rec).",
    )
    subsets: int = Field(
        3,
        ge=1,
        le=100,
        description="Lists of a user's own items that candidates rate (SimUSER's j).",
    )
    subset_size: int = Field(
        50,
        ge=1,
        le=1_000,
        description="Items per list (count); half of a user's items if they do not fill two lists.",
    )
    others: int = Field(
        30,
        ge=1,
        le=1_000,
        description="Other users with one list each that candidates rate (count).",
    )
    scored: bool = Field(
        False, description="Whether cohorts of matched personas enter `score_plan` and are scored."
    )


class TrainingSettings(Section):
    """Training of recommendation policies in the environment (no part of any release)."""

    # A release is the same however a policy is trained on it afterwards; the policy's own build
    # is hashed with all of these.
    identity: ClassVar[bool] = False

    domain: Literal["movies", "books", "games", "own"] = Field(
        "movies", description="Domain of the release that the job `train_policy` trains on."
    )
    release: str = Field(
        "latest",
        pattern=r"^([a-z0-9][a-z0-9-]*@)?(latest|[0-9a-f]{4,16})$",
        description="That release: `latest`, or pinned as `movies@<version>`.",
    )
    rater: Annotated[str, AfterValidator(RATERS.checked)] = Field(
        "statistical",
        description="Rater of recommended items: `statistical` needs no language model, `replay` "
        "draws from the release's stored scores, `surrogate` uses a model learned "
        "from them, `llm` asks the engine of the section `engine`, `module:Class` is your own.",
    )
    algo: Literal["a2c", "ppo", "trpo", "dqn"] = Field(
        "a2c", description="Algorithm (SUBER, appendix F); docs/training.md has its settings."
    )
    steps: int = Field(
        200_000,
        ge=1,
        le=1_000_000_000,
        description="Total steps over all environments (count); SUBER trains for 1,600,000.",
    )
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0, 1, 2),
        min_length=1,
        description="One policy is trained per seed; intervals over seeds need three.",
    )
    envs: int | None = Field(
        None, ge=1, le=65_536, description="Environments stepped together (count); default: 32."
    )
    gamma: Share = Field(
        0.0,
        description="Discount factor. 0 by default: recommendations do not change how long a "
        "persona stays, so later ratings only add noise; SUBER has 0.975.",
    )
    length_limit: int = Field(200, ge=1, le=10_000, description="Longest episode (steps).")
    leave_probability: Share = Field(
        0.025, description="Probability that a persona leaves after a step (SUBER's code)."
    )
    retriever: Literal["none", "recent", "features", "embedding", "graph"] = Field(
        "recent", description="How past items are selected for the rater."
    )
    scale_reward: bool = Field(
        True,
        description="Train on rewards from -1 to 1 instead of ratings; the best policy is the "
        "same, but the critic's errors don't drown the actor's gradients.",
    )
    evaluate_every: int = Field(
        20_000, ge=1, description="Steps between two points of the evaluation curve (count)."
    )
    checkpoint_every: int = Field(50_000, ge=1, description="Steps between checkpoints (count).")
    users: int | None = Field(
        None,
        ge=2,
        description="Maximum personas that policies are evaluated on (count); default: all of the "
        "domain.",
    )


class TuningSettings(Section):
    """Training of a rating model on people's ratings (no part of any release)."""

    # A release is the same whatever is trained beside it; the model's own build is hashed with
    # all of these.
    identity: ClassVar[bool] = False

    base: str = Field(
        "none",
        min_length=1,
        description="Base model: `none` trains a small one from random weights; else a folder or "
        "the name of a fetched checkpoint, which is adapted by LoRA.",
    )
    steps: int = Field(4_000, ge=1, description="Maximum optimiser steps (count).")
    batch: int = Field(
        4, ge=1, description="Contexts of 1,024 tokens per step (count), in windows."
    )
    rate: float = Field(3e-3, gt=0, description="Highest learning rate.")
    dropout: Share = Field(
        0.1, description="Dropout of embeddings and last states, of a base of added matrices."
    )
    every: int = Field(
        150, ge=1, description="Steps between evaluations of the validation loss (count)."
    )


class SurrogateSettings(Section):
    """Surrogates of raters, learned from stored scores (no part of any release)."""

    # A release is the same whatever is learned from it afterwards; the surrogate's own build is
    # hashed with all of these but the runtime fields, which are for its readers.
    identity: ClassVar[bool] = False
    runtime_fields = frozenset({"snapshot", "allow_below_floor"})

    teacher: str | None = Field(
        None,
        description="Rater whose scores are learned (the column `rater`); default: the only rater.",
    )
    rounds: int = Field(
        0,
        ge=0,
        le=10,
        description="Rounds in which the teacher rates, with histories, states that a policy "
        "visits (count); 0: memories have no effect.",
    )
    visited: int = Field(
        5_000, ge=100, le=10_000_000, description="States per round (count, approximate)."
    )
    snapshot: str = Field(
        "latest",
        pattern=r"^(latest|[0-9a-f]{16})$",
        description="Version of `<domain>.rating_surrogate` that the rater `surrogate` reads.",
    )
    allow_below_floor: bool = Field(
        False,
        description="Whether environments accept a surrogate for kinds of pairs on which it is "
        "not shown to be better than a mean; their episodes then carry a warning.",
    )


class DialogueSettings(Section):
    """Shopping dialogues on a release of products (BIEL; docs/dialogue.md)."""

    # A release is the same whoever shops in it afterwards; the tables' own build is hashed with
    # all of these.
    identity: ClassVar[bool] = False

    seeds: int = Field(
        40,
        ge=1,
        le=1_000_000,
        description="Lifetimes per configuration (count; BIEL: 40, and 60 for the suite "
        "`planning`).",
    )
    episodes: int = Field(10, ge=1, le=1_000, description="Episodes per lifetime (count).")
    max_questions: int = Field(
        20, ge=0, le=100, description="Maximum questions per episode (count)."
    )
    min_best: float = Field(
        60.0,
        ge=0,
        le=100,
        description="Minimum best score of a choice set that a customer shops in (points).",
    )
    tau: float = Field(
        10.0,
        ge=0,
        le=1_000,
        description="Temperature of the statistical customer's answers (points); 0: the most "
        "probable answer.",
    )


class TmdbSettings(Section):
    """The TMDB API client (used only when no dump is present and a token is set)."""

    identity: ClassVar[bool] = False

    base_url: str = Field("https://api.themoviedb.org/3", description="Root of the API.")
    token: SecretStr | None = Field(
        None,
        description="Bearer token, from the environment only: UNDERSTUDY_TMDB__TOKEN or "
        "TMDB_TOKEN. A token in a file is refused.",
    )
    concurrency: int = Field(16, ge=1, le=64, description="Requests in flight (count).")
    timeout: float = Field(20.0, gt=0, description="Timeout of a request (seconds).")
    retries: int = Field(5, ge=0, le=20, description="Retries after a transient error (count).")
    max_wait: float = Field(
        60.0, gt=0, description="Maximum Retry-After that is honoured (seconds)."
    )


class RuntimeSettings(Section):
    """Paths and parallelism; never part of a version."""

    identity: ClassVar[bool] = False

    home: Home = Field(
        Path(".understudy"),
        description="The store's folder, on a local disk (UNDERSTUDY_HOME is read too).",
    )
    memory_limit_mb: int = Field(
        4096, ge=256, description="DuckDB's memory limit (MiB); above it, DuckDB spills to disk."
    )
    threads: int = Field(0, ge=0, le=1024, description="Worker threads; 0: one per core.")
    executor: Literal["auto", "in_process", "multiprocess", "k8s"] = Field(
        "auto",
        description="Where the steps of a run are executed: `in_process` (one after the other), "
        "`multiprocess` (a process each on one machine, `processes` at once) or `k8s` (a pod each; "
        "needs the extra `cluster`). `auto`: `in_process` for `understudy run`, `multiprocess` for "
        "runs of Dagster's daemon and UI. Under `k8s`, `understudy run` executes in process too.",
    )
    processes: int = Field(
        0,
        ge=0,
        le=1024,
        description="Steps that the executor `multiprocess` runs at the same time (count); 0: as "
        "many as there are cores. Only one step at a time loads a language model.",
    )
    ui_port: int = Field(3000, ge=1, le=65535, description="Port of the Dagster UI.")
    automation: bool = Field(
        False,
        description="Whether Dagster's daemon automatically rebuilds stale assets once the checks "
        "of their inputs have passed.",
    )
    failure_webhook: SecretStr | None = Field(
        None,
        description="URL that Dagster's daemon posts JSON to when a run fails, from the "
        "environment only: UNDERSTUDY_RUNTIME__FAILURE_WEBHOOK.",
    )

    @property
    def folder(self) -> Path:
        """The home as an absolute path."""
        return home_path(self.home)


class ExecutionSettings(Section):
    """Executor of scores and similar items, local or on a cluster; never part of a version."""

    identity: ClassVar[bool] = False

    executor: str = Field(
        "local",
        description="`local` (in this process), `ray` (tasks of a Ray cluster; needs the extra "
        "`cluster`), or `module:Class`.",
    )
    address: str = Field(
        "",
        description="Ray cluster: `host:port` of a cluster that this machine is a node of, "
        "`ray://host:10001`, or empty to start a local one on this machine's cores.",
    )
    cpus: float = Field(1.0, gt=0, description="CPU cores per part on a worker.")
    max_rounds: int = Field(
        3, ge=1, le=20, description="Maximum runs of a part whose workers die (count)."
    )


#: Prefix of the variables that settings are read from.
ENV_PREFIX = "UNDERSTUDY_"


class Settings(BaseSettings):
    """Every setting of the system.

    Precedence, highest first: arguments (command-line options), environment
    (``UNDERSTUDY_<SECTION>__<FIELD>``), YAML file, defaults.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        validate_default=True,
        nested_model_default_partial_update=True,
    )

    world: WorldSettings = Field(default_factory=WorldSettings)
    ingest: IngestSettings = Field(default_factory=IngestSettings)
    splits: SplitSettings = Field(default_factory=SplitSettings)
    books: BooksSettings = Field(default_factory=BooksSettings)
    games: GamesSettings = Field(default_factory=GamesSettings)
    products: ProductsSettings = Field(default_factory=ProductsSettings)
    personas: PersonaSettings = Field(default_factory=PersonaSettings)
    embedding: EmbeddingSettings = Field(default_factory=EmbeddingSettings)
    scoring: ScoringSettings = Field(default_factory=ScoringSettings)
    product_scoring: ProductScoringSettings = Field(default_factory=ProductScoringSettings)
    graph: GraphSettings = Field(default_factory=GraphSettings)
    quality: QualitySettings = Field(default_factory=QualitySettings)
    release: ReleaseSettings = Field(default_factory=ReleaseSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    data: DataSettings = Field(default_factory=DataSettings)
    serving: ServingSettings = Field(default_factory=ServingSettings)
    captions: CaptionSettings = Field(default_factory=CaptionSettings)
    matching: MatchingSettings = Field(default_factory=MatchingSettings)
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    tuning: TuningSettings = Field(default_factory=TuningSettings)
    surrogate: SurrogateSettings = Field(default_factory=SurrogateSettings)
    dialogue: DialogueSettings = Field(default_factory=DialogueSettings)
    tmdb: TmdbSettings = Field(default_factory=TmdbSettings)
    execution: ExecutionSettings = Field(default_factory=ExecutionSettings)
    runtime: RuntimeSettings = Field(default_factory=RuntimeSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # Only what the caller passes: `load_settings` merges file and environment itself, so
        # that a bare `Settings()` in a test never depends on the machine it runs on.
        return (init_settings,)

    @model_validator(mode="after")
    def _place_models(self) -> Self:
        # Engines are opened from `engine` and `serving` alone and know of no home.
        home = self.runtime.home.expanduser()
        placed = {"models": self.serving.models or home / "models"}
        placed["home"] = self.serving.home or home
        # The tree is frozen; this is still its construction.
        object.__setattr__(self, "serving", self.serving.model_copy(update=placed))
        return self

    def scoring_of(self, domain: str) -> ScoringSettings:
        """Settings of a domain's scores: products have a section of their own."""
        return self.product_scoring if domain == "products" else self.scoring

    def without_secrets(self) -> dict[str, Any]:
        """All values but secrets, JSON-ready: overrides for :func:`load_settings` elsewhere."""
        secret = {
            name: {
                key
                for key, field in type(section).model_fields.items()
                if SecretStr in get_args(field.annotation)
            }
            for name, section in self
        }
        values = self.model_dump(mode="json", exclude=secret)
        values["runtime"]["home"] = str(self.runtime.home.expanduser().absolute())
        return values

    def identity(self, *sections: str) -> dict[str, Any]:
        """Values of the named identity sections (all of them if none is named), JSON-ready.

        ``world.folder`` is left out: the content of its files enters as input versions. A section
        of runtime settings is a ConfigError.
        """
        names = sections or tuple(n for n in type(self).model_fields if getattr(self, n).identity)
        out: dict[str, Any] = {}
        for name in names:
            section: Section = getattr(self, name)
            if not section.identity:
                raise ConfigError("runtime settings have no identity", where=name)
            out[name] = section.identity_values()
        return out
