"""Compare recommenders on simulated users: ten films for each persona, and what it rates them.

python examples/first_recommender.py [RELEASE]
"""

import sys

import numpy as np

from sim.metrics import mean_with_interval, user_weights
from understudy import RecommendationVectorEnv, World, open_recommender, open_release

release = open_release(sys.argv[1] if len(sys.argv) > 1 else "movies@latest")
world = World.open(release)  # every persona, rated by the statistical rater
personas = np.arange(min(200, len(world.cast)))
envs = RecommendationVectorEnv(len(personas), world=world, leave_probability=0.0)
weights = user_weights(len(personas), draws=1_000, seed=0)
for name in ("random", "popular", "mean-rating", "content"):
    lists = open_recommender(name).fit(release).recommend(personas, 10)
    envs.reset(seed=0, options={"personas": personas})
    ratings = np.mean([envs.step(films)[1] for films in lists.T], axis=0)
    mean = mean_with_interval(ratings, weights)
    print(f"{name:<12} mean rating {mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}]")
print(f"{len(personas)} personas of {release.ref}; 95 % intervals. {world.rater.note}")
