"""Settings: one validated tree from defaults, a YAML file and the environment.

>>> from pipelines.config import Settings
>>> Settings(world={"sample": {"films": 40}}).world.sample.films
40
"""

from pipelines.config._inputs import (
    AmazonData,
    EngineSettings,
    ProductsSettings,
    Section,
    ServingSettings,
)
from pipelines.config._sections import (
    COHORT_NAME,
    COHORT_NAME_IN_WORDS,
    EmbeddingSettings,
    ExecutionSettings,
    GraphSettings,
    MatchingSettings,
    PersonaSettings,
    RuntimeSettings,
    SampleSettings,
    ScoringSettings,
    Settings,
    SurrogateSettings,
    TmdbSettings,
    TrainingSettings,
    TuningSettings,
)
from pipelines.config._settings import (
    explain_settings,
    identity_hash,
    load_settings,
    read_value,
    setting_of,
)

__all__ = [
    "COHORT_NAME",
    "COHORT_NAME_IN_WORDS",
    "AmazonData",
    "EmbeddingSettings",
    "EngineSettings",
    "ExecutionSettings",
    "GraphSettings",
    "MatchingSettings",
    "PersonaSettings",
    "ProductsSettings",
    "RuntimeSettings",
    "SampleSettings",
    "ScoringSettings",
    "Section",
    "ServingSettings",
    "Settings",
    "SurrogateSettings",
    "TmdbSettings",
    "TrainingSettings",
    "TuningSettings",
    "explain_settings",
    "identity_hash",
    "load_settings",
    "read_value",
    "setting_of",
]
