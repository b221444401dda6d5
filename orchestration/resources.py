"""Tags of steps: cores and memory of their pods on Kubernetes, and who may load a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

__all__ = ["MODEL_TAG", "REQUESTS", "Request", "request_of", "step_tags"]

#: Tag of steps that may load a model into their process. Where one is asked, the executor
#: `multiprocess` runs one of them at a time.
MODEL_TAG = "understudy/model"
_MAY_LOAD = ("*_personas", "*_embeddings", "*_preference_scores")


@dataclass(frozen=True, slots=True)
class Request:
    """Resource request of a step's pod.

    Attributes
    ----------
    cpu
        Cores that are free for it; it may use more (count).
    memory_mb
        Memory that is free for it, and at which it is ended (MiB).
    """

    cpu: int
    memory_mb: int

    def container(self) -> dict[str, Any]:
        """The container's `resources`."""
        memory = f"{self.memory_mb}Mi"
        return {"requests": {"cpu": str(self.cpu), "memory": memory}, "limits": {"memory": memory}}


#: Requests by pattern of the step's name; the first that fits holds. Memory is one and a half to
#: twice the peaks of benchmarks/pipeline: those of 25 million ratings (ingest 2.6, dbt 5.3, marts
#: 3.2 GiB) and, for steps not measured at that size, of ml-latest-small (embeddings 1.4, others
#: 0.9 GiB). dbt's pods hold `runtime.memory_limit_mb` (4 GiB) beside their own processes.
REQUESTS: tuple[tuple[str, Request], ...] = (
    ("expect_*", Request(1, 4096)),
    ("dbt_*", Request(4, 8192)),
    ("ingest_*", Request(2, 4096)),
    ("*_embeddings", Request(4, 4096)),
    ("*_item_similarity", Request(2, 4096)),
    ("*_preference_scores", Request(2, 4096)),
    ("*_rating_model", Request(8, 16384)),
    ("trained_policy", Request(4, 4096)),
    ("*_interactions", Request(2, 6144)),
    ("*_splits", Request(2, 6144)),
    ("*", Request(1, 2048)),
)


def request_of(step: str) -> Request:
    """Request of a step.

    >>> request_of("dbt_movies")
    Request(cpu=4, memory_mb=8192)
    >>> request_of("release_books")
    Request(cpu=1, memory_mb=2048)
    """
    return next(request for pattern, request in REQUESTS if fnmatchcase(step, pattern))


def step_tags(step: str) -> Mapping[str, Any]:
    """Tags of a step's op, which executors read: :data:`MODEL_TAG`, and the request of its pod.

    >>> step_tags("release_books")["dagster-k8s/config"]["container_config"]["resources"]["limits"]
    {'memory': '2048Mi'}
    >>> MODEL_TAG in step_tags("books_personas"), MODEL_TAG in step_tags("release_books")
    (True, False)
    """
    resources = {"container_config": {"resources": request_of(step).container()}}
    loads = any(fnmatchcase(step, name) for name in _MAY_LOAD) and not step.startswith("expect_")
    return {"dagster-k8s/config": resources, **({MODEL_TAG: "true"} if loads else {})}
