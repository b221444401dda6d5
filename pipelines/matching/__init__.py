"""Personas matched to real users by self-consistency (SimUSER, section 3.1; Agent4Rec, 2.1.1).

Candidate personas are proposed for a user's training history and rated by how much likelier they
make the user's own lists than those of others; the best one is the user's persona.

>>> float(likeness(0.0)), round(float(likeness(0.6931471805599453)), 6)
(5.5, 7.0)
"""

from pipelines.matching._history import (
    ASSUMED_FILE,
    STATED,
    History,
    Lists,
    assumed,
    occupation_values,
    occupations_of,
)
from pipelines.matching._match import (
    Matched,
    choose,
    draw_trials,
    list_sizes,
    match_users,
    open_matcher,
    posterior_of,
    self_consistency,
)
from pipelines.matching._model import ModelMatcher
from pipelines.matching._personality import personality_report, read_personality
from pipelines.matching._protocol import ATTRIBUTES, BIG_FIVE, Matcher, Rated, Taste, Trials
from pipelines.matching._report import attribute_rows, attribute_study
from pipelines.matching._statistical import StatisticalMatcher, likeness
from pipelines.matching._tastes import taste_profiles, taste_text

#: Bumped whenever the same tables and settings give other matches.
CODE_VERSION = "1"

__all__ = [
    "ASSUMED_FILE",
    "ATTRIBUTES",
    "BIG_FIVE",
    "CODE_VERSION",
    "STATED",
    "History",
    "Lists",
    "Matched",
    "Matcher",
    "ModelMatcher",
    "Rated",
    "StatisticalMatcher",
    "Taste",
    "Trials",
    "assumed",
    "attribute_rows",
    "attribute_study",
    "choose",
    "draw_trials",
    "likeness",
    "list_sizes",
    "match_users",
    "occupation_values",
    "occupations_of",
    "open_matcher",
    "personality_report",
    "posterior_of",
    "read_personality",
    "self_consistency",
    "taste_profiles",
    "taste_text",
]
