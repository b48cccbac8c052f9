"""The component `monitoring`: what it scrapes, and alerts that can fire at all."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from rollout_operator.telemetry.metrics import Metrics
from tests.code_rules import ROOT
from tests.kustomize import Object
from tests.rendered import MANIFESTS, MONITORING, NAMESPACE, by_name, container_of, install

FOLDER: Final = MANIFESTS / "components" / MONITORING
PREFIX: Final = "rollout-operator"
ALERTS_PAGE: Final = "docs/alerts.md"
# Of the API server, of kube-state-metrics, and what Prometheus itself knows of its targets.
OTHERS: Final = {
    "apiserver_admission_webhook_rejection_count",
    "kube_validatingwebhookconfiguration_info",
    "up",
}
# Set by the operator at each scrape, from what it is given when webhooks are served.
LATE: Final = {"kube_validating_webhook_failure_policy"}
FUNCTIONS: Final = {
    *("avg_over_time", "rate", "sum", "max", "count", "time"),
    *("histogram_quantile", "label_replace"),
}
WORDS: Final = {"by", "on", "or", "unless"}
SUFFIXES: Final = ("_bucket", "_count", "_sum", "_total")
UPSTREAM: Final = {
    "IncorrectWebhookConfigurationFailurePolicy": "5m",
    "BadZoneAwarePodDisruptionBudgetConfiguration": "5m",
    "HighNumberInflightZpdbRequests": "5m",
    "NotReconciling": "5m",
}


def load_rules() -> list[Object]:
    (group,) = yaml.safe_load((FOLDER / "prometheusrule.yaml").read_text())["spec"]["groups"]
    rules: list[Object] = group["rules"]
    return rules


RULES: Final = [pytest.param(rule, id=rule["alert"]) for rule in load_rules()]


def list_own_metrics() -> dict[str, set[str]]:
    """Return the labels of our metrics by name, as `Metrics` makes them."""
    collectors = Metrics().registry._collector_to_names  # there is no public list of them
    return {
        str(one._name): set(one._labelnames)
        for one in collectors
        if isinstance(one, MetricWrapperBase)
    }


def bare(expression: str) -> str:
    """Return an expression without its texts, in which anything may stand."""
    return re.sub(r'"[^"]*"', '""', expression)


def metrics_of(expression: str) -> set[str]:
    """Return the names that an expression reads, selectors and lists of labels left out."""
    text = re.sub(r"\{[^}]*\}", "", bare(expression))
    text = re.sub(r"\b(by|on)\s*\([^)]*\)", r"\1", text)
    words = set(re.findall(r"(?<![\w.])[a-z_]\w*", re.sub(r"\[\w+\]", "", text)))
    return words - FUNCTIONS - WORDS


@pytest.fixture
def monitored(tmp_path: Path) -> dict[tuple[str, str], Object]:
    return by_name(install(tmp_path, MONITORING))


def test_dep78_what_is_scraped_is_there(monitored: dict[tuple[str, str], Object]) -> None:
    """DEP-78, DEP-84: both objects are in the namespace of the operator."""
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert monitored[kind, "rollout-operator"]["metadata"]["namespace"] == NAMESPACE
    spec = monitored["ServiceMonitor", "rollout-operator"]["spec"]
    service = monitored["Service", "rollout-operator"]
    (endpoint,) = spec["endpoints"]

    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["port"] in {port["name"] for port in container_of(monitored)["ports"]}
    assert "namespaceSelector" not in spec, "its own namespace is meant"


def test_dep74_dep75_the_job_is_what_dashboards_select_by(
    monitored: dict[tuple[str, str], Object],
) -> None:
    """DEP-74, DEP-75."""
    (endpoint,) = monitored["ServiceMonitor", "rollout-operator"]["spec"]["endpoints"]

    assert endpoint["relabelings"] == [
        {
            "sourceLabels": ["__meta_kubernetes_namespace"],
            "targetLabel": "job",
            "replacement": "$1/rollout-operator",
        }
    ]
    assert container_of(monitored)["name"] == "rollout-operator"


def test_dep77_the_alerts_that_are_promised() -> None:
    """DEP-77, section 16.1: upstream's three and Mimir's under their names, and ours."""
    rules = {rule["alert"].removeprefix(PREFIX): rule for rule in load_rules()}
    headings = re.findall(r"^## (\w+)$", (ROOT / ALERTS_PAGE).read_text(), re.MULTILINE)

    assert headings == [*rules], "each is explained, and no others"
    assert len(rules) == len(load_rules())
    assert {name: rules[name]["for"] for name in UPSTREAM} == UPSTREAM
    assert set(rules) - set(UPSTREAM) == {
        "Absent",
        "CertificateExpiring",
        "ClientThrottled",
        "DownscaleNotUndone",
        "EvictionsBlocked",
        "EvictionsUnused",
        "ReviewsNotForwarded",
        "RolloutBlocked",
        "WatchStale",
        "WebhookErrors",
        "WebhookSlow",
        "WebhookUnreachable",
    }


@pytest.mark.parametrize("rule", RULES)
def test_an_alert_is_whole(rule: Object) -> None:
    name = rule["alert"]

    assert name.startswith(PREFIX)
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"warning", "critical"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert (page, anchor) == (ALERTS_PAGE, name.removeprefix(PREFIX).lower())


@pytest.mark.parametrize("rule", RULES)
def test_an_expression_is_one(rule: Object) -> None:
    """Brackets balance, only known functions are called, and it ends in a comparison."""
    text, open_ones = bare(rule["expr"]), []
    pairs = {")": "(", "]": "[", "}": "{"}
    for letter in text:
        if letter in pairs.values():
            open_ones.append(letter)
        elif letter in pairs:
            assert open_ones
            assert open_ones.pop() == pairs[letter]
    assert not open_ones
    called = set(re.findall(r"(\w+)\s*\(", text)) - WORDS
    assert called <= FUNCTIONS
    assert re.search(r"(==|[<>]=?) [\d.]+\)?$", text.strip())


@pytest.mark.parametrize("rule", RULES)
def test_an_alert_asks_for_what_there_is(rule: Object) -> None:
    """DEP-67, DEP-77: each metric and each label that an expression selects by exists."""
    own = list_own_metrics()
    for name in metrics_of(rule["expr"]):
        if name in OTHERS | LATE:
            continue
        known = next((each for each in (name, *_cut(name)) if each in own), None)
        assert known is not None, name
        selected = re.findall(rf"{name}\{{([^}}]*)\}}", rule["expr"])
        keys = {key for part in selected for key in re.findall(r"(\w+)[=!]~?\"", part)}
        assert keys <= own[known], name


@pytest.mark.parametrize("rule", RULES)
def test_a_summary_names_labels_that_are_left(rule: Object) -> None:
    """A label that the expression sums away would be shown as nothing."""
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    kept = [set(re.split(r"[,\s]+", one)) for one in re.findall(r"\bby \(([^)]*)\)", rule["expr"])]

    if kept:
        assert named <= set.union(*kept)
    else:
        assert named <= {"namespace"}, "of the target, which every series has"


def test_the_names_of_metrics_are_found() -> None:
    """What the tests above rest on."""
    expression: Any = (
        'sum by (a) (rate(one{b=~"x|up.+"}[5m])) > 0 unless on (a) max by (a) (two == 1)'
    )

    assert metrics_of(expression) == {"one", "two"}
    assert list_own_metrics()["rollout_operator_group_waiting"] == {"rollout_group", "reason"}


def _cut(name: str) -> list[str]:
    return [name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)]
