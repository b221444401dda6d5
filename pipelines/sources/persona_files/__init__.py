"""Persona files: JSON lines or plain text that somebody else wrote, as one raw table."""

from pipelines.sources.persona_files._records import NOT_SAID
from pipelines.sources.persona_files._source import PersonaFilesSource

__all__ = ["NOT_SAID", "PersonaFilesSource"]
