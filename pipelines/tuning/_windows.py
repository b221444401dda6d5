"""Rating examples as tokens: what a model reads, and where it is judged.

A list of ratings is one text whose every answer is judged. Lines that stand alone behind the same
beginning (a description, or a history before held-out lines) are branches of one window: each sees
the beginning and itself, at the positions that it has when it is served.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.llm.engines.chat import render
from pipelines.llm.engines.tokens import encode
from pipelines.prompts import PromptStyle, rating_messages

if TYPE_CHECKING:
    import torch

#: Longest text (tokens).
CONTEXT = 1_024
#: Label of a place that is not judged.
IGNORED = -100
#: Share of the context that the history of a training prompt may take (rest: targets),
#: and room for a line (tokens).
_HISTORY, _ROOM = 0.6, 128


@dataclass
class Window:
    """Tokens of a text with their positions and branches (0: seen by all behind it).

    ``labels`` are the answers' tokens at the places before them, ``rows`` the numbers of the
    examples of these answers, in their order.
    """

    ids: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    branch: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def add(self, ids: Sequence[int], start: int, branch: int) -> None:
        """Tokens from a position on."""
        self.ids += ids
        self.position += range(start, start + len(ids))
        self.branch += [branch] * len(ids)
        self.labels += [IGNORED] * len(ids)


@dataclass(frozen=True)
class Prompts:
    """Prompts of a model: its tokenizer, the token of each answer, and the style.

    ``lists`` is whether a history goes on as a list of ratings, all of which are judged; a model
    with a chat template is asked behind the template's marks instead.
    """

    tokenizer: Any
    answers: tuple[int, ...]
    style: PromptStyle
    lists: bool

    def windows(self, rows: pl.DataFrame) -> Iterator[Window]:
        """Windows of examples, in their order.

        Of a history that is too long the oldest lines are left out; lines that reach beyond the
        context are no targets.
        """
        numbered = rows.with_row_index("number")
        for _, part in numbered.group_by("window", maintain_order=True):
            trained = part["split"][0] == "train"
            if self.lists and trained and part["shows"][0] != "description":
                yield self._list(part)
            elif trained and part["shows"][0] != "description":
                # The first half of the lines is the history of the others.
                half = part.height // 2
                yield from self._asked(part[:half], part[half:], int(CONTEXT * _HISTORY))
            else:
                context = part["split"] == "context"
                yield from self._asked(part.filter(context), part.filter(~context), CONTEXT)

    def prompt(self, person: str, line: str) -> list[int]:
        """Tokens of a prompt as it is served."""
        return list(render(self.tokenizer, rating_messages({}, line, self.style, person=person)))

    def _list(self, part: pl.DataFrame) -> Window:
        text = f"{part['description'][0]}\n" if part["description"][0] else ""
        starts: dict[int, int] = {}
        columns = part.select("number", "line", "rating", "after")
        for number, line, rating, after in columns.iter_rows():
            starts[len(text) + len(line) + len(" -> ")] = number
            text += f"{line} -> {self.style.scale.text_of(rating)}{after}\n"
        tokens = self.tokenizer(
            text,
            add_special_tokens=False,
            return_offsets_mapping=True,
            truncation=True,
            max_length=CONTEXT,
        )
        window = Window()
        window.add(tokens["input_ids"], 0, 0)
        for place, (start, _) in enumerate(tokens["offset_mapping"][1:]):
            if start in starts:
                window.labels[place] = window.ids[place + 1]
                window.rows.append(starts[start])
        return window

    def _asked(self, context: pl.DataFrame, targets: pl.DataFrame, room: int) -> Iterator[Window]:
        scale, start = self.style.scale, targets["description"][0]
        columns = context.select("line", "rating", "after").iter_rows()
        lines = [f"{line} -> {scale.text_of(r)}{after}" for line, r, after in columns]
        sizes = [len(encode(self.tokenizer, f"{line}\n")) for line in lines]
        room -= _ROOM + len(self.prompt(start, targets["line"][0]))
        while sizes and sum(sizes) > room:
            sizes.pop(0)
        person = "\n".join([start] * bool(start) + lines[len(lines) - len(sizes) :])
        prompts = [self.prompt(person, line) for line in targets["line"]]
        # The last token of each is its own: there the answer is read.
        common = min(len(commonprefix(prompts)), min(map(len, prompts)) - 1)  # noqa: RUF071 (tokens)
        window, branch = Window(), 0
        numbers = targets.select("rating", "number").iter_rows()
        for prompt, (rating, number) in zip(prompts, numbers, strict=True):
            if len(prompt) > CONTEXT:
                continue
            if branch and len(window.ids) + len(prompt) - common > CONTEXT:
                yield window
                window, branch = Window(), 0
            if not branch:
                window.add(prompt[:common], 0, 0)
            branch += 1
            window.add(prompt[common:], common, branch)
            window.labels[-1] = self.answers[scale.texts.index(scale.text_of(rating))]
            window.rows.append(number)
        if branch:
            yield window


def batch_of(windows: Sequence[Window]) -> dict[str, torch.Tensor]:
    """Arguments of a model for windows, filled up on the right, and their labels.

    The attention mask is of shape (windows, 1, tokens, tokens).
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    def padded(name: str, fill: int) -> torch.Tensor:
        rows = [torch.tensor(getattr(window, name)) for window in windows]
        return pad_sequence(rows, batch_first=True, padding_value=fill)

    branch = padded("branch", -1)
    size = branch.shape[1]
    seen = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
    return {
        "input_ids": padded("ids", 0),
        "position_ids": padded("position", 0),
        "attention_mask": (seen & torch.ones(size, size, dtype=torch.bool).tril())[:, None],
        "labels": padded("labels", IGNORED),
    }
