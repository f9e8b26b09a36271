"""``examples/kubernetes.yaml``: a cluster takes it, and its parts name each other."""

from __future__ import annotations

import warnings
from typing import Any, Final

import pytest
import yaml
from fastapi.routing import APIRoute

from aioredlock_ng.__main__ import make_parser
from examples.fastapi_app import app
from tests.environments.interpreters import ROOT
from tests.servers import required

FILE: Final = ROOT / "examples" / "kubernetes.yaml"
COMPOSE: Final = ROOT / "examples" / "compose.yaml"

VERSIONS: Final = ("1.27", "1.31")
"""Of Kubernetes, beside the newest that the validator knows."""

QUARANTINE: Final = 60 * 1.01
"""Seconds that a node without its memory has no vote, by default."""


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """Give the objects by their kinds."""
    return {each["kind"]: each for each in yaml.safe_load_all(FILE.read_text())}


def pod(of: dict[str, Any]) -> dict[str, Any]:
    """Return the pod's part of what makes pods."""
    template: dict[str, Any] = of["spec"]["template"]
    return template


def test_a_cluster_takes_it() -> None:
    """By the schemas of Kubernetes, which know no other keys."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import kubernetes_validate
        except ModuleNotFoundError:
            (pytest.fail if "kubernetes" in required() else pytest.skip)(
                "kubernetes-validate is not installed: uv pip install --group kubernetes"
            )
        for each in yaml.safe_load_all(FILE.read_text()):
            for version in (*VERSIONS, kubernetes_validate.latest_version()):
                kubernetes_validate.validate(each, version, strict=True)
        broken = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"maxUnavailble": 1}}
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


def test_the_urls_name_each_node(objects: dict[str, Any]) -> None:
    """One pod each, by the names that a stateful set and its service give; all clients read the same list."""
    nodes = objects["StatefulSet"]
    service = objects["Service"]["metadata"]["name"]
    assert (nodes["spec"]["serviceName"], objects["Service"]["spec"]["clusterIP"]) == (service, "None")
    names = [f"{nodes['metadata']['name']}-{number}.{service}" for number in range(nodes["spec"]["replicas"])]
    config = objects["ConfigMap"]
    assert config["data"] == {"REDLOCK_URLS": ",".join(f"redis://{name}" for name in names)}
    for client in ("Job", "Deployment"):
        (container,) = pod(objects[client])["spec"]["containers"]
        assert container["envFrom"] == [{"configMapRef": {"name": config["metadata"]["name"]}}]


def test_no_two_nodes_go_at_once(objects: dict[str, Any]) -> None:
    """They stand on machines of their own, one is evicted at a time, and it is ready when it votes again."""
    labels = pod(objects["StatefulSet"])["metadata"]["labels"]
    spec = pod(objects["StatefulSet"])["spec"]
    (rule,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    budget = objects["PodDisruptionBudget"]["spec"]
    selectors = [rule["labelSelector"], budget["selector"], objects["StatefulSet"]["spec"]["selector"]]
    selectors.append(objects["NetworkPolicy"]["spec"]["podSelector"])
    assert selectors == [{"matchLabels": labels}] * 4
    assert (rule["topologyKey"], budget["maxUnavailable"]) == ("kubernetes.io/hostname", 1)
    (container,) = spec["containers"]
    assert container["readinessProbe"]["initialDelaySeconds"] > QUARANTINE
    assert objects["Service"]["spec"]["publishNotReadyAddresses"] is True
    assert objects["Service"]["spec"]["selector"] == labels
    (allowed,) = objects["NetworkPolicy"]["spec"]["ingress"][0]["from"]
    for client in ("Job", "Deployment"):
        assert (
            allowed["podSelector"]["matchLabels"].items()
            <= pod(objects[client])["metadata"]["labels"].items()
        )


def test_what_runs_is_what_compose_runs(objects: dict[str, Any]) -> None:
    """The servers and the application, which other tests start; an `init`; paths that exist."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for kind, name in (("StatefulSet", "node-1"), ("Deployment", "app")):
        (container,) = pod(objects[kind])["spec"]["containers"]
        assert [container["image"], container["command"]] == [
            services[name]["image"],
            services[name]["command"],
        ]
    paths = {container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")}
    assert paths <= {route.path for route in app.routes if isinstance(route, APIRoute)}
    (init,) = pod(objects["Job"])["spec"]["containers"]
    program, *words = init["command"]
    assert (program, make_parser().parse_args(words).command) == ("aioredlock-ng", "init")
    assert "ttlSecondsAfterFinished" not in objects["Job"]["spec"], "applied again, it would run again"
