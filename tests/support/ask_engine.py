"""Ask an engine from a file of requests, also in an environment that has little but vLLM.

    python ask_engine.py task.json

The task names ``kind``, ``model``, ``home``, ``serving``, ``requests`` (messages, options, group)
and ``out``, the file of the answers: probabilities, mass, tokens, seconds by the clock and of CPU.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]

__all__ = ["ask", "plain_requests"]


def plain_requests(requests: Iterable[Any]) -> list[dict[str, Any]]:
    """Choice requests as JSON."""
    return [
        {
            "messages": [[m.role, m.content] for m in r.messages],
            "options": list(r.constraint.options),
            "group": r.group,
        }
        for r in requests
    ]


def ask(task: dict[str, Any]) -> dict[str, Any]:
    """Open the engine, ask all requests, and close it."""
    from pipelines.config import EngineSettings, ServingSettings
    from pipelines.llm.engines import Choice, Message, Request, load_engine

    requests = [
        Request(
            tuple(Message(role, content) for role, content in one["messages"]),
            constraint=Choice(tuple(one["options"])),
            group=one["group"],
            tag=n,
        )
        for n, one in enumerate(task["requests"])
    ]
    engine = load_engine(
        EngineSettings(kind=task["kind"], model=task["model"], dtype="float32"),
        ServingSettings(home=task["home"], **task.get("serving", {})),
    )
    found: list[Any] = [None] * len(requests)
    try:
        # The first request compiles and allocates: it is left out of the rate.
        list(engine.submit(requests[:1]))
        clock, cpu = time.monotonic(), time.process_time()
        for answer in engine.submit(requests[1:]):
            found[answer.request.tag] = answer
        seconds, used = time.monotonic() - clock, time.process_time() - cpu
        [found[0]] = engine.submit(requests[:1])
    finally:
        engine.close()
    return {
        "status": [a.status for a in found],
        "probabilities": [a.probabilities for a in found],
        "mass": [a.mass for a in found],
        "prompt_tokens": sum(a.prompt_tokens for a in found),
        "cached_tokens": sum(a.cached_tokens for a in found),
        "seconds": seconds,
        "cpu": used,
        "load": os.getloadavg()[0],
        "version": engine.identity.engine_version,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(given["out"]).write_text(json.dumps(ask(given)), encoding="utf-8")
