"""The captioner that asks a language model which takes images."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pipelines.captions._posters import Poster, read_image
from pipelines.captions._protocol import Caption
from pipelines.llm.answers import Asking
from pipelines.llm.engines import Image, Request, Sampling
from pipelines.llm.grammars import TextLimits, prose
from pipelines.prompts import CAPTION_PROMPT_VERSION, caption_messages, caption_prompt_digest

#: Longest side of the picture that is sent (pixels), and its JPEG quality.
_SIDE, _QUALITY = 512, 90


class ModelCaptioner(Asking):
    """Describes posters with a language model (SimUSER, section 3.2.2 and appendix C.3).

    Pictures are sent as JPEG of at most 512 pixels a side, without the metadata of the file. An
    engine that takes no images answers `invalid`, and the item has no caption. Answers go through
    the answer store: a rerun asks nothing again.
    """

    def __init__(self, engine: Any, **asking: Any) -> None:
        super().__init__(engine, **asking)
        self.name = engine.identity.model
        self._grammar = prose(limits=TextLimits((1, 3), (20, 200)), name="caption")
        self._longest = self._grammar.longest()

    def caption(self, posters: Sequence[Poster]) -> list[Caption]:
        """See :class:`pipelines.captions.Captioner`."""
        out = [Caption("engine_error") for _ in posters]

        def requests() -> Iterator[Request]:
            for n, poster in enumerate(posters):
                image = read_image(poster.data)
                if isinstance(image, str):
                    out[n] = Caption(image)
                    continue
                image.thumbnail((_SIDE, _SIDE))
                sent = io.BytesIO()
                image.save(sent, "JPEG", quality=_QUALITY)
                yield Request(
                    caption_messages(Image("image/jpeg", sent.getvalue())),
                    constraint=self._grammar.constraint,
                    sampling=Sampling(0.0, max_tokens=self._longest),
                    tag=n,
                )

        for request, _, answer in self._ask(requests()):
            text = answer.text if answer.status == "ok" else None
            if text is not None and self._grammar.parse(text) is None:
                out[request.tag] = Caption("invalid")
            else:
                out[request.tag] = Caption(answer.status, text)
        return out

    def metadata(self) -> dict[str, Any]:
        """Model, prompt and calls."""
        return {
            "captioner": self.name,
            "language_model": True,
            "engine": asdict(self._engine.identity),
            "answered_by": self._engine.metadata().get("answered_by", []),
            "prompt_version": CAPTION_PROMPT_VERSION,
            "prompt_sha256": caption_prompt_digest(),
            "calls": self.tally.to_dict(),
        }
