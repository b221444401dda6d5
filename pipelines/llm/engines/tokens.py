"""Tokenizers: loading them, and reading how they cut an answer scale.

Where an answer is read from a single next-token distribution, it must be one token there, and
putting it behind the prompt must not change the prompt's own tokens. Both differ from model to
model ("10" is one token for Llama 3, two for Qwen 2.5, of which the first is "1"), so that they
are looked up before a run, never assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pipelines.errors import ConfigError, EngineError
from pipelines.hints import first_line

if TYPE_CHECKING:
    from pipelines.config import EngineSettings, ServingSettings

__all__ = [
    "AnswerReading",
    "ScaleReading",
    "SentencePieceTokenizer",
    "encode",
    "encode_on",
    "load_tokenizer",
    "model_tokenizer",
    "read_scale",
]

#: A character behind which every known tokenizer begins a new token.
_ANCHOR = "\n"
#: Remarks of one kind on a scale that are listed one by one (count).
_NOTES = 4


class SentencePieceTokenizer:
    """A bare SentencePiece model (``tokenizer.model``), as Llama 2 and Mistral publish it."""

    chat_template: str | None = None

    def __init__(self, path: Path) -> None:
        from sentencepiece import SentencePieceProcessor

        try:
            self._model = SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise ConfigError(
                "the SentencePiece model can't be read", where=f"{path}: {error}"
            ) from error
        self._path = path

    def __len__(self) -> int:
        return int(self._model.vocab_size())

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text, if any."""
        return self._id(self._model.bos_id())

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text, if any."""
        return self._id(self._model.eos_id())

    @property
    def all_special_tokens(self) -> list[str]:
        """Empty: SentencePiece never parses control tokens in a text."""
        return []

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; with the beginning-of-text token if asked."""
        ids: list[int] = list(self._model.encode(text))
        begin = self.bos_token_id
        return [begin, *ids] if add_special_tokens and begin is not None else ids

    def decode(self, token_ids: list[int]) -> str:
        """Text of token ids."""
        return str(self._model.decode(token_ids))

    @staticmethod
    def _id(number: int) -> int | None:
        return None if number < 0 else number


def load_tokenizer(path: Path | str) -> Any:
    """Load a tokenizer of this machine; nothing is downloaded.

    ``path`` is the folder of a checkpoint or tokenizer; or a ``tokenizer.json``; or a SentencePiece
    model (a file whose name has ``.model`` in it, or a folder that holds nothing else to load).
    Returns a tokenizer of transformers where it can be, else :class:`SentencePieceTokenizer`.
    Raises ConfigError if there is none, or it can't be read.
    """
    path = Path(path)
    if path.is_dir():
        return _from_folder(path)
    if not path.is_file():
        raise ConfigError("no tokenizer there", where=str(path))
    if ".model" in path.name:
        return SentencePieceTokenizer(path)
    return _from_json(path)


def model_tokenizer(engine: EngineSettings, serving: ServingSettings) -> Any:
    """The model's tokenizer; None if only a server has it, or there is none."""
    from pipelines.llm.engines.checkpoints import find_checkpoint

    if engine.kind in ("transformers", "vllm", "vllm_server", "guidance"):
        return load_tokenizer(
            find_checkpoint(engine.model, engine.revision, serving.models, serving.home).folder
        )
    if engine.kind == "openai" and serving.tokenizer is not None:
        return load_tokenizer(serving.tokenizer)
    return None


def _from_folder(folder: Path) -> Any:
    described = (folder / "tokenizer_config.json").is_file()
    if described or ((folder / "tokenizer.json").is_file() and (folder / "config.json").is_file()):
        from transformers import AutoTokenizer

        try:
            return _unlimited(AutoTokenizer.from_pretrained(str(folder), local_files_only=True))
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                "the tokenizer can't be loaded", where=f"{folder}: {first_line(error)}"
            ) from error
    if (folder / "tokenizer.json").is_file():
        return _from_json(folder / "tokenizer.json")
    models = sorted(f for f in folder.iterdir() if ".model" in f.name)
    if len(models) == 1:
        return SentencePieceTokenizer(models[0])
    raise ConfigError(
        "several SentencePiece models there" if models else "no tokenizer there",
        where=str(folder),
        hint="name one of the files"
        if models
        else "a tokenizer has tokenizer.json, tokenizer_config.json or tokenizer.model",
    )


def _from_json(file: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    try:
        loaded = PreTrainedTokenizerFast(tokenizer_file=str(file))  # type: ignore[no-untyped-call]
    except Exception as error:  # the Rust library raises nothing narrower
        raise ConfigError(
            "the tokenizer can't be loaded", where=f"{file}: {first_line(error)}"
        ) from error
    return _unlimited(loaded)


def _unlimited(tokenizer: Any) -> Any:
    """The tokenizer without its warning about long texts: engines check lengths themselves."""
    tokenizer.model_max_length = int(1e30)
    return tokenizer


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text that begins a prompt, without the tokens a tokenizer adds by itself."""
    return list(tokenizer.encode(text, add_special_tokens=False))


def encode_on(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text that continues a prompt.

    SentencePiece tokenizers put a space before every text they are given. Behind a prompt there
    is none: "5" goes on as ``5`` there, not as ``▁5``. White space alone is encoded as it is.
    """
    plain = encode(tokenizer, text)
    if not text or not _begins_with_space(tokenizer):
        return plain
    anchor = encode(tokenizer, _ANCHOR)
    anchored = encode(tokenizer, _ANCHOR + text)
    if anchored[: len(anchor)] != anchor:
        return plain
    return anchored[len(anchor) :]


#: Whether a tokenizer puts a space before a text.
_SPACES: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _begins_with_space(tokenizer: Any) -> bool:
    """Whether the tokenizer puts a space before a text, so that texts don't add up."""
    prefixed = _SPACES.get(tokenizer)
    if prefixed is None:
        apart = encode(tokenizer, _ANCHOR) + encode(tokenizer, "5")
        prefixed = _SPACES[tokenizer] = encode(tokenizer, _ANCHOR + "5") != apart
    return prefixed


@dataclass(frozen=True, slots=True)
class AnswerReading:
    """Tokens of an answer behind a context."""

    answer: str
    #: Token ids of the answer as it continues the context (at least one).
    tokens: tuple[int, ...]
    #: Whether the answer is a single token, so that its probability is that token's.
    one_token: bool
    #: Whether tokenising context and answer together gives the context's tokens followed by the
    #: answer's: the model meets the answer as in running text.
    adds_up: bool
    #: Other answers that go on from this one's tokens ("10" from "1").
    begins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScaleReading:
    """Tokens of every answer of a scale behind the end of a prompt."""

    context: str
    answers: tuple[AnswerReading, ...]

    @property
    def way(self) -> str:
        """``tokens`` if each answer is one token, else ``sequences``."""
        return "tokens" if all(a.one_token for a in self.answers) else "sequences"

    @property
    def adds_up(self) -> bool:
        """Whether every answer adds up."""
        return all(a.adds_up for a in self.answers)

    def metadata(self) -> dict[str, Any]:
        """JSON-ready, for metadata."""
        return {
            "way": self.way,
            "adds_up": self.adds_up,
            "answers": {a.answer: list(a.tokens) for a in self.answers},
            "begin_others": {a.answer: list(a.begins) for a in self.answers if a.begins},
        }

    def describe(self) -> str:
        """Description in a single line.

        Examples
        --------
        >>> one = AnswerReading("1", (16,), True, True, ("10",))
        >>> ten = AnswerReading("10", (16, 15), False, True, ())
        >>> ScaleReading("Rating: ", (one, ten)).describe()
        'read as sequences: "10" is 2 tokens; "1" begins "10"'
        """
        long = [a for a in self.answers if not a.one_token]
        notes = _few(
            [f'"{a.answer}" is {len(a.tokens)} tokens' for a in long], "are several tokens"
        )
        begun = [f'"{a.answer}" begins "{other}"' for a in self.answers for other in a.begins]
        notes += _few(begun, "begin another")
        changing = [
            f'"{a.answer}" changes the tokens before it' for a in self.answers if not a.adds_up
        ]
        notes += _few(changing, "change the tokens before them")
        if self.way == "tokens" and not notes:
            return "each answer is one token"
        return f"read as {self.way}" + (": " + "; ".join(notes) if notes else "")


def _few(notes: list[str], what: str) -> list[str]:
    """The notes, or the first one and how many there are."""
    return notes if len(notes) <= _NOTES else [f"{notes[0]} ({len(notes)} answers {what})"]


def read_scale(tokenizer: Any, answers: Sequence[str], context: str) -> ScaleReading:
    """Tokenize the answers of a scale behind a context (the prompt's last line).

    Raises EngineError if an answer has no token, or two have the same: no distribution over them
    can be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> tokenizer = load_tokenizer(Path("tokenizers/qwen2.5"))  # doctest: +SKIP
    >>> read_scale(tokenizer, ("1", "10"), "Rating: ").describe()  # doctest: +SKIP
    'read as sequences: "10" is 2 tokens; "1" begins "10"'
    """
    before = encode(tokenizer, context)
    cut = {answer: tuple(encode_on(tokenizer, answer)) for answer in answers}
    for answer, tokens in cut.items():
        if not tokens:
            raise EngineError("the tokenizer has no token for an answer", where=repr(answer))
    if len(set(cut.values())) < len(cut):
        raise EngineError("the tokenizer encodes two answers identically", where=", ".join(answers))
    return ScaleReading(
        context,
        tuple(
            AnswerReading(
                answer,
                tokens,
                one_token=len(tokens) == 1,
                adds_up=encode(tokenizer, context + answer) == [*before, *tokens],
                begins=tuple(
                    other
                    for other, longer in cut.items()
                    if other != answer and longer[: len(tokens)] == tokens
                ),
            )
            for answer, tokens in cut.items()
        ),
    )
