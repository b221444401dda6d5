"""The files of `deploy/` are what Kubernetes, KubeRay, Ray and Dagster read.

Kubernetes' own objects, and pods inside of others, are checked against its published schemas
(`kubernetes-validate`), `dagster.yaml` by Dagster itself, Ray's options by the command that
reads them. Names in KubeRay's object and the chart's values are listed here.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.34"
FILES = sorted(
    {*DEPLOY.glob("*/*.yaml")} - {*DEPLOY.glob("*/kustomization.yaml"), *DEPLOY.glob("dagster/*")}
)

#: Names in a RayCluster's spec (ray.io/v1, KubeRay 1.7), less those of pods.
RAY_NAMES = {
    "spec": "rayVersion enableInTreeAutoscaling autoscalerOptions headGroupSpec workerGroupSpecs",
    "group": "groupName replicas minReplicas maxReplicas rayStartParams template",
    "autoscaler": "idleTimeoutSeconds upscalingMode",
}
#: Names in the values of Dagster's chart, by path; `*` is an entry of a list.
_POD = "image podSecurityContext securityContext resources"
CHART_NAMES = {
    "": "global generatePostgresqlPasswordSecret dagsterWebserver dagster-user-deployments "
    "runLauncher dagsterDaemon postgresql telemetry retention additionalInstanceConfig",
    "global": "postgresqlSecretName",
    "dagsterWebserver": f"{_POD} service readinessProbe",
    "dagster-user-deployments": "enabled enableSubchart deployments",
    "dagster-user-deployments.deployments.*": f"{_POD} name dagsterApiGrpcArgs port "
    "includeConfigInLaunchedRuns env envSecrets volumes volumeMounts",
    "runLauncher": "type config",
    "runLauncher.config.k8sRunLauncher": "imagePullPolicy loadInclusterConfig resources "
    "runK8sConfig",
    "runLauncher.config.k8sRunLauncher.runK8sConfig": "podSpecConfig jobSpecConfig",
    "dagsterDaemon": f"{_POD} enabled runCoordinator runMonitoring runRetries",
    "dagsterDaemon.runMonitoring": "enabled startTimeoutSeconds cancelTimeoutSeconds "
    "pollIntervalSeconds maxResumeRunAttempts freeSlotsAfterRunEndSeconds",
    "dagsterDaemon.runRetries": "enabled maxRetries",
    "dagsterDaemon.runCoordinator": "enabled type",
    "postgresql": "enabled postgresqlUsername postgresqlDatabase existingSecret service",
    "telemetry": "enabled",
    "retention": "enabled schedule sensor",
}


def documents(source: str) -> list[dict[str, Any]]:
    """Objects of the files as they are, or of an overlay as kustomize renders it."""
    if source == "files":
        texts = [path.read_text() for path in FILES]
    else:
        if shutil.which("kubectl") is None:
            pytest.skip("kustomize comes with kubectl, which is not installed")
        command = ["kubectl", "kustomize", str(DEPLOY / "overlays" / source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        texts = [done.stdout]
    return [d for text in texts for d in yaml.safe_load_all(text) if d]


def ray_options() -> set[str]:
    """Options of `ray start`, from its source: importing it takes seconds."""
    (package,) = importlib.util.find_spec("ray").submodule_search_locations  # type: ignore
    source = (Path(package) / "scripts/scripts.py").read_text()
    return set(re.findall(r'"--([a-z-]+)"', source))


def pods(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Pod templates of an object."""
    spec = document.get("spec", {})
    groups = [spec.get("headGroupSpec", {}), *spec.get("workerGroupSpecs", []), spec]
    return [group["template"] for group in groups if "template" in group]


def validate(document: Mapping[str, Any]) -> None:
    """Raise where an object is not understood by what it is for."""
    if document["kind"] != "RayCluster":
        kubernetes_validate.validate(dict(document), KUBERNETES, strict=True)
        return
    spec = document["spec"]
    assert document["apiVersion"] == "ray.io/v1"
    assert set(spec) <= {*RAY_NAMES["spec"].split()}
    assert set(spec["autoscalerOptions"]) <= {*RAY_NAMES["autoscaler"].split()}
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        assert set(group) <= {*RAY_NAMES["group"].split()}
        assert set(group["rayStartParams"]) <= ray_options()
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    for pod in pods(document):
        template = {"apiVersion": "v1", "kind": "PodTemplate", "template": pod}
        kubernetes_validate.validate(template, KUBERNETES, strict=True)


@pytest.fixture(scope="module", params=["files", "kind", "cloud"])
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return documents(request.param)


def test_every_object_is_valid(objects: list[dict[str, Any]]) -> None:
    assert {d["kind"] for d in objects} >= {
        "Namespace",
        "PersistentVolumeClaim",
        "RayCluster",
        "NetworkPolicy",
    }
    for document in objects:
        validate(document)


def test_containers_have_no_root_no_privileges_and_a_limit_of_memory(
    objects: list[dict[str, Any]],
) -> None:
    found = [pod["spec"] for document in objects for pod in pods(document)]
    assert found
    for spec in found:
        assert spec["securityContext"]["runAsNonRoot"]
        assert "automountServiceAccountToken" in spec
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            assert not container["image"].endswith(":latest")


@pytest.mark.pipeline
def test_overlays_name_every_image_with_its_version() -> None:
    for overlay in ("kind", "cloud"):
        for document in documents(overlay):
            for pod in pods(document):
                for container in pod["spec"]["containers"]:
                    assert re.fullmatch(r"[\w.]+/understudy(-vllm)?:[\w.]+", container["image"])


def test_network_policies_deny_first_and_name_roles_and_ports_that_exist(
    objects: list[dict[str, Any]],
) -> None:
    policies = {d["metadata"]["name"]: d["spec"] for d in objects if d["kind"] == "NetworkPolicy"}
    assert policies["deny-ingress"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    assert policies["engine"]["egress"] == []
    templates = [pod for document in objects for pod in pods(document)]
    ports = {
        p["containerPort"]
        for t in templates
        for c in t["spec"]["containers"]
        for p in c.get("ports", [])
    }
    from_dagster = [rule for rule in policies["ray"]["ingress"] if "ports" in rule]
    assert {p["port"] for rule in from_dagster for p in rule["ports"]} == {10001} <= ports
    roles = {t["metadata"]["labels"]["understudy/role"] for t in templates}
    narrowed = [policies[name]["podSelector"]["matchLabels"] for name in ("ray", "engine")]
    assert roles <= {labels["understudy/role"] for labels in narrowed}


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "dagster/values.yaml").read_text())
    return found


def nodes(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from nodes(inner, f"{path}.{name}".strip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from nodes(inner, f"{path}.*")


def chart_pods(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Pods as the chart makes them of its values: with the pieces that are Kubernetes' own."""
    deployments = given["dagster-user-deployments"]["deployments"]
    for section in (given["dagsterWebserver"], given["dagsterDaemon"], *deployments):
        container = {
            "name": "c",
            "image": "{repository}:{tag}".format(**section["image"]),
            "imagePullPolicy": section["image"]["pullPolicy"],
            "resources": section["resources"],
            "securityContext": section["securityContext"],
            "env": section.get("env", []),
            "envFrom": [{"secretRef": secret} for secret in section.get("envSecrets", [])],
            "volumeMounts": section.get("volumeMounts", []),
            **(
                {"readinessProbe": section["readinessProbe"]} if "readinessProbe" in section else {}
            ),
        }
        spec = {
            "containers": [container],
            "securityContext": section["podSecurityContext"],
            "volumes": section.get("volumes", []),
        }
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def test_values_use_names_of_the_chart_and_valid_pieces_of_pods() -> None:
    given = values()
    unknown = {p: set(v) - {*CHART_NAMES[p].split()} for p, v in nodes(given) if p in CHART_NAMES}
    assert {path: names for path, names in unknown.items() if names} == {}
    for pod in chart_pods(given):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    given["dagsterDaemon"]["resources"]["requests"]["memory"] = ["1Gi"]
    with pytest.raises(kubernetes_validate.ValidationError):
        [kubernetes_validate.validate(pod, KUBERNETES, strict=True) for pod in chart_pods(given)]


def test_variables_of_the_code_location_are_settings_that_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pipelines.config import load_settings

    deployment, optional = values()["dagster-user-deployments"]["deployments"]
    assert optional["env"] == deployment["env"]
    for variable in deployment["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    settings = load_settings()
    assert settings.runtime.executor == "k8s"
    assert (settings.execution.executor, settings.execution.address) == (
        "ray",
        "ray://understudy-ray-head-svc:10001",
    )
    (cluster,) = (d for d in documents("files") if d["kind"] == "RayCluster")
    (head,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in head["ports"]}
    assert ports["client"] == 10001
    mounts = {m["mountPath"] for m in deployment["volumeMounts"]}
    assert str(settings.runtime.home.parent) in mounts


def _snake(value: Any) -> Any:
    """A section of the values as the chart writes it into dagster.yaml."""
    if not isinstance(value, dict):
        return value
    return {
        re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", key): _snake(v) for key, v in value.items()
    }


def test_dagster_reads_its_instance_file(tmp_path: Path) -> None:
    from dagster._config import process_config, resolve_to_config_type
    from dagster._core.instance.config import dagster_instance_config
    from dagster_k8s import K8sRunLauncher
    from dagster_postgres import DagsterPostgresStorage

    shutil.copy(DEPLOY / "dagster/dagster.yaml", tmp_path)
    config, _ = dagster_instance_config(str(tmp_path))
    launcher = resolve_to_config_type(K8sRunLauncher.config_type())
    given = config["run_launcher"]["config"]
    assert process_config(launcher, given).success
    assert not process_config(launcher, {**given, "job_name_space": "x"}).success
    storage = resolve_to_config_type(DagsterPostgresStorage.config_type())
    read = {**config["storage"]["postgres"]["postgres_db"]}
    assert all(
        set(read.pop(name)) == {"env"} for name in ("username", "password", "hostname", "db_name")
    )
    literal = dict.fromkeys(("username", "password", "hostname", "db_name"), "x")
    assert process_config(storage, {"postgres_db": {**read, **literal}}).success


def test_chart_and_instance_file_say_the_same() -> None:
    instance = yaml.safe_load((DEPLOY / "dagster/dagster.yaml").read_text())
    given = values()
    daemon = given["dagsterDaemon"]
    assert _snake(daemon["runMonitoring"]) == instance["run_monitoring"]
    assert _snake(daemon["runRetries"]).items() <= instance["run_retries"].items()
    assert {**_snake(given["retention"]), "enabled": None} == {
        **instance["retention"],
        "enabled": None,
    }
    for name, section in given["additionalInstanceConfig"].items():
        assert instance[name] == section


def test_versions_are_those_of_the_constraints() -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    (cluster,) = (d for d in documents("files") if d["kind"] == "RayCluster")
    assert cluster["spec"]["rayVersion"] == pins["ray"]
    for page in (DEPLOY / "dagster/values.yaml", ROOT / "docs/scale.md"):
        assert re.findall(r"dagster/dagster --version (\S+)", page.read_text()) == [pins["dagster"]]


def test_no_secret_is_written_in_a_file() -> None:
    secret = re.compile(r"password|secret|token|api_?key", re.IGNORECASE)
    for path in sorted(DEPLOY.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            for where, value in nodes(document):
                if isinstance(value, dict) and secret.search(str(value.get("name", ""))):
                    assert "value" not in value, (path, where)
                leaf = where.rpartition(".")[2]
                if isinstance(value, str) and re.search(
                    r"password$|token$|api_?key$", leaf, re.IGNORECASE
                ):
                    pytest.fail(f"{path.name}: {where} is a literal")
    for path in DEPLOY.rglob("Dockerfile"):
        for line in path.read_text().splitlines():
            assert not re.match(r"(ARG|ENV) .*(PASSWORD|TOKEN|SECRET|API_?KEY)", line)
