"""A trained policy as a file and as a recommender."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import orjson
import torch as th

from pipelines.errors import IntegrityError, ReleaseError
from sim.recommenders import ScoredRecommender
from sim.training._networks import ItemScores, Sizes

if TYPE_CHECKING:
    import polars as pl

    from sim._release import Release
    from sim.recommenders import Floats, Ints

#: Key of the metadata in the header of the file.
_KEY = "understudy"


def id_hash(ids: list[str]) -> str:
    """SHA-256 (hex) of ids in their order, which identifies an item set.

    >>> id_hash(["ml:1", "ml:2"]) == id_hash(["ml:1", "ml:2"]) != id_hash(["ml:2", "ml:1"])
    True
    """
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()


class PolicyRecommender(ScoredRecommender):
    """The greedy recommendations of a trained policy.

    ``metadata`` has ``algo``, ``steps``, ``seed``, ``release``, ``rater``, ``language_model``, and
    hashes of the ``items`` and ``personas`` that it was trained on.
    """

    def __init__(self, network: ItemScores, metadata: dict[str, Any]) -> None:
        self.network, self.metadata = network, metadata
        self.name = str(metadata["algo"])
        judge = "a language model" if metadata.get("language_model") else "no language model"
        self.note = (
            f"Trained with {self.name} for {int(metadata['steps']):,} steps on "
            f"{metadata['release']}, rater {metadata['rater']} ({judge})."
        )
        self.shape = (network.sizes.items, network.sizes.personas)

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Check that the policy was trained on these items and personas; learns nothing.

        ReleaseError, saying how they differ, if it was trained on others.
        """
        from sim.environment import Catalogue, PersonaTable

        del interactions
        for what, ids in (
            ("items", Catalogue.read(release).ids),
            ("personas", PersonaTable.read(release).ids),
        ):
            if id_hash(ids) != self.metadata[what]:
                sizes = self.network.sizes
                trained = sizes.items if what == "items" else sizes.personas
                raise ReleaseError(
                    f"the policy was trained on other {what}: {trained:,} of "
                    f"{self.metadata['release']}, here {len(ids):,}"
                    + (" with other ids" if trained == len(ids) else ""),
                    where=release.ref,
                    hint=f"open {self.metadata['release']}, or train on this release",
                )
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        past, rated = _newest_first(seen, ratings)
        observation = {
            "persona": th.as_tensor(users),
            "recent_items": th.as_tensor(past),
            "recent_ratings": th.as_tensor(rated.astype(np.float32)),
        }
        with th.no_grad():
            scores: Floats = self.network(observation).double().numpy()
        return scores


def _newest_first(seen: Ints, ratings: Floats) -> tuple[Ints, Floats]:
    """Histories in the order of observations.

    >>> _newest_first(np.array([[4, 7, -1]]), np.array([[2.0, 9.0, np.nan]]))
    (array([[ 7,  4, -1]]), array([[ 9.,  2., -1.]]))
    """
    length = (seen >= 0).sum(axis=1, keepdims=True)
    at = length - 1 - np.arange(seen.shape[1])
    exists = at >= 0
    at = np.maximum(at, 0)
    if not seen.shape[1]:
        return seen, ratings
    items = np.where(exists, np.take_along_axis(seen, at, axis=1), -1)
    rated = np.take_along_axis(ratings, at, axis=1)
    # A history without its ratings counts as not rated.
    valid = exists & ~np.isnan(rated)
    return items, np.where(valid, rated, -1.0)


def policy_bytes(network: ItemScores, metadata: dict[str, Any]) -> bytes:
    """Serialise a policy as safetensors, metadata in the header. Same policy, same bytes."""
    from safetensors.torch import save

    sizes = network.sizes
    header = {**metadata, "sizes": {k: getattr(sizes, k) for k in Sizes.__dataclass_fields__}}
    text = orjson.dumps(header, option=orjson.OPT_SORT_KEYS).decode()
    return save({k: v.contiguous() for k, v in network.state_dict().items()}, metadata={_KEY: text})


def load_policy(source: Path | bytes) -> PolicyRecommender:
    """Load a policy from its file or bytes; `fit` checks that it belongs to a release.

    IntegrityError if it is truncated or of another format.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    where = str(source) if isinstance(source, Path) else "policy"
    try:
        data = source.read_bytes() if isinstance(source, Path) else source
        length = int.from_bytes(data[:8], "little")
        metadata = orjson.loads(orjson.loads(data[8 : 8 + length])["__metadata__"][_KEY])
        network = ItemScores(Sizes(**metadata.pop("sizes")))
        network.load_state_dict(load(data))
    except OSError as error:
        raise IntegrityError(f"the policy can't be read ({error.strerror})", where=where) from None
    except (SafetensorError, orjson.JSONDecodeError, KeyError, TypeError, RuntimeError) as error:
        raise IntegrityError(
            f"the policy file is truncated or of another format ({type(error).__name__})",
            where=where,
            hint="use that of another checkpoint, or train again",
        ) from error
    return PolicyRecommender(network, metadata)
