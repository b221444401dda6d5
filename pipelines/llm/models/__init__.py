"""Checkpoints on this machine: fetched by pinned digest, kept under a name, opened by engines.

>>> from pipelines.llm.models import PUBLISHED
>>> PUBLISHED["smollm2-135m"].licence
'Apache-2.0'
"""

from pipelines.llm.models._folder import ModelFolder, StoredModel
from pipelines.llm.models._get import get_model
from pipelines.llm.models._probability import TextScorer
from pipelines.llm.models._published import PUBLISHED, PublishedModel

__all__ = [
    "PUBLISHED",
    "ModelFolder",
    "PublishedModel",
    "StoredModel",
    "TextScorer",
    "get_model",
]
