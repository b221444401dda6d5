"""Episodes written down, and exported to Parquet and to Minari.

>>> from sim.environment import RecommendationVectorEnv                  # doctest: +SKIP
>>> log = collect(RecommendationVectorEnv(16, "movies@latest"), 100)     # doctest: +SKIP
>>> write_parquet(log, "episodes.parquet")                               # doctest: +SKIP
"""

from sim.episodes._collect import CollectPolicy, collect
from sim.episodes._export import export_episodes, write_minari, write_parquet
from sim.episodes._log import Episode, EpisodeLog, EpisodeRecorder, VectorEpisodeRecorder

__all__ = [
    "CollectPolicy",
    "Episode",
    "EpisodeLog",
    "EpisodeRecorder",
    "VectorEpisodeRecorder",
    "collect",
    "export_episodes",
    "write_minari",
    "write_parquet",
]
