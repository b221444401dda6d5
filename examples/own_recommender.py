"""A recommender of your own, judged on people's held-out ratings beside two baselines.

python examples/own_recommender.py
understudy recommend evaluate --recommender examples/own_recommender.py:Newest
"""

import numpy as np

from sim.recommenders import recommender
from sim.recommenders.testing import check_recommender
from understudy import evaluate_offline, open_recommender, open_release


@recommender("newest")
class Newest:
    """Recommends the newest films to everybody."""

    name = "newest"
    note = "The year of release; nothing is fitted."

    def fit(self, release, *, interactions=None):
        years = release["items"].polars().sort("item_id")["year"]
        self.scores = years.fill_null(0).to_numpy().astype(float)
        return self

    def recommend(self, users, k, *, seen=None, ratings=None):
        scores = np.tile(self.scores, (len(users), 1))
        for row, past in zip(scores, [] if seen is None else np.asarray(seen)):
            row[past[past >= 0]] = -1
        lists = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.where(np.take_along_axis(scores, lists, axis=1) < 0, -1, lists)


if __name__ == "__main__":
    release = open_release("movies@latest")
    check_recommender(Newest, release)
    names = ("newest", "popular", "ease")
    report = evaluate_offline({name: open_recommender(name) for name in names}, release)
    for row in report.rows:
        ndcg = row.ndcg
        print(f"{row.name:<8} NDCG@{report.k} {ndcg.value:.3f} [{ndcg.low:.3f}, {ndcg.high:.3f}]")
    print(f"{report.users} people, split {report.split} of {report.release}; 95 % intervals")
