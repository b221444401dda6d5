"""Amazon reviews: the editions of 2018 and 2023, in the files their publishers offer."""

from pipelines.sources.amazon._layout import AmazonFile, find_files
from pipelines.sources.amazon._source import AmazonSource

__all__ = ["AmazonFile", "AmazonSource", "find_files"]
