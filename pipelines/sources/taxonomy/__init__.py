"""Category trees: ``A > B > C`` lines or a CSV of levels, as one raw table of paths."""

from pipelines.sources.taxonomy._source import TaxonomySource

__all__ = ["TaxonomySource"]
