"""Human judgement of ratings: blind questionnaires out, returned sheets in.

SUBER, section 4.3 and appendix E: people see who somebody is, what was rated and which rating a
rater gave, and say how sensible the answer is, not knowing whose it is; one rater of each
questionnaire draws its ratings at random.
"""

from pipelines.judge._cases import CONTROL, Case, Reply, draw_cases
from pipelines.judge._export import Questionnaire, export_questionnaire
from pipelines.judge._score import Judgement, score_sheets

__all__ = [
    "CONTROL",
    "Case",
    "Judgement",
    "Questionnaire",
    "Reply",
    "draw_cases",
    "export_questionnaire",
    "score_sheets",
]
