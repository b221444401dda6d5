"""Settings: one validated tree from defaults, a YAML file and the environment.

>>> from pipelines.config import Settings
>>> Settings(world={"sample": {"films": 40}}).world.sample.films
40
"""

from pipelines.config._base import Section
from pipelines.config._data import (
    AmazonData,
    BooksSettings,
    DataSettings,
    GamesSettings,
    PersonaFilesData,
    ProductsSettings,
    SteamData,
    TaxonomyData,
    TraitSettings,
)
from pipelines.config._models import EngineSettings, ServingSettings
from pipelines.config._sections import (
    CaptionSettings,
    DialogueSettings,
    EmbeddingSettings,
    EnsembleMember,
    ExecutionSettings,
    GraphSettings,
    IngestSettings,
    MatchingSettings,
    PersonaSettings,
    ProductScoringSettings,
    QualitySettings,
    ReleaseSettings,
    RuntimeSettings,
    SampleSettings,
    ScoringSettings,
    SplitSettings,
    SurrogateSettings,
    TmdbSettings,
    TrainingSettings,
    TuningSettings,
    WorldSettings,
)
from pipelines.config._settings import (
    Settings,
    explain_settings,
    identity_hash,
    load_settings,
    read_value,
)

__all__ = [
    "AmazonData",
    "BooksSettings",
    "CaptionSettings",
    "DataSettings",
    "DialogueSettings",
    "EmbeddingSettings",
    "EngineSettings",
    "EnsembleMember",
    "ExecutionSettings",
    "GamesSettings",
    "GraphSettings",
    "IngestSettings",
    "MatchingSettings",
    "PersonaFilesData",
    "PersonaSettings",
    "ProductScoringSettings",
    "ProductsSettings",
    "QualitySettings",
    "ReleaseSettings",
    "RuntimeSettings",
    "SampleSettings",
    "ScoringSettings",
    "Section",
    "ServingSettings",
    "Settings",
    "SplitSettings",
    "SteamData",
    "SurrogateSettings",
    "TaxonomyData",
    "TmdbSettings",
    "TrainingSettings",
    "TraitSettings",
    "TuningSettings",
    "WorldSettings",
    "explain_settings",
    "identity_hash",
    "load_settings",
    "read_value",
]
