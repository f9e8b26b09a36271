"""``examples/observability``: alerts and dashboard ask for what there is, and Prometheus finds it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Final

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry

from aioredlock_ng.contrib.prometheus import PrometheusHooks
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, required

FOLDER: Final = ROOT / "examples" / "observability"
METRIC: Final = re.compile(r"\bredlock_\w+")
WORKERS: Final = 3
PATIENCE: Final = 60.0  # seconds within which it counts something, beside other work


def metrics() -> set[str]:
    """Return the names of all series that the hooks make."""
    registry = CollectorRegistry()
    PrometheusHooks(registry)
    names: set[str] = set()
    for metric in registry.collect():
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(metric.type, ("",))
        names |= {f"{metric.name}{end}" for end in ends}
    return names


@pytest.mark.parametrize("file", ["rules.yml", "rules_test.yml", "grafana/redlock.json"])
def test_what_is_asked_for_is_there(file: str) -> None:
    """No misspelt name in alerts and dashboard."""
    asked = set(METRIC.findall((FOLDER / file).read_text()))
    assert asked
    assert asked <= metrics()


def test_every_metric_is_on_the_dashboard() -> None:
    """All that is counted is shown; of a histogram some part is enough."""
    shown = set(METRIC.findall((FOLDER / "grafana" / "redlock.json").read_text()))
    names = {re.sub("_(bucket|count|sum)$", "", name) for name in metrics()}
    assert names == {re.sub("_(bucket|count|sum)$", "", name) for name in shown}


def test_every_query_of_the_guide_is_there() -> None:
    """The table of what to ask for names metrics that there are."""
    asked = set(METRIC.findall((ROOT / "docs" / "operate" / "metrics.md").read_text()))
    assert asked <= metrics()


def test_the_dashboard_is_generated() -> None:
    """The folder has the file that the program writes."""
    spec = importlib.util.spec_from_file_location("dashboard", FOLDER / "dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert json.loads((FOLDER / "grafana" / "redlock.json").read_text()) == module.dashboard()


def test_the_services_are_what_the_files_say() -> None:
    """Prometheus reads each worker, and the files that are mounted are there."""
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    workers = {f"{name}:9464" for name in services if name.startswith("worker")}
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"][0]
    assert set(scraped["static_configs"][0]["targets"]) == workers
    assert len(workers) == WORKERS
    for service in services.values():
        for volume in service.get("volumes", ()):
            assert (FOLDER / volume.split(":")[0]).exists(), volume


# -- with the programs of Prometheus -------------------------------------------------------------------


def program(name: str) -> str:
    """Return where a program of Prometheus is; skip where it is not, unless it is required."""
    found = shutil.which(name)
    if found is None:
        if "prometheus" in required():
            pytest.fail(f"{name} is required here, and is not installed")
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.process
def test_promtool_takes_the_rules() -> None:
    """They are valid, and each alert fires when it should, and not before."""
    promtool = program("promtool")
    for command in ("check rules rules.yml", "test rules rules_test.yml", "check config prometheus.yml"):
        done = subprocess.run(
            [promtool, *command.split()], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried() -> None:
    """The tests of the rules have each alert fire."""
    rules = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"][0]["rules"]
    tests = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    fired = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules}


@pytest.mark.process
def test_a_worker_counts(shared_nodes: Nodes) -> None:
    """A program of the folder serves the metrics of what it acquires, where it says."""
    variables = os.environ | {"REDLOCK_URLS": ",".join(shared_nodes.urls)}
    command = [sys.executable, FOLDER / "worker.py", "--port", "0"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            address = worker.stdout.readline().removeprefix("metrics at ").strip()
            ends = time.monotonic() + PATIENCE
            while not re.search(
                r"^redlock_acquire\S*_count{.*} [1-9]", httpx.get(address).text, re.MULTILINE
            ):
                assert time.monotonic() < ends, httpx.get(address).text
                time.sleep(0.1)
        finally:
            worker.terminate()
