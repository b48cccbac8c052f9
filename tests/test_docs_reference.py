"""Reference pages hold what the code has, no less and no more. See also test_docs.py."""

import re
from typing import Final

import pytest
from prometheus_client import CollectorRegistry

from rollout_operator.aio.clock import LoopClock
from rollout_operator.model import names
from rollout_operator.operator import reviews
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.states import Health
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.middleware import ClusterRules
from tests.code_rules import ROOT
from tests.own_metrics import make_all_metrics
from tests.pages import chapter_of
from tests.site.reference import PAGE, render_page

LABELS: Final = (ROOT / "docs/labels.md").read_text()
METRICS: Final = chapter_of("monitoring.md", "Metrics")
ENDPOINTS: Final = chapter_of("monitoring.md", "Endpoints")


def test_custom_resources_are_those_that_are_shipped() -> None:
    """Repair it by `python -m tests.site.reference`."""
    assert PAGE.read_text() == render_page()


def collect_keys() -> set[str]:
    """Return each label and annotation that the code names."""
    values = (value for name, value in vars(names).items() if name.isupper())
    ours = re.compile(r"(grafana\.com/|rollout-)\S+")
    return {
        value
        for value in values
        if isinstance(value, str) and ours.fullmatch(value) and value != names.FIELD_MANAGER
    }


@pytest.mark.parametrize("key", sorted(collect_keys()))
def test_every_label_and_annotation_is_listed(key: str) -> None:
    assert f"`{key}`" in LABELS


def test_no_label_or_annotation_is_listed_that_nothing_reads() -> None:
    assert {*re.findall(r"`(grafana\.com/[\w/-]+)`", LABELS)} - collect_keys() == set()


def test_no_metric_is_listed_that_is_not_exposed() -> None:
    """Nor under a name that has changed; `test_docs.py` looks the other way."""
    listed = re.findall(r"`(rollout_operator_\w+)`", METRICS)
    exposed = {metric.name for metric in make_all_metrics().registry.collect()}

    assert {name.removesuffix("_total") for name in listed} - exposed == set()


async def test_the_paths_are_those_that_are_served() -> None:
    rules = ClusterRules(namespace="prod")
    server = AdminServer(0, Metrics(CollectorRegistry()), Health(LoopClock()), rules)
    served = {
        route.resource.canonical.partition("/{")[0]
        for route in server._runner.app.router.routes()
        if route.resource is not None
    }

    assert collect_paths("8001") == served | {"/debug/pprof/…"}


def test_the_webhooks_are_those_that_are_served() -> None:
    hooks = {
        value
        for name, value in vars(reviews).items()
        if name.endswith("_PATH") and isinstance(value, str)
    }

    assert collect_paths("8443") == hooks
    assert collect_paths("8444") == {*reviews.LED_PATHS}


def collect_paths(port: str) -> set[str]:
    """Return the paths that the page names below the heading of a port."""
    (section,) = (part for part in ENDPOINTS.split("\n### ") if part.startswith(port))
    rows = re.findall(r"^\| (`/[^|]*) \|", section, re.MULTILINE)
    return {path for row in rows for path in re.findall(r"`([^`]+)`", row)}
