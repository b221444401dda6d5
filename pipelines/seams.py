"""Seams of the pipeline: implementations by name, and the decorators that register others.

>>> @rater("mine")  # scoring.rater: mine, in this process
... class Mine:
...     def rate(self, personas, items, histories=None, *, pairs=None): ...
>>> RATERS["mine"].__name__
'Mine'
"""

from __future__ import annotations

from pipelines.plugins import Registry

#: In the order of ingest: a source comes after those whose tables it needs.
SOURCES = Registry(
    "source",
    {
        "movielens": "pipelines.sources.movielens:MovielensSource",
        "tmdb": "pipelines.sources.tmdb:TmdbSource",
        "steam": "pipelines.sources.steam:SteamSource",
        "amazon": "pipelines.sources.amazon:AmazonSource",
        "taxonomy": "pipelines.sources.taxonomy:TaxonomySource",
        "own": "pipelines.sources.own:OwnSource",
        "persona_files": "pipelines.sources.persona_files:PersonaFilesSource",
    },
)

#: Declarations of one's own data, for ``data.own.source``.
PUBLISHERS = Registry(
    "source",
    {},
    group="understudy.sources",
    methods=("files", "read"),
    implement="pipelines.sources.own.OwnSource (docs/data.md)",
)

RATERS = Registry(
    "rater",
    {
        "statistical": "pipelines.raters.statistical.rater:StatisticalRater",
        "random": "pipelines.raters.statistical.baselines:RandomRater",
        "mean": "pipelines.raters.statistical.baselines:MeanRater",
        "llm": "pipelines.raters.llm:LLMRater",
        "ensemble": "pipelines.raters._ensemble:EnsembleRater",
        "replay": "pipelines.raters._replay:ReplayRater",
        "facets": "pipelines.raters.statistical.products:FacetRater",
        "text": "pipelines.raters.statistical.products:TextRater",
        "words": "pipelines.raters.statistical.products:WordsRater",
        "listwise": "pipelines.raters.llm:ListwiseRater",
        "surrogate": "pipelines.raters.surrogate:SurrogateRater",
    },
    group="understudy.raters",
    methods=("rate",),
    implement="pipelines.raters.Rater (docs/raters.md)",
)

ENGINES = Registry(
    "engine",
    {
        "transformers": "pipelines.llm.engines.transformers:TransformersEngine",
        "vllm": "pipelines.llm.engines.vllm:VllmEngine",
        "vllm_server": "pipelines.llm.engines.vllm_server:VllmServerEngine",
        "openai": "pipelines.llm.engines.openai:OpenAIEngine",
        "guidance": "pipelines.llm.grammars.engine:GuidanceEngine",
        "scripted": "pipelines.llm.engines.scripted:ScriptedEngine",
    },
    methods=("open",),
    implement="pipelines.llm.engines.EngineClass",
)

#: Functions that take the settings, or None.
WRITERS = Registry(
    "persona writer",
    {
        "statistical": "pipelines.personas._writers:statistical_writer",
        "model": "pipelines.personas._writers:model_writer",
    },
)

RETRIEVERS = Registry(
    "retriever",
    {
        "none": "pipelines.retrieval:NoRetriever",
        "recent": "pipelines.retrieval:RecentRetriever",
        "features": "pipelines.retrieval:feature_retriever",
        "embedding": "pipelines.retrieval:embedding_retriever",
        "graph": "pipelines.retrieval:graph_retriever",
    },
)

MATCHERS = Registry(
    "matcher",
    {
        "statistical": "pipelines.matching._statistical:StatisticalMatcher",
        "model": "pipelines.matching._model:ModelMatcher",
    },
    methods=("fit", "tastes", "candidates", "rate", "metadata"),
    implement="pipelines.matching.Matcher (docs/matching.md)",
)

CAPTIONERS = Registry(
    "captioner",
    {
        "statistical": "pipelines.captions:StatisticalCaptioner",
        "model": "pipelines.captions:ModelCaptioner",
    },
    methods=("caption", "metadata"),
    implement="pipelines.captions.Captioner",
)

EXECUTORS = Registry(
    "executor",
    {
        "local": "pipelines.execution:LocalExecutor",
        "ray": "pipelines.execution._ray:RayExecutor",
    },
    methods=("map", "close"),
    implement="pipelines.execution.Executor (docs/scale.md)",
)

#: Functions that write a :class:`pipelines.exports.Export`; ours are entry points as well.
EXPORTS = Registry("export format", {}, group="understudy.exports")

source = PUBLISHERS.register
rater = RATERS.register
engine = ENGINES.register
writer = WRITERS.register
retriever = RETRIEVERS.register
matcher = MATCHERS.register
captioner = CAPTIONERS.register
executor = EXECUTORS.register
exporter = EXPORTS.register
