"""Alerts that fire when they should, a dashboard of what there is, and both as they are made."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.dashboard import HEIGHT, PATH, WIDTH, list_expressions, load_rows, render_dashboard
from tests.expressions import assert_known, bare, metrics_of
from tests.kustomize import Object
from tests.rendered import MANIFESTS, MONITORING
from tests.stories import check_tables
from tests.world.promql import Query, Scrape, evaluate

pytestmark = pytest.mark.controlplane

PREFIX: Final = "rollout-operator"
# Of the API server, of kube-state-metrics, and what Prometheus itself knows of its targets.
OTHERS: Final = {
    "apiserver_admission_webhook_rejection_count",
    "kube_validatingwebhookconfiguration_info",
    "up",
}
STEP: Final = 30
# So that rates of ten minutes have all of their samples before the alert's own time begins.
WARM_UP: Final = 15 * 60
START: Final = 1_800_000_000
MINUTE: Final = 60
OWN: Final = {"namespace": "mimir", "job": "mimir/rollout-operator", "pod": "operator-0"}
# Of other targets, and of several: their labels stand in the series.
OWN_OF: Final[dict[str, dict[str, str]]] = {
    "Absent": {"namespace": "mimir"},
    "WebhookUnreachable": {"namespace": "default", "job": "apiserver"},
    "NoReplicaActs": {"namespace": "mimir"},
}
ALERTS: Final = Path(__file__).parent / "alerts.txt"
DASHBOARD: Final[dict[str, Any]] = json.loads(PATH.read_text())
VARIABLES: Final = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
# What Grafana makes lists of, and chooses the time by.
BUILT_IN: Final = {"__rate_interval"}


def load_rules() -> list[Object]:
    path = MANIFESTS / "components" / MONITORING / "prometheusrule.yaml"
    (group,) = yaml.safe_load(path.read_text())["spec"]["groups"]
    rules: list[Object] = group["rules"]
    return rules


RULES: Final = {rule["alert"].removeprefix(PREFIX): rule for rule in load_rules()}


def show(case: str) -> str:
    """DEP-77, DEP-97: with a namespace, which the summary and the link need."""
    alert, _, series = case.partition(": ")
    namespaces = list_firing(alert, dict(one.rsplit(" ", 1) for one in series.split("; ")))
    return "; ".join(f"fires in {one}" for one in namespaces) or "-"


test_an_alert = check_tables(__file__, alerts=show)


def test_each_alert_fires_and_nearly_fires() -> None:
    told = re.findall(r"^(\w+): .* \| (fires in mimir|-)$", ALERTS.read_text(), re.MULTILINE)

    assert {*told} == {(name, ends) for name in RULES for ends in ("fires in mimir", "-")}


def list_firing(alert: str, series: dict[str, str]) -> list[str]:
    """Return the namespaces of what fires at the end, when the alert's time has been twice over."""
    rule = RULES[alert]
    amount, unit = int(rule["for"][:-1]), rule["for"][-1]
    last = amount * {"m": MINUTE, "h": 60 * MINUTE}[unit]
    # An alert about the age of something needs that it has come of age before.
    start, end = START + WARM_UP, START + WARM_UP + 2 * last
    labels = OWN_OF.get(alert, OWN)
    scrapes = [
        Scrape(at=at, page="".join(_render(series, at)), labels=labels)
        for at in range(START, end + STEP, STEP)
    ]
    (answer,) = evaluate(scrapes, [Query(expression=rule["expr"], start=start, end=end, step=STEP)])
    assert not answer.error
    wanted = {*range(end - last, end + STEP, STEP)}
    return [one.labels["namespace"] for one in answer.series or () if wanted <= {*one.times}]


def _render(series: dict[str, str], at: int) -> Iterator[str]:
    for name, value in series.items():
        prefix = "" if name.startswith(("kube_", "apiserver_", "up{")) else "rollout_operator_"
        yield f"{prefix}{name} {_read(value, (at - START) / MINUTE)!r}\n"


def _read(value: str, passed: float) -> float:
    """Return a value after so many minutes; alerts.txt says what there is."""
    if turns := re.fullmatch(r"(\d)of(\d)@(\d+)m", value):
        turn, of, minutes = map(int, turns.groups())
        return float(passed // minutes % of == turn - 1)
    if falling := re.fullmatch(r"(\d+)-(\d+)m", value):
        return int(falling[1]) - passed // int(falling[2])
    first, _, growth = value.partition("+")
    begin = START if first == "now" else float(first)
    if growth.endswith("d"):
        return begin + int(growth[:-1]) * 86_400.0
    return begin + passed * float(growth or 0)


def test_alerts_and_panels_read_what_there_is() -> None:
    """DEP-67, DEP-77: each metric and label exists, and a label that is summed away is not named.

    Where nothing is said of labels, they are those of the target, which every series has. Whether
    an expression is one: tests/system/test_monitoring.py has Prometheus evaluate them.
    """
    for rule in RULES.values():
        assert set(rule["annotations"]) == {"summary", "runbook_url"}
        assert re.search(r"(==|[<>]=?) [\d.]+\)?$", bare(rule["expr"]).strip())
        assert_known(rule["expr"], OTHERS)
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        kept = _list_kept(rule["expr"])
        assert named <= (kept or {"namespace", "exported_namespace"})
        assert "namespace" in kept or not kept
    for expression in list_expressions():
        assert metrics_of(expression)
        assert_known(expression, set())
        assert set(re.findall(r"\$(\w+)", expression)) <= {*VARIABLES} | BUILT_IN


def _list_kept(expression: str) -> set[str]:
    """Return the labels that sums keep, of all of them."""
    lists = re.findall(r"\bby \(([^)]*)\)", expression)
    return {label for one in lists for label in re.split(r"[,\s]+", one)}


def test_dep76_what_one_chooses_comes_from_our_own_metrics() -> None:
    """DEP-76: those who run Loki or Tempo alone see no empty lists."""
    assert [*VARIABLES] == ["datasource", "cluster", "namespace", "rollout_group"]
    for name, one in VARIABLES.items():
        if name != "datasource":
            query = one["query"]["query"].removeprefix("label_values(").removesuffix(")")
            expression, label = query.rsplit(", ", 1)
            assert label == name
            assert_known(expression, set())
            assert one["allValue"] == ".*"


def test_the_dashboard_is_the_one_that_is_made_and_panels_do_not_overlap() -> None:
    assert PATH.read_text() == render_dashboard(), "python -m tests.dashboard"
    assert len(PATH.read_bytes()) < 200_000, "kubectl apply keeps a copy in an annotation"
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        fields = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not fields & taken, panel["title"]
        assert place["x"] + place["w"] <= WIDTH
        assert place["h"] in {1, HEIGHT}
        taken |= fields
        if panel["type"] != "row":
            assert panel["targets"]
            assert panel["datasource"]["uid"] == "${datasource}"
    for panel in (panel for row in load_rows().values() for panel in row):
        for legend, query in panel.queries.items():
            named = set(re.findall(r"\{\{(\w+)\}\}", legend))
            assert named <= (_list_kept(query) or {"namespace", "pod"}), panel.title
