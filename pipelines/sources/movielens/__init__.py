"""MovieLens (GroupLens, University of Minnesota): films, ratings, links and tags."""

from pipelines.sources.movielens._layout import ARCHIVES, Layout, find_layout
from pipelines.sources.movielens._source import MovielensSource

__all__ = ["ARCHIVES", "Layout", "MovielensSource", "find_layout"]
