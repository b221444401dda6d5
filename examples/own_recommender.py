"""A recommender of your own, judged on people's held-out ratings beside two baselines.

python examples/own_recommender.py
understudy recommend evaluate --recommender examples/own_recommender.py:Newest
"""

import numpy as np

from understudy import evaluate_offline, open_recommender, open_release


class Newest:
    """Recommends the newest films to everybody."""

    name = "newest"
    note = "the year of release; nothing is fitted"

    def fit(self, release, *, interactions=None):
        years = release["items"].polars().sort("item_id")["year"]
        self.scores = years.fill_null(0).to_numpy().astype(float)
        return self

    def recommend(self, users, k, *, seen=None, ratings=None):
        scores = np.tile(self.scores, (len(users), 1))
        for row, past in zip(scores, [] if seen is None else seen):
            row[past[past >= 0]] = -1
        return np.argsort(-scores, axis=1, kind="stable")[:, :k]


if __name__ == "__main__":
    rivals = {name: open_recommender(name) for name in ("popular", "ease")}
    report = evaluate_offline({"newest": Newest(), **rivals}, open_release("movies@latest"))
    for row in report.rows:
        ndcg = row.ndcg
        print(f"{row.name:<8} NDCG@{report.k} {ndcg.value:.3f} [{ndcg.low:.3f}, {ndcg.high:.3f}]")
    print(f"{report.users} people, split {report.split} of {report.release}; 95 % intervals")
