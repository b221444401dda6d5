"""Share of the possible gain from personalisation that a recommender achieves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipelines.errors import ContractError
from pipelines.study import RESAMPLES, Figure, over_seeds, user_weights
from sim.metrics._evaluation import Played
from sim.metrics._lists import Floats, average_reward


def headroom_share(
    runs: Sequence[Played],
    common: Sequence[Played],
    oracle: Sequence[Played],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Figure:
    """Share of the headroom that a recommender earns: (its reward - common) / (oracle - common).

    0 is the best list for everybody, 1 each persona's own best items; below 0 a recommender earns
    less than the common list. A user whose list was not all rated in one of the three is left out
    of that seed. The bootstrap draws the same users for all three. ``runs``, ``common`` and
    ``oracle`` have what the recommender, the best common list and the oracle showed, one per seed,
    all of the same users in the same order.

    Raises ContractError if there are no runs, they differ in number or users, or the oracle earns
    no more than the common list.
    """
    users = {len(played.items) for group in (runs, common, oracle) for played in group}
    if not runs or len(users) != 1 or not (len(runs) == len(common) == len(oracle)):
        raise ContractError("the runs are of different users or seeds", where="headroom_share")
    rewards = np.stack([_rewards(group) for group in zip(runs, common, oracle, strict=True)])
    by_seed = [float(_share(seed_rewards.sum(axis=1))) for seed_rewards in rewards]
    if not np.isfinite(by_seed).all():
        raise ContractError(
            "the oracle earns no more than the common list",
            where="headroom_share",
            hint="personas do not differ: see the release's population report",
        )
    weights = user_weights(users.pop(), resamples, seed)
    # (seeds, 3, users) by (draws, users): sums of each draw.
    draws = np.mean([_share((weights @ seed_rewards.T).T) for seed_rewards in rewards], axis=0)
    # A draw of users without any headroom has no share.
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return Figure(
        float(np.mean(by_seed)), float(low), float(high), tuple(by_seed), *over_seeds(by_seed)
    )


def _rewards(group: tuple[Played, Played, Played]) -> Floats:
    """Mean rating of each user's list, of shape (3, users); 0 for users left out."""
    complete = np.all([played.complete for played in group], axis=0)
    values = np.stack([average_reward(played.ratings) for played in group])
    return np.where(complete & ~np.isnan(values).any(axis=0), values, 0.0)


def _share(sums: Floats) -> Floats:
    """(policy - common) / (oracle - common) of sums of shape (3, ...); NaN without headroom."""
    gain = sums[2] - sums[1]
    return np.asarray((sums[0] - sums[1]) / np.where(gain > 0, gain, np.nan))
