"""The prefix cache: what it holds is counted, and it can be turned off."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pipelines.llm.engines import Choice, Request
from pipelines.llm.engines.testing import question

if TYPE_CHECKING:
    from pipelines.llm.engines.vllm import VllmEngine

STARS = Choice(("1", "2", "3", "4", "5"))
#: Tokens per block on a CPU; a beginning is reused by whole blocks.
BLOCK = 32


def _users(users: int, items: int, name: str) -> list[Request]:
    """Token prompts in item-major order: 100 of the user's own, then 5 of the item's."""
    mark = sum(map(ord, name)) % 100
    return [
        Request(
            tokens=tuple([300 + mark, 400 + user] + [500 + user] * 98 + [600 + item] * 5),
            constraint=STARS,
            group=f"{name} {user}",
        )
        for item in range(items)
        for user in range(users)
    ]


def test_all_but_the_first_of_a_group_find_the_whole_blocks_of_its_prefix(
    vllm_engine: VllmEngine,
) -> None:
    requests = _users(users=3, items=5, name="counted")
    answers = list(vllm_engine.submit(requests))
    assert {a.status for a in answers} == {"ok"}
    by_group: dict[str, list[int]] = {}
    for answer in answers:
        assert answer.prompt_tokens == 105
        by_group.setdefault(str(answer.request.group), []).append(answer.cached_tokens)
    for cached in by_group.values():
        assert sorted(cached) == [0] + [100 // BLOCK * BLOCK] * 4, by_group


def test_requests_of_a_group_are_handed_over_side_by_side(
    vllm_engine: VllmEngine, monkeypatch: Any
) -> None:
    handed: list[str | None] = []
    driver = vllm_engine._driver
    assert driver is not None
    add = driver.add

    def note(name: str, prompt: list[int], params: Any, group: str | None) -> None:
        handed.append(group)
        add(name, prompt, params, group)

    monkeypatch.setattr(driver, "add", note)
    assert len(list(vllm_engine.submit(_users(users=4, items=4, name="sorted")))) == 16
    changes = sum(a != b for a, b in pairwise(handed))
    assert changes == 3, handed


def test_options_of_several_tokens_share_their_prompt_with_each_other(
    vllm_engine: VllmEngine,
) -> None:
    ten = Choice(("1", "10"))
    story = "Once there was a quiet film about a boat. " * 12
    first, second = (
        next(iter(vllm_engine.submit([question(f"{story}{end}", ten)]))) for end in ("a", "b")
    )
    assert first.cached_tokens == 0
    assert second.cached_tokens >= (second.prompt_tokens // BLOCK - 1) * BLOCK > 0


def test_without_the_cache_nothing_is_reused_and_no_answer_moves(
    vllm_engine: VllmEngine, open_vllm: Any
) -> None:
    requests = _users(users=2, items=4, name="off")
    plain = open_vllm(prefix_reuse=False)
    assert plain.metadata()["prefix_caching"] is False
    without = {id(a.request): a for a in plain.submit(requests)}
    plain.close()
    assert {a.cached_tokens for a in without.values()} == {0}
    for answer in vllm_engine.submit(requests):
        other = without[id(answer.request)]
        assert answer.probabilities is not None
        assert other.probabilities is not None
        pairs = zip(answer.probabilities, other.probabilities, strict=True)
        assert max(abs(a - b) for a, b in pairs) < 1e-4
