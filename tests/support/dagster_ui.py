"""The real webserver and daemon of a home, and its GraphQL API."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

__all__ = ["Dagster", "dagster_ui"]

PATIENCE = 900
_REPOSITORY = {"repositoryLocationName": "understudy", "repositoryName": "__repository__"}


@contextmanager
def dagster_ui(home: Path, *options: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """Address of `understudy ui` over a home."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = home.with_name(f"{home.name}-ui.log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                Path(sys.executable).with_name("understudy"),
                *("ui", "--home", str(home), "--port", str(port), *options),
            ],
            start_new_session=True,
            env=os.environ | (env or {}),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, "the UI did not answer"
            try:
                with urllib.request.urlopen(f"{address}/server_info", timeout=5):
                    break
            except OSError:
                time.sleep(0.5)
        yield address
        said = log.read_text().lower()
        assert "deprecat" not in said, said
        assert "supersed" not in said, said
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


class Dagster:
    """What the pages of the UI ask the webserver, and the runs that they launch."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, query: str, **variables: Any) -> Any:
        """The data of a GraphQL query."""
        request = urllib.request.Request(
            f"{self.address}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as reply:
            content = json.load(reply)
        assert "errors" not in content, content["errors"]
        return content["data"]

    def add_partition(self, definition: str, partition: str) -> None:
        """Add a dynamic partition."""
        query = """mutation($repository: RepositorySelector!, $name: String!, $key: String!) {
          addDynamicPartition(repositorySelector: $repository, partitionsDefName: $name,
          partitionKey: $key) { __typename } }"""
        found = self.ask(query, repository=_REPOSITORY, name=definition, key=partition)
        assert found["addDynamicPartition"]["__typename"] == "AddDynamicPartitionSuccess", found

    def upstream(self, key: str) -> list[str]:
        """An asset and every one that it is made from."""
        query = """query($repository: RepositorySelector!) { repositoryOrError(
          repositorySelector: $repository) { ... on Repository { assetNodes {
          assetKey { path } isMaterializable dependencyKeys { path } } } } }"""
        nodes = self.ask(query, repository=_REPOSITORY)["repositoryOrError"]["assetNodes"]
        needs = {
            "/".join(node["assetKey"]["path"]): [
                "/".join(d["path"]) for d in node["dependencyKeys"]
            ]
            for node in nodes
            if node["isMaterializable"]
        }
        found, todo = set[str](), [key]
        while todo:
            name = todo.pop()
            if name in needs and name not in found:
                found.add(name)
                todo += needs[name]
        return sorted(found)

    def stale(self, keys: Sequence[str]) -> set[tuple[str, str | None]]:
        """Which of these assets the UI marks as stale or missing, with the partition."""
        query = """query($keys: [AssetKeyInput!]) { assetNodes(assetKeys: $keys) {
          assetKey { path } isPartitioned staleStatus
          partitionKeysByDimension { partitionKeys } } }"""
        found = set()
        paths = [{"path": key.split("/")} for key in keys]
        for node in self.ask(query, keys=paths)["assetNodes"]:
            key = "/".join(node["assetKey"]["path"])
            if not node["isPartitioned"]:
                if node["staleStatus"] != "FRESH":
                    found.add((key, None))
                continue
            cohorts = node["partitionKeysByDimension"][0]["partitionKeys"]
            for cohort in cohorts:
                one = """query($keys: [AssetKeyInput!], $cohort: String!) { assetNodes(
                  assetKeys: $keys) { staleStatus(partition: $cohort) } }"""
                asked = self.ask(one, keys=[{"path": key.split("/")}], cohort=cohort)
                if asked["assetNodes"][0]["staleStatus"] != "FRESH":
                    found.add((key, cohort))
        return found

    def submit(self, job: dict[str, Any], tags: Sequence[dict[str, str]]) -> str:
        """Launch a run of a selected job; its id."""
        query = """mutation($params: ExecutionParams!) { launchPipelineExecution(
          executionParams: $params) { __typename
          ... on LaunchRunSuccess { run { runId } }
          ... on PythonError { message }
          ... on RunConfigValidationInvalid { errors { message } } } }"""
        params = {
            "selector": {**_REPOSITORY, **job},
            "runConfigData": {},
            "mode": "default",
            "executionMetadata": {"tags": tags},
        }
        launched = self.ask(query, params=params)["launchPipelineExecution"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def tick(self, schedule: str, moment: datetime) -> list[dict[str, str]]:
        """Evaluate a schedule as of a moment (*Test schedule*); tags of the requested run."""
        query = """mutation($schedule: ScheduleSelector!, $at: Float) { scheduleDryRun(
          selectorData: $schedule, timestamp: $at) { __typename ... on DryRunInstigationTick {
          evaluationResult { error { message } runRequests { tags { key value } } } } } }"""
        chosen = {**_REPOSITORY, "scheduleName": schedule}
        found = self.ask(query, schedule=chosen, at=moment.timestamp())["scheduleDryRun"]
        assert found["evaluationResult"]["error"] is None, found
        (request,) = found["evaluationResult"]["runRequests"]
        return list(request["tags"])

    def backfill(self, keys: Sequence[str], partitions: Sequence[str]) -> tuple[str, list[str]]:
        """Backfill partitions of assets, as the page does; its status and ids of its runs."""
        query = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(
          backfillParams: $params) { __typename
          ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
        params = {
            "assetSelection": [{"path": key.split("/")} for key in keys],
            "partitionNames": list(partitions),
        }
        launched = self.ask(query, params=params)["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        query = """query($id: String!) { partitionBackfillOrError(backfillId: $id) {
          ... on PartitionBackfill { status runs { id } } } }"""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = self.ask(query, id=launched["backfillId"])["partitionBackfillOrError"]
            if found["status"] not in {"REQUESTED", "CANCELING", "FAILING"}:
                return found["status"], [run["id"] for run in found["runs"]]
            time.sleep(1)
        raise AssertionError(f"backfill {launched['backfillId']} did not end")

    def status(self, run: str) -> str:
        """Status of a run."""
        query = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
        return str(self.ask(query, id=run)["runOrError"]["status"])

    def terminate(self, run: str) -> None:
        """Cancel a run."""
        query = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"
        found = self.ask(query, id=run)["terminateRun"]
        assert found["__typename"] == "TerminateRunSuccess", found

    def ended(self, run: str) -> tuple[str, str]:
        """Wait for a run."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            status = self.status(run)
            if status in {"SUCCESS", "FAILURE", "CANCELED"}:
                return run, status
            time.sleep(0.5)
        raise AssertionError(f"run {run} did not end")

    def failures(self, run: str) -> list[str]:
        """First lines of the errors of a run."""
        query = """query($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events {
          ... on ExecutionStepFailureEvent { stepKey error { message }
            failureMetadata { description } } } } } }"""
        events = self.ask(query, id=run)["logsForRun"]["events"]
        return [
            f"{e['stepKey']}: {(e.get('failureMetadata') or {}).get('description')}"
            for e in events
            if e.get("stepKey")
        ]
