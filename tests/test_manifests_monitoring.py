"""The component `monitoring`: what it scrapes, and alerts that can fire at all."""

import re
import textwrap
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.code_rules import ROOT
from tests.expressions import (
    FUNCTIONS,
    assert_balanced,
    assert_known,
    bare,
    functions_of,
    map_own_metrics,
    metrics_of,
)
from tests.kustomize import Object, render
from tests.pages import chapter_of
from tests.rendered import MANIFESTS, MONITORING, NAMESPACE, by_name, container_of, install

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

FOLDER: Final = MANIFESTS / "components" / MONITORING
PREFIX: Final = "rollout-operator"
ALERTS_PAGE: Final = "docs/monitoring.md"
# Of the API server, of kube-state-metrics, and what Prometheus itself knows of its targets.
OTHERS: Final = {
    "apiserver_admission_webhook_rejection_count",
    "kube_validatingwebhookconfiguration_info",
    "up",
}
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
    headings = re.findall(r"^### (\w+)$", chapter_of("monitoring.md", "Alerts"), re.MULTILINE)

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
        "MultiAZRolloutBlocked",
        "NoReplicaActs",
        "ReleaseBlocked",
        "ReleaseStuck",
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
    assert set(rule["annotations"]) == {"summary", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (page, anchor) == (ALERTS_PAGE, name.removeprefix(PREFIX).lower())


def list_runbooks(objects: list[Object]) -> list[tuple[str, str]]:
    """Return page and anchor of each alert that is installed."""
    (group,) = by_name(objects)["PrometheusRule", "rollout-operator"]["spec"]["groups"]
    urls = [str(rule["annotations"]["runbook_url"]).partition("#") for rule in group["rules"]]
    return [(page, anchor) for page, _, anchor in urls]


def test_runbooks_lead_to_the_status_page_of_the_operator_that_is_meant(tmp_path: Path) -> None:
    """By name and port of the Service; each alert has a namespace to put in."""
    objects = install(tmp_path, MONITORING)
    (port,) = by_name(objects)["Service", "rollout-operator"]["spec"]["ports"]
    found = list_runbooks(objects)

    assert {page for page, _ in found} == {
        f"http://rollout-operator.{{{{ $labels.namespace }}}}.svc:{port['port']}/status"
    }
    assert [anchor for _, anchor in found] == [
        rule["alert"].removeprefix(PREFIX).lower() for rule in load_rules()
    ]
    assert all("namespace" in _by(rule["expr"]) or not _by(rule["expr"]) for rule in load_rules())


def test_another_page_is_named_as_the_document_says(tmp_path: Path) -> None:
    """The block in docs/monitoring.md, as it stands there."""
    install(tmp_path, MONITORING)
    (block,) = [
        textwrap.dedent(one)
        for one in re.findall(r"(?:^    .*\n|^\n)+", (ROOT / ALERTS_PAGE).read_text(), re.MULTILINE)
        if "replacements:" in one
    ]
    path = tmp_path / "kustomization.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | yaml.safe_load(block)))
    runbook = {"page": "https://docs.example.com/rollout-operator/alerts"}
    metadata = {"name": "runbooks", "annotations": {"config.kubernetes.io/local-config": "true"}}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": runbook}
    (tmp_path / "runbooks.yaml").write_text(yaml.safe_dump(made))
    path.write_text(path.read_text().replace("- operator\n", "- operator\n- runbooks.yaml\n"))

    found = list_runbooks(render(tmp_path))

    assert {page for page, _ in found} == {runbook["page"]}
    assert found[0][1] == load_rules()[0]["alert"].removeprefix(PREFIX).lower()


@pytest.mark.parametrize("rule", RULES)
def test_an_expression_is_one(rule: Object) -> None:
    """Brackets balance, only known functions are called, and it ends in a comparison."""
    assert_balanced(rule["expr"])
    assert functions_of(rule["expr"]) <= FUNCTIONS
    assert re.search(r"(==|[<>]=?) [\d.]+\)?$", bare(rule["expr"]).strip())


@pytest.mark.parametrize("rule", RULES)
def test_an_alert_reads_what_there_is(rule: Object) -> None:
    """DEP-67, DEP-77: each metric and each label that an expression selects by exists."""
    assert_known(rule["expr"], OTHERS)


@pytest.mark.parametrize("rule", RULES)
def test_a_summary_names_labels_that_are_left(rule: Object) -> None:
    """A label that the expression sums away would be shown as nothing."""
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    kept = _by(rule["expr"])

    assert named <= (kept or {"namespace"}), "without any, of the target, which every series has"


def test_the_names_of_metrics_are_found() -> None:
    """What the tests above rest on."""
    expression: Any = (
        'sum by (a) (rate(one{b=~"x|up.+"}[5m])) > 0 unless on (a) max by (a) (two == 1)'
    )

    assert metrics_of(expression) == {"one", "two"}
    assert map_own_metrics()["rollout_operator_group_waiting"] == {"rollout_group", "reason"}


def _by(expression: str) -> set[str]:
    """Return the labels that sums keep, of all of them."""
    lists = re.findall(r"\bby \(([^)]*)\)", expression)
    return {label for one in lists for label in re.split(r"[,\s]+", one)}
