"""The `vllm` engine."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import AnswerError, EngineError
from pipelines.hints import first_line
from pipelines.llm.engines._protocol import Answer, Choice, Constraint, EngineIdentity, Request
from pipelines.llm.engines.chat import read_template, render
from pipelines.llm.engines.checkpoints import find_checkpoint
from pipelines.llm.engines.choices import OptionTree
from pipelines.llm.engines.constraints import (
    byte_tokenizer,
    llguidance_grammar,
    obeys,
    request_fault,
)
from pipelines.llm.engines.tokens import encode_on, load_tokenizer
from pipelines.llm.engines.vllm._load import device_and_dtype, open_driver, vllm_version

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.exceptions import VLLMClientError

    from pipelines.llm.engines.vllm._drivers import Driver


@dataclass(slots=True)
class Run:
    """A call of `submit`: its requests in vLLM, and the answers ready to be yielded."""

    jobs: set[int] = field(default_factory=set)
    ready: deque[Answer] = field(default_factory=deque)


@dataclass(slots=True)
class Job:
    """A request under way."""

    request: Request
    #: The iteration that it belongs to.
    run: Run
    #: Its length (tokens).
    prompt: int
    #: The options of a `Choice`; None for a request that writes.
    tree: OptionTree | None
    #: Names of vLLM's requests that are not back yet, with the place that each reads.
    left: dict[str, int]
    #: Log-probabilities by place of the tree, then by token.
    read: list[dict[int, float]]
    #: Prompt tokens that the prefix cache held when vLLM looked at the first of them.
    cached: int = 0
    #: Time of submission (``time.perf_counter``).
    began: float = field(default_factory=time.perf_counter)

    def take(self, name: str, result: RequestOutput | VLLMClientError) -> Answer | None:
        """Note one of vLLM's results; the answer, if it needs no other."""
        place = self.left.pop(name)
        if isinstance(result, Exception):
            return self._finish("invalid", detail=first_line(result))
        output = result.outputs[0]
        if output.finish_reason in ("error", "abort"):
            return self._finish(
                "engine_error",
                finish_reason=output.finish_reason,
                detail=f"vLLM ended the request: {output.finish_reason}",
            )
        if place == 0:
            self.cached = min(max(result.num_cached_tokens or 0, 0), self.prompt)
        if self.tree is None:
            return self._written(output)
        assert output.logprobs is not None
        row = output.logprobs[0]
        self.read[place].update({int(t): float(entry.logprob) for t, entry in row.items()})
        return None if self.left else self._chosen(self.tree)

    def _chosen(self, tree: OptionTree) -> Answer:
        assert isinstance(self.request.constraint, Choice)
        try:
            shares, mass = tree.distribution(self.read)
        except AnswerError as error:
            return self._finish("invalid", detail=str(error))
        best = int(shares.argmax())
        return self._finish(
            "ok",
            text=self.request.constraint.options[best],
            probabilities=tuple(float(p) for p in shares),
            mass=mass,
            finish_reason="stop",
            completion_tokens=len(tree.options[best]),
        )

    def _written(self, output: Any) -> Answer:
        reason, text, tokens = output.finish_reason, output.text, len(output.token_ids)
        rule, cut = self.request.constraint, isinstance(output.stop_reason, str)
        if reason == "stop" and not cut:
            tokens -= 1  # the one that ended the answer
        fields: dict[str, Any] = {"finish_reason": reason, "completion_tokens": tokens}
        if reason == "length" and not (rule is not None and _at_its_end(rule, text)):
            return self._finish("truncated", text=text, **fields)
        if reason not in ("stop", "length"):
            return self._finish("invalid", detail=f"vLLM ended the answer: {reason}", **fields)
        if not cut and not obeys(rule, text):
            return self._finish("invalid", detail="the answer breaks the constraint", **fields)
        return self._finish("ok", text=text, **fields)

    def _finish(self, status: Any, **fields: Any) -> Answer:
        plain = Answer(
            self.request,
            status,
            prompt_tokens=self.prompt,
            cached_tokens=self.cached,
            latency=time.perf_counter() - self.began,
        )
        return replace(plain, **fields)


def _at_its_end(rule: Constraint, text: str) -> bool:
    """Return whether the text is a complete sentence of the grammar that nothing can follow.

    vLLM draws one token more to end an answer, which ``max_tokens`` may not leave.
    """
    from llguidance import LLMatcher

    matcher = LLMatcher(byte_tokenizer(), llguidance_grammar(rule), log_level=0)
    return bool(matcher.consume_tokens(list(text.encode())) and matcher.is_stopped())


#: Most token ids whose log-probability vLLM reads at one place in one request.
MAX_IDS = 128


def draw_seed(request: Request, prompt: Sequence[int]) -> int:
    """The seed of a request's draws, 0 to 2**63 - 1.

    It depends on the prompt, the seed and the replicate, and on nothing else: two users who are
    asked with the same seed don't draw the same numbers.

    >>> from pipelines.llm.engines import Request
    >>> draw_seed(Request(seed=1), [5]) == draw_seed(Request(seed=1, replicate=1), [5])
    False
    """
    identity = f"{request.seed}:{request.replicate}:{','.join(map(str, prompt))}".encode()
    return int.from_bytes(hashlib.sha256(identity).digest()[:8]) >> 1


def readings(tree: OptionTree) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Positions to score for a prefix trie: place number, prefix tokens, candidate token ids.

    A place with more than :data:`MAX_IDS` tokens is read in several goes.

    >>> list(readings(OptionTree.of([(16,), (17,), (16, 15)])))
    [(0, (), (16, 17)), (1, (16,), (15,))]
    """
    for place, (before, ids) in enumerate(zip(tree.nodes, tree.steps, strict=True)):
        for start in range(0, len(ids), MAX_IDS):
            yield place, before, ids[start : start + MAX_IDS]


def reading_params(ids: Sequence[int]) -> SamplingParams:
    """Parameters of a request that reads log-probabilities of tokens and draws nothing."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=1,
        logprob_token_ids=list(ids),
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


def structured(constraint: Constraint) -> dict[str, str]:
    """A constraint as the one field of vLLM's structured outputs that takes it as it is.

    The compiled grammar is taken apart, so that vLLM decodes by exactly what the `transformers`
    engine decodes by; its own forms of JSON and choices allow other white space.

    >>> from pipelines.llm.engines import Regex
    >>> structured(Regex("[1-5]"))
    {'grammar': 'start: /[1-5]/'}
    """
    compiled = llguidance_grammar(constraint)
    if not compiled.lstrip().startswith("{"):
        return {"grammar": compiled}
    parts = json.loads(compiled)["grammars"]
    if len(parts) == 1 and (schema := parts[0].get("json_schema")) is not None:
        return {"json": json.dumps(schema, ensure_ascii=False)}
    if len(parts) == 1 and (lark := parts[0].get("lark_grammar")) is not None:
        return {"grammar": lark}
    raise AnswerError("vLLM does not support a grammar composed of several")


def writing_params(request: Request, prompt: Sequence[int]) -> SamplingParams:
    """Parameters of a request that writes; AnswerError if vLLM has no form for the constraint."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    rule = None
    if request.constraint is not None:
        rule = StructuredOutputsParams(**structured(request.constraint))
    sampling = request.sampling
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        max_tokens=sampling.max_tokens,
        stop=list(sampling.stop),
        seed=draw_seed(request, prompt),
        structured_outputs=rule,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


#: Bumped when the same request on the same model gets another answer from this code.
_RULES = 1


class VllmEngine:
    """Engine of vLLM, in this process or in data-parallel replicas of it.

    Requests are handed to vLLM's scheduler as they are drawn, those of one group next to each
    other, so that a group's prefix is computed once; what finishes first is yielded first.
    Several calls of `submit` may be open at once in one thread. ``window`` limits the requests in
    flight or waiting; ``template`` replaces the model's own.
    """

    def __init__(
        self,
        driver: Driver,
        tokenizer: Any,
        identity: EngineIdentity,
        *,
        window: int = 256,
        template: str | None = None,
    ) -> None:
        self._driver: Driver | None = driver
        self._tokenizer = tokenizer
        self.identity = identity
        self._window = window
        self._template = template
        config = driver.config
        self._context = int(config.model_config.max_model_len)
        self._facts = _facts(config, window)
        self._jobs: dict[int, Job] = {}
        self._numbers = itertools.count()
        self._spelled: dict[tuple[str, ...], OptionTree | str] = {}

    @classmethod
    def open(cls, engine: EngineSettings, serving: ServingSettings) -> VllmEngine:
        """Load ``engine.model``, a folder or a name on the Hugging Face hub.

        Raises
        ------
        ConfigError
            If vLLM is not installed, the folder holds no checkpoint, or the device or the GPUs
            that the settings ask for are not there.
        EngineError
            If the model can't be had, or vLLM can't load it.
        """
        device, dtype = device_and_dtype(engine, serving)
        checkpoint = find_checkpoint(engine.model, engine.revision, serving.models, serving.home)
        template = read_template(serving.chat_template)
        identity = EngineIdentity(
            engine="vllm",
            # The device's kernels round in their own way.
            engine_version=f"{vllm_version()}, {device}, rules {_RULES}",
            model=checkpoint.name,
            revision=engine.revision,
            weights=checkpoint.weights_digest(),
            tokenizer=checkpoint.tokenizer_digest(template),
            dtype=dtype,
            quantisation=engine.quantisation,
        )
        tokenizer = load_tokenizer(checkpoint.folder)
        driver = open_driver(checkpoint, engine, serving)
        return cls(driver, tokenizer, identity, window=serving.window, template=template)

    def metadata(self) -> dict[str, Any]:
        """Device, sizes, prefix cache, and how distributions are read."""
        return dict(self._facts)

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Answer requests in completion order; see :class:`~pipelines.llm.engines.Engine`.

        Raises EngineError if the engine is closed, or vLLM dies.
        """
        if self._driver is None:
            raise EngineError("the engine is closed", where=f"vllm:{self.identity.model}")
        return self._answers(iter(requests))

    def close(self) -> None:
        """Release the model; a closed engine takes no requests."""
        driver, self._driver = self._driver, None
        self._jobs.clear()
        if driver is not None:
            driver.close()

    def _answers(self, requests: Iterator[Request]) -> Iterator[Answer]:
        run, more = Run(), True
        try:
            while more or run.jobs or run.ready:
                room = self._window - len(run.jobs) - len(run.ready)
                # New requests are drawn by the quarter window, so that those of a group that
                # lie apart are still brought together.
                if more and (room >= self._window / 4 or not run.jobs):
                    more = self._draw(requests, room, run)
                if not run.ready and run.jobs:
                    self._step()
                if run.ready:
                    yield run.ready.popleft()
        finally:
            self._forget(run)

    def _draw(self, requests: Iterator[Request], room: int, run: Run) -> bool:
        """Take requests up to the room and hand them over; whether there may be more."""
        drawn = list(itertools.islice(requests, room))
        first: dict[str, int] = {}
        places = [
            n if r.group is None else first.setdefault(r.group, n) for n, r in enumerate(drawn)
        ]
        for _, request in sorted(zip(places, drawn, strict=True), key=lambda pair: pair[0]):
            self._begin(request, run)
        return len(drawn) == room

    def _begin(self, request: Request, run: Run) -> None:
        from vllm.exceptions import VLLMClientError

        parts: list[tuple[int, tuple[int, ...], SamplingParams]]
        try:
            prompt, tree = self._prepared(request)
            if tree is None:
                parts = [(0, (), writing_params(request, prompt))]
            else:
                parts = [(at, before, reading_params(ids)) for at, before, ids in readings(tree)]
        except (AnswerError, VLLMClientError) as fault:
            run.ready.append(Answer(request, "invalid", detail=" ".join(str(fault).split())))
            return
        driver, number = self._alive(), next(self._numbers)
        job = Job(request, run, len(prompt), tree, {}, [{} for _ in tree.nodes] if tree else [])
        self._jobs[number] = job
        run.jobs.add(number)
        for part, (place, before, params) in enumerate(parts):
            name = f"{number}.{part}"
            job.left[name] = place
            driver.add(name, [*prompt, *before], params, request.group)

    def _prepared(self, request: Request) -> tuple[list[int], OptionTree | None]:
        """The prompt's tokens, and the options' if it is a choice."""
        if fault := request_fault(request):
            raise AnswerError(fault)
        prompt = list(request.tokens) or render(self._tokenizer, request.messages, self._template)
        tree = None
        if isinstance(request.constraint, Choice):
            tree = self._tree(request.constraint.options)
        if len(prompt) + (tree.depth if tree else 0) >= self._context:
            raise AnswerError(
                f"the prompt of {len(prompt)} tokens does not fit the context of {self._context}"
            )
        return prompt, tree

    def _tree(self, options: tuple[str, ...]) -> OptionTree:
        entry = self._spelled.get(options)
        if entry is None:
            try:
                entry = OptionTree.of([encode_on(self._tokenizer, o) for o in options])
            except ValueError as error:
                entry = str(error)
            if len(self._spelled) >= 1024:
                self._spelled.clear()
            self._spelled[options] = entry
        if isinstance(entry, str):
            raise AnswerError(f"the tokenizer can't encode the options: {entry}")
        return entry

    def _step(self) -> None:
        """Let vLLM work once and sort what is finished to whom it belongs."""
        try:
            done = self._alive().step()
        except Exception as error:
            self.close()
            raise EngineError(
                f"vLLM died: {first_line(error)}",
                where=f"vllm:{self.identity.model}",
                hint="received answers are complete; run again to continue with the rest",
            ) from error
        for name, result in done:
            number = int(name.partition(".")[0])
            if number in self._jobs:
                self._settle(number, name, result)

    def _settle(self, number: int, name: str, result: Any) -> None:
        job = self._jobs[number]
        answer = job.take(name, result)
        if answer is None:
            return
        del self._jobs[number]
        job.run.jobs.discard(number)
        job.run.ready.append(answer)
        if job.left and self._driver is not None:
            self._driver.abort(list(job.left))

    def _alive(self) -> Driver:
        if self._driver is None:
            raise EngineError("the engine was closed", where=f"vllm:{self.identity.model}")
        return self._driver

    def _forget(self, run: Run) -> None:
        jobs = [self._jobs.pop(n) for n in run.jobs if n in self._jobs]
        names = [name for job in jobs for name in job.left]
        if names and self._driver is not None:
            self._driver.abort(names)


def _facts(config: Any, window: int) -> dict[str, Any]:
    parallel = config.parallel_config
    return {
        "device": str(config.device_config.device_type),
        "window": window,
        "context": int(config.model_config.max_model_len),
        "distributions": "next-token probabilities at every token of every option, read as "
        "logprob_token_ids; an option that begins another has what is left of its probability",
        "constraints": "structured outputs, backend guidance",
        "prefix_caching": bool(config.cache_config.enable_prefix_caching),
        "block_tokens": int(config.cache_config.block_size),
        "tensor_parallel": int(parallel.tensor_parallel_size),
        "pipeline_parallel": int(parallel.pipeline_parallel_size),
        "data_parallel": int(parallel.data_parallel_size),
        "eager": bool(config.model_config.enforce_eager),
    }
