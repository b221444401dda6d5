"""Sections of a run's inputs: original files and own data, language models and their servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from pipelines.paths import home_path
from pipelines.renames import current_setting
from pipelines.seams import ENGINES

Share = Annotated[float, Field(ge=0.0, le=1.0)]


def _home(path: Path) -> Path:
    home_path(path)
    return path


#: A folder; ConfigError for an address.
Home = Annotated[Path, AfterValidator(_home)]

#: Settings whose values are names of raters and writers.
_NAMED = frozenset({"rater", "replay", "writer"})


class Section(BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    #: True if the section's values are part of what a build is (hashed), not only of how it runs.
    identity: ClassVar[bool] = True
    #: Fields of an identity section that are not hashed, because they change no output.
    runtime_fields: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _current_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            key: current_setting(value, key) if key in _NAMED else value
            for key, value in values.items()
        }

    def identity_values(self) -> dict[str, Any]:
        """Values that are hashed, ready for JSON."""
        return self.model_dump(mode="json", exclude=set(self.runtime_fields))


class AmazonData(Section):
    """Amazon review files; by default those in the world's folder."""

    edition: Literal["auto", "2018", "2023"] = Field(
        "auto",
        description="Edition of the published files to read; `auto` reads all that are there (an "
        "item in both is taken from the later one).",
    )
    categories: tuple[str, ...] = Field(
        (), description="Categories by file name, such as `Books`; default: all that are there."
    )
    reviews: tuple[str, ...] = Field(
        (), description="Review files by path or URL, instead of the world's folder."
    )
    meta: tuple[str, ...] = Field(
        (), description="Product files by path or URL, instead of the world's folder."
    )


class SteamData(Section):
    """Steam files; by default those in the world's folder."""

    games: str = Field("", description="`steam_games.json[.gz]` by path or URL.")
    reviews: str = Field("", description="`australian_user_reviews.json[.gz]` by path or URL.")
    items: str = Field("", description="`australian_users_items.json[.gz]` by path or URL.")


class PersonaFilesData(Section):
    """Files of personas to import; by default those in the world's folder."""

    files: tuple[str, ...] = Field((), description="JSONL or plain text, by path or URL.")


class TaxonomyData(Section):
    """A category tree; by default that in the world's folder."""

    file: str = Field("", description="`A > B > C` lines or a CSV of levels, by path or URL.")


class OwnData(Section):
    """A data set of one's own: items and ratings in any table format (docs/data.md)."""

    name: str = Field(
        "own",
        pattern=r"^[a-z][a-z0-9-]{0,40}$",
        description="Name of its release and standing cohort, such as `recipes`.",
    )
    items: str = Field(
        "", description="File of items by path or URL: CSV, TSV, Parquet, JSON lines, RecBole."
    )
    ratings: str = Field("", description="File of ratings, by path or URL.")
    users: str = Field("", description="File of users' age, gender and occupation, if there is.")
    columns: dict[str, str] = Field(
        {},
        description="Columns by meaning (`user`, `item`, `rating`, `timestamp`, `title`, `genres`, "
        "`year`, `description`, `age`, `gender`, `occupation`) where their names are not usual.",
    )
    scale: str = Field(
        "",
        pattern=r"^(-?[0-9.]+-[0-9.]+)?$",
        description="Lowest and highest rating, such as `0-10`; default: the smallest usual scale "
        "that holds all ratings.",
    )
    terms: str = Field("", description="Terms of the files, for the dataset card.")
    source: str = Field(
        "",
        description="Publisher's declaration: an entry point of `understudy.sources`, "
        "`module:Class` or `file.py:Class`.",
    )

    @field_validator("name")
    @classmethod
    def _free(cls, name: str) -> str:
        if name in ("movies", "books", "games", "products"):
            raise ValueError("the name is a domain of another source")
        return name

    @property
    def named(self) -> tuple[str, ...]:
        """Files that are named: items, ratings and, if there, users."""
        return tuple(filter(None, (self.items, self.ratings, self.users)))


class DataSettings(Section):
    """Variant and location of each source's original files (only their contents are hashed)."""

    identity: ClassVar[bool] = False

    max_unpack_ratio: int = Field(
        200,
        ge=2,
        description="Maximum compression ratio of a file that unpacks to over 64 MiB; more is "
        "refused as a decompression bomb (CSV and JSON compress about 4:1 to 15:1).",
    )
    max_unpacked_gb: float = Field(
        1000.0, gt=0, description="Maximum unpacked size of a compressed file (GB)."
    )
    amazon: AmazonData = Field(default_factory=AmazonData, description="Amazon reviews.")
    steam: SteamData = Field(default_factory=SteamData, description="Steam games and reviews.")
    personas: PersonaFilesData = Field(
        default_factory=PersonaFilesData, description="Personas to import."
    )
    taxonomy: TaxonomyData = Field(default_factory=TaxonomyData, description="Category tree.")
    own: OwnData = Field(default_factory=OwnData, description="A data set of one's own.")


class BooksSettings(Section):
    """Filters of books (SUBER, appendix B)."""

    categories: tuple[str, ...] = Field(
        ("Books", "Kindle_Store"),
        description="Amazon categories, by file name, whose products are books.",
    )
    min_category_size: int = Field(
        100, ge=1, description="Categories with fewer books are dropped (count)."
    )
    full_catalogue: int = Field(
        10_000,
        ge=1,
        description="Number of books from which `min_category_size` applies in full; in a smaller "
        "catalogue it shrinks in proportion (count). 1 applies it to every catalogue.",
    )


class GamesSettings(Section):
    """Steam's reviews, whose verdicts become ratings from 1 to 5 (``dbt/macros/ratings.sql``)."""

    review_year: int | None = Field(
        None,
        ge=2003,
        le=2100,
        description="Year of reviews whose date has none (`Posted July 3.`), as Steam omits the "
        "year in which the page was crawled. Default: such reviews are left out and "
        "counted.",
    )


class ProductsSettings(Section):
    """Product choice sets (BIEL, section 4 and appendix C)."""

    sample: int = Field(
        100_000,
        ge=0,
        description="Products sampled over all categories in proportion to their sizes (count; "
        "BIEL: 100 000); 0: every product.",
    )
    seed: int = Field(13, ge=0, description="Seed of the sample.")
    essential: tuple[Literal["title", "description", "features", "price", "brand"], ...] = Field(
        ("title", "description"),
        description="Fields without which a product is dropped; a field that no record of a file "
        "has is not required of that file, which is reported.",
    )
    cut_levels: int = Field(
        2, ge=0, le=10, description="Levels from the top of the tree that are not choice sets."
    )
    min_category_size: int = Field(
        15, ge=1, description="Categories with fewer products are not choice sets (count)."
    )
    choice_set_size: int = Field(
        50,
        ge=2,
        description="Maximum products of a choice set shown to shoppers (count; BIEL's mean); "
        "larger sets are sampled with the seed.",
    )


def _kind(name: str) -> str:
    return name if name == "none" else ENGINES.checked(name)


class EngineSettings(Section):
    """The language model that answers; part of every answer's key."""

    # It decides whether a reply is taken, never what one says: the answers that are stored are
    # the same under both values, and so are their keys and what is built from them.
    runtime_fields = frozenset({"require_model"})

    kind: Annotated[str, AfterValidator(_kind)] = Field(
        "none",
        description="`none`: no model, statistical implementations everywhere. `transformers` and "
        "`vllm` load a model in this process, `vllm_server` starts vLLM's server from "
        "its own environment for the run, `openai` uses any OpenAI-compatible server, "
        "`guidance` writes constrained answers with Guidance's own loop, one at a "
        "time, `scripted` answers by rule (tests, demos).",
    )
    model: str = Field(
        "",
        description="Name of a model fetched with `understudy models get`, folder of a Hugging "
        "Face checkpoint, `maker/model` on the hub, `movies.rating_model@latest` (a "
        "model trained here), or the model's name on the server.",
    )
    revision: str = Field("", description="Commit or tag of the model, if it has one.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Precision of the weights; `auto`: bfloat16 on a GPU, float32 on a CPU."
    )
    quantisation: str = Field(
        "none", description="Quantisation of the weights, by the engine's name."
    )
    draws: int = Field(
        0,
        ge=0,
        le=1000,
        description="Answers sampled to estimate the distribution of a closed choice on a server "
        "that returns no probabilities (openai; count). A share has a standard error "
        "of at most 0.5/√draws. 0 refuses such choices: an estimate must be requested "
        "explicitly.",
    )
    require_model: Literal["any", "exact"] = Field(
        "any",
        description="`exact`: a reply that names another model than the requested one, or none, "
        "ends the run (openai). `any`: it is accepted and logged. Each answer's "
        "detail names the model that answered; stored answers are not requested again.",
    )


class ServingSettings(Section):
    """Execution of the model: affects speed and cost, never an answer's key."""

    identity: ClassVar[bool] = False

    device: str = Field("auto", description="`auto`, `cpu`, `cuda` or `cuda:0` (transformers).")
    window: int = Field(256, ge=1, description="Requests in flight or waiting (count).")
    batch_tokens: int = Field(
        16_384, ge=64, description="Tokens per forward pass (transformers, vllm; count)."
    )
    prefix_reuse: bool = Field(
        True,
        description="Whether prompts with a common prefix share its computation (transformers, "
        "vllm); turn off only to measure or check.",
    )
    base_url: str = Field(
        "http://127.0.0.1:8000/v1", description="Root of the OpenAI-compatible server."
    )
    api_key: SecretStr | None = Field(
        None,
        description="API key of the server, from the environment only: "
        "UNDERSTUDY_SERVING__API_KEY or OPENAI_API_KEY. A key in a file is refused.",
    )
    tokenizer: Path | None = Field(
        None,
        description="Folder or file with the tokenizer of the server's model (openai), to send "
        "prompts as token ids. Default: the server's own tokenizer if it offers one, "
        "else its chat endpoint.",
    )
    concurrency: int = Field(
        32, ge=1, le=4096, description="Maximum HTTP requests in flight (count)."
    )
    timeout: float = Field(120.0, gt=0, description="Timeout of an HTTP request (seconds).")
    retries: int = Field(6, ge=0, le=50, description="Retries after a transient error (count).")
    max_wait: float = Field(
        120.0, gt=0, description="Maximum Retry-After that is honoured (seconds)."
    )
    max_tokens: int | None = Field(
        None, ge=1, description="Stop the run after this many tokens in and out (count)."
    )
    max_cost: float | None = Field(
        None, ge=0, description="Stop the run after this cost (in the currency of the prices)."
    )
    input_price: float = Field(0.0, ge=0, description="Price of a million prompt tokens.")
    output_price: float = Field(0.0, ge=0, description="Price of a million completion tokens.")
    error_budget: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Share of failed answers above which a run stops (after the first hundred).",
    )
    vllm_python: Path | None = Field(
        None,
        description="Python of the environment with vLLM (vllm_server); default: "
        "`.venv-vllm/bin/python` in the working directory.",
    )
    start_seconds: float = Field(
        600.0, gt=0, description="Maximum wait for a server started by the run (seconds)."
    )
    tensor_parallel: int = Field(1, ge=1, description="GPUs per model replica (vllm).")
    pipeline_parallel: int = Field(1, ge=1, description="Pipeline stages per replica (vllm).")
    data_parallel: int = Field(1, ge=1, description="Replicas (vllm).")
    gpu_memory: float = Field(0.9, gt=0, le=1, description="Share of GPU memory to use (vllm).")
    kv_cache_gib: float | None = Field(
        None,
        gt=0,
        description="Memory for cached prompts (GiB, vllm); default: the memory that `gpu_memory` "
        "leaves on a GPU, 1 on a CPU.",
    )
    max_context: int | None = Field(
        None, ge=16, description="Maximum context (tokens); default: the model's own."
    )
    commit_every: int = Field(500, ge=1, description="Answers per stored part (count).")
    commit_seconds: float = Field(30.0, gt=0, description="Maximum time between parts (seconds).")
    keep_requests: bool = Field(
        False,
        description="Store the request with each answer, for inspection; prompts then make up "
        "most of the store.",
    )
    models: Path | None = Field(
        None, description="Folder of fetched models; default: `models` in the store's folder."
    )
    home: Home | None = Field(
        None,
        description="Store with the rating models that `engine.model` may name; default: the "
        "run's own.",
    )
    chat_template: Path | None = Field(
        None, description="Jinja file with a chat template, for models without one."
    )
