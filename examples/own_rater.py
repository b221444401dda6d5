"""A rater of your own: every persona gives the item's mean rating in the training split.

python examples/own_rater.py
understudy run --set scoring.rater=examples/own_rater.py:ItemMean    # a release with its scores
"""

import numpy as np

from pipelines.raters import RatingBatch, all_pairs
from pipelines.raters.testing import check_rater
from pipelines.seams import rater
from understudy import RecommendationEnv


@rater("item-mean")
class ItemMean:
    """Its constructor names the tables it needs; ``rate`` returns a distribution per pair."""

    name = "item-mean"
    code_version = "1"

    def __init__(self, item_stats, scale):
        self.scale = scale
        self.means = dict(item_stats.select("item_id", "train_mean_rating").iter_rows())

    def rate(self, personas, items, histories=None, *, pairs=None):
        pairs = all_pairs(personas.height, items.height) if pairs is None else pairs
        answers = self.scale.answers
        # Means are on 0.5-5 here; the scale of the answers may be another one.
        share = np.array([self.means.get(i) or 3.0 for i in items["item_id"]]) / 5
        place = np.rint(share * (len(answers) - 1)).astype(int)
        return RatingBatch(
            self.scale, np.eye(len(answers))[place[pairs[:, 1]]], ["ok"] * len(pairs)
        )

    def metadata(self):
        return {"rater": self.name, "fitted": {"means": "training"}, "by_hand": {}}


if __name__ == "__main__":
    check_rater(ItemMean)
    env = RecommendationEnv("movies@latest", rater="item-mean")
    _, info = env.reset(seed=0)
    print(info["description"])
    for film in env.catalogue.popularity[:5]:
        step = env.step(int(film))[4]
        print(env.catalogue.describe(int(film))["title"], step["rating"])
