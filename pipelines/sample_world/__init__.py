"""The sample world: generated files in the original formats, for demo, tests and benchmarks.

Files of every domain with the statistics that matter (long tails, user bias, taste by genre, series
of films), gaps and a few broken rows. All is invented; an answer key lists what is true.
"""

from pipelines.sample_world._world import KEY_FILE, BrokenRow, SampleWorld
from pipelines.sample_world._write import CODE_VERSION, write_sample_world

__all__ = ["CODE_VERSION", "KEY_FILE", "BrokenRow", "SampleWorld", "write_sample_world"]
