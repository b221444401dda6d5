"""Synthetic users: attributes sampled from stated distributions, described by a writer.

The default writer, `statistical`, combines phrases of our own and needs no model; the ``writer``
column has its name.

>>> from pipelines.config import PersonaSettings
>>> one = generate(PersonaSettings(), start=3, count=1)
>>> one["persona_id"].item(), one["writer"].item()
('persona:default:0000003', 'statistical')
"""

from pipelines.personas._attributes import sample_attributes
from pipelines.personas._generate import generate, generate_batches
from pipelines.personas._grammar import StatisticalWriter
from pipelines.personas._handmade import (
    HANDMADE_VERSION,
    PARAPHRASE_DIGESTS,
    SUITE_GENRES,
    handmade_personas,
    handmade_suite,
    paraphrases,
    restated_personas,
)
from pipelines.personas._imported import IMPORT_VERSION, imported, imported_batches
from pipelines.personas._joint import MIN_PEOPLE, OPINION, TRAITS, joint_distances
from pipelines.personas._lists import OPINIONS, PersonaLists, load_lists, read_lists
from pipelines.personas._matched import (
    MATCHED_VERSION,
    is_matched,
    matched_cohort,
    matched_personas,
)
from pipelines.personas._model_reader import READER_PROMPT_VERSION, ModelReader
from pipelines.personas._model_writer import ModelWriter
from pipelines.personas._phrases import DOMAIN_NAMES, OWN, article, genre_phrase
from pipelines.personas._reader import (
    Reading,
    noted_readings,
    read_fields,
    read_text,
    reading_counts,
    reading_statement,
)
from pipelines.personas._terms import LICENCES
from pipelines.personas._writers import Writer, load_writer

#: Cohorts whose name begins so come from the world's persona files, or were written by hand.
IMPORTED, HANDMADE = "imported", "handmade"
#: Bumped whenever the same settings give other personas.
CODE_VERSION = "8"

__all__ = [
    "CODE_VERSION",
    "DOMAIN_NAMES",
    "HANDMADE",
    "HANDMADE_VERSION",
    "IMPORTED",
    "IMPORT_VERSION",
    "LICENCES",
    "MATCHED_VERSION",
    "MIN_PEOPLE",
    "OPINION",
    "OPINIONS",
    "OWN",
    "PARAPHRASE_DIGESTS",
    "READER_PROMPT_VERSION",
    "SUITE_GENRES",
    "TRAITS",
    "ModelReader",
    "ModelWriter",
    "PersonaLists",
    "Reading",
    "StatisticalWriter",
    "Writer",
    "article",
    "generate",
    "generate_batches",
    "genre_phrase",
    "handmade_personas",
    "handmade_suite",
    "imported",
    "imported_batches",
    "is_matched",
    "joint_distances",
    "load_lists",
    "load_writer",
    "matched_cohort",
    "matched_personas",
    "noted_readings",
    "paraphrases",
    "read_fields",
    "read_lists",
    "read_text",
    "reading_counts",
    "reading_statement",
    "restated_personas",
    "sample_attributes",
]
