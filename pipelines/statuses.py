"""Statuses of models' answers and of posters' captions, in engines and tables alike."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["CAPTION_STATUSES", "STATUSES", "Status"]

#: Status of a model's answer. Only `ok` carries an answer that may be used.
Status = Literal["ok", "truncated", "invalid", "refused", "engine_error"]
STATUSES: tuple[Status, ...] = get_args(Status)

#: Statuses of a caption. Only `ok` has a text. `missing`: there is no poster; `corrupt`: the file
#: is damaged or no picture; `too_large`: in bytes or pixels; `animated`; `cmyk`: inks without a
#: profile, whose colours are undefined. The others are those of a model's answer.
CAPTION_STATUSES = ("ok", "missing", "corrupt", "too_large", "animated", "cmyk", *STATUSES[1:])
