"""Steam (Kang and McAuley): games, reviews and time played."""

from pipelines.sources.steam._literals import as_json
from pipelines.sources.steam._source import SteamSource

__all__ = ["SteamSource", "as_json"]
