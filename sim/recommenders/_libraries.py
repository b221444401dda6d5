"""Recommenders that are fitted on interactions: implicit's, cornac's, torch-geometric's, EASE.

A rating counts as an interaction whatever its value. Matched personas are scored by the row that
they were fitted with; the others are folded in from what they have seen and rated, or get the
most popular items and are counted. Libraries run in one thread while they are fitted, so that
equal seeds give equal lists on any number of cores.
"""

from __future__ import annotations

import sys
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pipelines.errors import ConfigError
from pipelines.extras import install_hint
from sim.environment import Catalogue, PersonaTable
from sim.recommenders._interactions import InteractionMatrix
from sim.recommenders._protocol import Floats, Ints, ScoredRecommender

if TYPE_CHECKING:
    import polars as pl

    from sim._release import Release


class CollaborativeRecommender(ScoredRecommender):
    """Base of recommenders that learn from which users rated which items."""

    #: Modules that must be installed, by import name.
    needs: ClassVar[tuple[str, ...]] = ()
    #: Users that got the most popular items since `fit`, once per call (count): they have no row
    #: and no history, or the model can't fold a history in.
    fallbacks: int = 0

    def __post_init__(self) -> None:
        missing = [module for module in self.needs if find_spec(module) is None]
        if missing:
            raise ConfigError(
                f"{', '.join(missing)} is not installed",
                where=f"recommender {self.name}",
                hint=install_hint("agents"),
            )

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """See :class:`Recommender`."""
        data = InteractionMatrix.read(release, interactions)
        self.shape = len(Catalogue.read(release)), len(PersonaTable.read(release))
        self._rows = data.rows_of(release)
        self._popularity = np.asarray(data.matrix.sum(axis=0), np.float64).ravel()
        self.fallbacks = 0
        for module in self.needs:
            # A library that is loaded later would start its threads beyond the limit.
            import_module(module)
        with _one_thread():
            self._learn(data.matrix)
        return self

    @abstractmethod
    def _learn(self, matrix: Any) -> None:
        """Fit the model on a CSR matrix of shape (users, items)."""

    @abstractmethod
    def _of_rows(self, rows: Ints) -> Floats:
        """Scores of every item for users of the fitted matrix, of shape (rows, items)."""

    def _of_histories(self, histories: Any) -> Floats | None:
        """Scores for new users from a CSR matrix of histories; None if the model can't."""
        del histories
        return None

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        rows = self._rows[users]
        out = np.tile(self._popularity, (len(users), 1))
        left = rows < 0
        if not left.all():
            out[~left] = self._of_rows(rows[~left])
        counted = _interactions(seen, ratings)
        new = np.flatnonzero(left & counted.any(axis=1))
        if len(new):
            folded = self._of_histories(_history(seen[new], counted[new], out.shape[1]))
            if folded is not None:
                out[new] = folded
                left[new] = False
        self.fallbacks += int(left.sum())
        return out


def _interactions(seen: Ints, ratings: Floats) -> Any:
    """Seen items that count, as booleans: of a user with ratings, only the rated ones."""
    rated = ~np.isnan(ratings)
    return (seen >= 0) & (rated | ~rated.any(axis=1, keepdims=True))


def _history(seen: Ints, counted: Any, items: int) -> Any:
    """The counted items as a CSR matrix of ones, of shape (users, items)."""
    from scipy import sparse

    row, place = np.nonzero(counted)
    pairs = np.unique(np.stack([row, seen[row, place]]), axis=1)
    ones = np.ones(pairs.shape[1], np.float32)
    return sparse.csr_matrix((ones, (pairs[0], pairs[1])), shape=(len(seen), items))


class _ItemWeights(CollaborativeRecommender):
    """Scores are a user's row times a matrix of item weights, so that a history is a row."""

    _matrix: Any
    _weights: Any

    def _of_rows(self, rows: Ints) -> Floats:
        return self._of_histories(self._matrix[rows])

    def _of_histories(self, histories: Any) -> Floats:
        # A sparse product sums in the order of the items, independent of the rest of the batch.
        scores = histories.astype(np.float64) @ self._weights
        return np.asarray(scores.todense() if hasattr(scores, "todense") else scores)


@dataclass(eq=False)
class EASERecommender(_ItemWeights):
    """EASE (Steck 2019): the closed form of a linear item model with a zero diagonal."""

    name = "ease"
    note = "EASE: linear item weights in closed form, from training interactions."

    #: L2 penalty on the weights (Steck's lambda).
    regularization: float = 300.0

    def _learn(self, matrix: Any) -> None:
        from scipy import linalg

        self._matrix = matrix
        gram = np.asarray((matrix.T @ matrix).todense(), np.float64)
        gram[np.diag_indices_from(gram)] += self.regularization
        inverse = linalg.inv(gram, overwrite_a=True, assume_a="pos")
        self._weights = inverse / -np.diag(inverse)
        np.fill_diagonal(self._weights, 0.0)


@dataclass(eq=False)
class ItemKNNRecommender(_ItemWeights):
    """Nearest items by the cosine of their users (implicit)."""

    name = "item-knn"
    note = "Cosine neighbours of a user's items (implicit), from training interactions."
    needs = ("implicit",)

    #: Items kept per item, itself included (count).
    neighbours: int = 100

    def _learn(self, matrix: Any) -> None:
        from implicit.nearest_neighbours import CosineRecommender
        from implicit.utils import ParameterWarning

        self._matrix = matrix
        model = CosineRecommender(K=self.neighbours, num_threads=1)
        with warnings.catch_warnings():
            # implicit warns of a conversion inside its own fit.
            warnings.simplefilter("ignore", ParameterWarning)
            model.fit(matrix, show_progress=False)
        self._weights = model.similarity.astype(np.float64).tocsr()


@dataclass(eq=False)
class ALSRecommender(CollaborativeRecommender):
    """Matrix factorisation by alternating least squares (implicit; Hu et al. 2008)."""

    name = "als"
    note = "Alternating least squares (implicit), from training interactions."
    needs = ("implicit",)

    #: Length of the vectors (count).
    factors: int = 32
    #: L2 penalty, and weight of an interaction.
    regularization: float = 1.0
    alpha: float = 1.0
    #: Passes over users and items (count).
    iterations: int = 15
    #: Seed of the starting vectors.
    seed: int = 0

    def _learn(self, matrix: Any) -> None:
        from implicit.als import AlternatingLeastSquares

        self._model = AlternatingLeastSquares(
            factors=self.factors,
            regularization=self.regularization,
            alpha=self.alpha,
            iterations=self.iterations,
            random_state=self.seed,
            num_threads=1,
            use_gpu=False,
        )
        self._model.fit(matrix, show_progress=False)
        self._users = np.asarray(self._model.user_factors, np.float64)
        self._items = np.asarray(self._model.item_factors, np.float64)

    def _of_rows(self, rows: Ints) -> Floats:
        return np.asarray(self._users[rows] @ self._items.T)

    def _of_histories(self, histories: Any) -> Floats:
        numbers = np.arange(histories.shape[0])
        users = self._model.recalculate_user(numbers, histories)
        return np.asarray(users.astype(np.float64) @ self._items.T)


@dataclass(eq=False)
class BPRRecommender(CollaborativeRecommender):
    """Matrix factorisation by Bayesian personalised ranking (implicit; Rendle et al. 2009).

    It can't fold new users in: they get the most popular items.
    """

    name = "bpr"
    note = "Bayesian personalised ranking (implicit), from training interactions."
    needs = ("implicit",)

    #: Length of the vectors (count).
    factors: int = 100
    #: Step size and L2 penalty of the stochastic gradient.
    learning_rate: float = 0.01
    regularization: float = 0.01
    #: Passes over the interactions (count).
    iterations: int = 100
    #: Seed of the starting vectors and of the sampled pairs.
    seed: int = 0

    def _learn(self, matrix: Any) -> None:
        from implicit.bpr import BayesianPersonalizedRanking

        model = BayesianPersonalizedRanking(
            factors=self.factors,
            learning_rate=self.learning_rate,
            regularization=self.regularization,
            iterations=self.iterations,
            random_state=self.seed,
            # Several threads update the same vectors in an order of chance.
            num_threads=1,
            use_gpu=False,
        )
        model.fit(matrix, show_progress=False)
        self._users = np.asarray(model.user_factors, np.float64)
        self._items = np.asarray(model.item_factors, np.float64)

    def _of_rows(self, rows: Ints) -> Floats:
        return np.asarray(self._users[rows] @ self._items.T)


@dataclass(eq=False)
class MultVAERecommender(CollaborativeRecommender):
    """MultVAE (Liang et al. 2018): cornac's ``VAECF`` with the multinomial likelihood.

    Ranks by the decoded mean of the latent vector: nothing is sampled or dropped out.
    """

    name = "multvae"
    note = "MultVAE (cornac's VAECF, multinomial likelihood), from training interactions."
    needs = ("cornac", "torch")

    #: Length of the latent vector and width of the one hidden layer (count).
    latent: int = 32
    hidden: int = 256
    #: Passes over the users, and users per step (count).
    epochs: int = 60
    batch: int = 100
    #: Step size of Adam, and weight of the KL term.
    learning_rate: float = 1e-3
    beta: float = 1.0
    #: Seed of weights and noise.
    seed: int = 0

    def _learn(self, matrix: Any) -> None:
        import torch
        from cornac.data import Dataset
        from cornac.models import VAECF

        self._matrix = matrix
        users, items = matrix.shape
        pairs = matrix.tocoo()
        # cornac numbers users and items by these maps; ours are numbers already.
        data = Dataset(
            users,
            items,
            {n: n for n in range(users)},
            {n: n for n in range(items)},
            (pairs.row, pairs.col, pairs.data),
            seed=self.seed,
        )
        model = VAECF(
            k=self.latent,
            autoencoder_structure=[self.hidden],
            likelihood="mult",
            n_epochs=self.epochs,
            batch_size=self.batch,
            learning_rate=self.learning_rate,
            beta=self.beta,
            seed=self.seed,
        )
        with torch.random.fork_rng(devices=[]):  # cornac seeds the global generator
            model.fit(data)
        # Double precision: scores of a user don't depend on the batch in any digit that counts.
        self._vae = model.vae.double().eval()

    def _of_rows(self, rows: Ints) -> Floats:
        return self._of_histories(self._matrix[rows])

    def _of_histories(self, histories: Any) -> Floats:
        import torch

        with torch.inference_mode():
            mean, _ = self._vae.encode(torch.from_numpy(histories.toarray().astype(np.float64)))
            return np.asarray(self._vae.decode(mean).numpy())


@dataclass(eq=False)
class LightGCNRecommender(CollaborativeRecommender):
    """LightGCN (He et al. 2020) with torch-geometric's model and pairwise loss.

    Defaults were chosen on ml-100k's validation split (benchmarks/earlier/recommenders.md).
    """

    name = "lightgcn"
    note = "LightGCN (torch-geometric), from training interactions."
    needs = ("torch_geometric", "torch")

    #: Length of the vectors, and propagation steps (count).
    dim: int = 64
    layers: int = 2
    #: Passes over the interactions, and pairs per step (count).
    epochs: int = 100
    batch: int = 32_768
    #: Step size of Adam, and L2 penalty on the vectors before propagation.
    learning_rate: float = 0.03
    regularization: float = 1e-4
    #: Seed of the starting vectors and of the sampled pairs.
    seed: int = 0

    def _learn(self, matrix: Any) -> None:
        import torch
        from torch_geometric.nn.models import LightGCN

        graph, users = _normalised_graph(matrix), matrix.shape[0]
        rng = np.random.default_rng(self.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = LightGCN(sum(matrix.shape), self.dim, self.layers, normalize=False)
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        rated = np.repeat(np.arange(users), np.diff(matrix.indptr)), matrix.indices.astype(np.int64)
        for _ in range(self.epochs):
            order = rng.permutation(matrix.nnz)
            for start in range(0, matrix.nnz, self.batch):
                chosen = order[start : start + self.batch]
                user, item = rated[0][chosen], rated[1][chosen]
                other = _unrated(matrix, user, rng)
                nodes = [torch.from_numpy(n) for n in (user, item + users, other + users)]
                embedding = model.get_embedding(graph)
                mine, theirs, others = (embedding.index_select(0, n) for n in nodes)
                loss = model.recommendation_loss(
                    (mine * theirs).sum(dim=-1),
                    (mine * others).sum(dim=-1),
                    node_id=torch.cat(nodes),
                    lambda_reg=self.regularization,
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        self._keep(model, graph, matrix)

    def _keep(self, model: Any, graph: Any, matrix: Any) -> None:
        import torch

        users = matrix.shape[0]
        with torch.inference_mode():
            final = model.get_embedding(graph).numpy().astype(np.float64)
            # A new user starts from zero: its vector is what its items send in each layer.
            sent, layer = torch.zeros_like(model.embedding.weight), model.embedding.weight
            for n in range(self.layers):
                sent = sent + model.alpha[n + 1] * layer
                layer = model.convs[n](layer, graph)
        self._users, self._items = final[:users], final[users:]
        degree = np.maximum(np.asarray(matrix.sum(axis=0), np.float64).ravel(), 1.0)
        self._sent = sent.numpy()[users:].astype(np.float64) / np.sqrt(degree)[:, None]

    def _of_rows(self, rows: Ints) -> Floats:
        return np.asarray(self._users[rows] @ self._items.T)

    def _of_histories(self, histories: Any) -> Floats:
        degree = np.asarray(histories.sum(axis=1), np.float64)
        return np.asarray((histories @ self._sent / np.sqrt(degree)) @ self._items.T)


def _normalised_graph(matrix: Any) -> Any:
    """Adjacency of users and items, each edge divided by the root of both degrees (torch CSR)."""
    import torch
    from scipy import sparse

    edges = sparse.block_array([[None, matrix], [matrix.T, None]], format="csr")
    scale = sparse.diags_array(1.0 / np.sqrt(np.maximum(edges.sum(axis=1), 1.0)))
    edges = (scale @ edges @ scale).tocsr().astype(np.float32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(edges.indptr.astype(np.int64)),
            torch.from_numpy(edges.indices.astype(np.int64)),
            torch.from_numpy(edges.data),
            edges.shape,
            check_invariants=True,
        )


def _unrated(matrix: Any, users: Ints, rng: np.random.Generator) -> Ints:
    """A random item per user, drawn again (up to ten times) while the user has rated it."""
    items = rng.integers(0, matrix.shape[1], len(users))
    for _ in range(10):
        wrong = np.flatnonzero(np.asarray(matrix[users, items]).ravel())
        if not len(wrong):
            break
        items[wrong] = rng.integers(0, matrix.shape[1], len(wrong))
    return items


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit BLAS, and torch if it is loaded, to one thread."""
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 0
    with threadpool_limits(1):
        if torch:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch:
                torch.set_num_threads(before)
