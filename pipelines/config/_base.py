"""Base of every group of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from pipelines.paths import home_path
from pipelines.renames import current_setting

Share = Annotated[float, Field(ge=0.0, le=1.0)]


def _home(path: Path) -> Path:
    home_path(path)
    return path


#: A folder; ConfigError for an address.
Home = Annotated[Path, AfterValidator(_home)]

#: Settings whose values are names of raters and writers.
_NAMED = frozenset({"rater", "replay", "writer"})


class Section(BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    #: Whether the section's values are part of what a build is (hashed) or only how it runs.
    identity: ClassVar[bool] = True
    #: Fields of an identity section that are not hashed, because they change no output.
    runtime_fields: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _current_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            key: current_setting(value, key) if key in _NAMED else value
            for key, value in values.items()
        }

    def identity_values(self) -> dict[str, Any]:
        """Values that are hashed, ready for JSON."""
        return self.model_dump(mode="json", exclude=set(self.runtime_fields))
