"""``examples/observability``: alerts and dashboard ask for what there is, and Prometheus finds it."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml
from prometheus_client import CollectorRegistry

from aioredlock_ng.contrib.prometheus import PrometheusHooks
from aioredlock_ng.testing import LocalNodes
from tests.environments.interpreters import ROOT
from tests.servers import ask, free_port, required, without_quarantine_set

FOLDER: Final = ROOT / "examples" / "observability"
METRIC: Final = re.compile(r"\bredlock_\w+")
WORKERS: Final = 3
PATIENCE: Final = 30.0  # seconds within which it finds what has happened

SCRAPED: Final = 10.0  # seconds for which Prometheus reads before it is asked


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
    """Nothing is counted that nobody sees; of a histogram some part is enough."""
    shown = set(METRIC.findall((FOLDER / "grafana" / "redlock.json").read_text()))
    names = {re.sub("_(bucket|count|sum)$", "", name) for name in metrics()}
    assert names == {re.sub("_(bucket|count|sum)$", "", name) for name in shown}


def test_every_query_of_the_guide_is_there() -> None:
    """The table of what to ask for names metrics that there are."""
    asked = set(METRIC.findall((ROOT / "docs" / "how-to" / "metrics.md").read_text()))
    assert asked <= metrics()


def test_the_dashboard_is_generated() -> None:
    """What is in the folder is what the program writes."""
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


class Scraper:
    """A Prometheus that reads the workers each second."""

    def __init__(self, folder: Path, targets: list[str], port: int) -> None:
        rules = str(FOLDER / "rules.yml")
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "redlock", "static_configs": [{"targets": targets}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._url = f"http://127.0.0.1:{port}"
        command = [
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self._log = (folder / "log").open("w+")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        ends = time.monotonic() + 30
        while not self._ready():
            assert self._process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < ends, "Prometheus does not answer"
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5):  # noqa: S310 (on loopback)
                return True
        except OSError:
            return False

    def ask(self, query: str) -> dict[tuple[str, ...], float]:
        """Return the values that a query has now, by the values of their labels."""
        url = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 (on loopback)
            found = json.load(answer)["data"]["result"]
        return {
            tuple(v for k, v in sorted(one["metric"].items()) if k != "__name__"): float(one["value"][1])
            for one in found
        }

    def end(self) -> None:
        """Have it end."""
        self._process.terminate()
        self._process.wait(20)
        self._log.close()


@pytest.fixture
def workers() -> Iterator[tuple[LocalNodes, list[str]]]:
    """Give five nodes, programs that want the same locks over them, and where their metrics are."""
    nodes = LocalNodes(5)
    processes: list[subprocess.Popen[str]] = []
    try:
        nodes.start()
        variables = without_quarantine_set() | {"REDLOCK_URLS": ",".join(nodes.urls)}
        for _ in range(WORKERS):
            command = [sys.executable, FOLDER / "worker.py", "--port", "0"]
            processes.append(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True))
        yield nodes, [_address(each) for each in processes]
    finally:
        for each in processes:
            each.terminate()
        for each in processes:
            each.communicate(timeout=30)
        nodes.close()


def _address(worker: subprocess.Popen[str]) -> str:
    """Return where a worker says that its metrics are."""
    assert worker.stdout is not None
    said = re.fullmatch(r"metrics at http://(\S+)/metrics\n", worker.stdout.readline())
    assert said
    return said[1]


def own_count(target: str, name: str, **labels: str) -> float:
    """Return what a worker itself says, summed over all its series that have these labels."""
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    fitting = [line for line in lines if line.startswith(f"{name}{{") and all(one in line for one in wanted)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in fitting)


@pytest.mark.process
@pytest.mark.timeout(180)
def test_prometheus_finds_what_the_processes_count(
    workers: tuple[LocalNodes, list[str]], tmp_path: Path
) -> None:
    """Acquires, waits, a planted loss, and the margin when a node was killed: within one scrape."""
    nodes, targets = workers
    scraper = Scraper(tmp_path, targets, free_port())
    try:
        time.sleep(SCRAPED / 2)
        nodes.kill(4)
        for url in nodes.urls[:4]:  # whoever holds it finds out at the next extension
            ask(url, "DEL", "redlock:nightly")
        time.sleep(SCRAPED / 2)
        name = "redlock_acquire_duration_seconds_count"
        before = [own_count(target, name, outcome="won") for target in targets]
        found = scraper.ask(f'sum by (instance) ({name}{{outcome="won"}})')
        after = [own_count(target, name, outcome="won") for target in targets]
        for target, low, high in zip(targets, before, after, strict=True):
            # What was read last is no older than two scrapes, in which as much was counted as in the mean.
            assert low * (1 - 3 / SCRAPED) <= found[target,] <= high
        losses = 'sum by (reason) (redlock_losses_total{label="nightly"})'
        deadline = time.monotonic() + PATIENCE
        while not (lost := scraper.ask(losses)) and time.monotonic() < deadline:
            time.sleep(SCRAPED / 10)  # the next extension may come late where other work goes on
        assert lost == {("refused",): 1.0}
        assert scraper.ask("min(redlock_quorum_margin)") == {(): 1.0}
        down = scraper.ask("max by (node) (redlock_node_up) == 0")
        assert [node.rsplit(":", 1)[1] for (node,) in down] == [str(nodes.ports[4])]
        query = 'sum by (le) (rate(redlock_acquire_duration_seconds_bucket{label="report"}[10s]))'
        assert 0 < scraper.ask(f"histogram_quantile(0.99, {query})")[()] < 60
    finally:
        scraper.end()
