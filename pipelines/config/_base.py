"""What every group of settings is."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Section", "Share"]

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    #: Whether the section's values are part of what a build is (hashed) or only how it runs.
    identity: ClassVar[bool] = True
