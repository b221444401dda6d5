"""Retrieval: which past items a simulated user thinks of when it meets an item.

>>> import numpy as np, polars as pl
>>> items = pl.DataFrame({"item_id": ["ml:1", "ml:2"], "genres": [["Drama"], ["Comedy"]]})
>>> recent = open_retriever("recent", items=items)
>>> recent.select(np.array([0]), np.array([[1, 0]]), np.array([[4.0, 2.0]]), 1).tolist()
[[1]]
"""

from pipelines.retrieval._embedding import EmbeddingRetriever, item_vectors
from pipelines.retrieval._features import FeatureRetriever, ItemFeatures
from pipelines.retrieval._protocol import Retriever, latest, newest_best
from pipelines.retrieval._registry import NoRetriever, RecentRetriever, open_retriever

__all__ = [
    "EmbeddingRetriever",
    "FeatureRetriever",
    "ItemFeatures",
    "NoRetriever",
    "RecentRetriever",
    "Retriever",
    "item_vectors",
    "latest",
    "newest_best",
    "open_retriever",
]
