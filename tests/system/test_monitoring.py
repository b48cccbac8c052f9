"""Dashboards and alerts on the series of a real operator, as Prometheus evaluates them (DEP-97)."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from rollout_operator.gates.metrics import GateMetrics
from rollout_operator.model.names import PAUSED
from rollout_operator.model.policy import PolicySetStatus, PolicyStatus, PolicyZoneStatus
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.policies import PolicyMetrics
from tests.dashboard import list_expressions
from tests.expressions import metrics_of
from tests.manifests.test_monitoring import OTHERS, load_rules
from tests.system.review_stage import ReviewStage
from tests.system.upstream_queries import ALERTS, DASHBOARD
from tests.system.zones import follow, prepared_zone
from tests.world.budgets import grouped_zones
from tests.world.promql import Query, Scrape, evaluate
from tests.world.world import World

pytestmark = pytest.mark.controlplane

STEP: Final = 30
POLICIES: Final = "rollout_operator_multiaz_"
RELEASES: Final = "rollout_operator_release_"
HEALTH_CHECKS: Final = "rollout_operator_health_check_"
WAITING: Final = "group_waiting rollout_group=ingester reason=paused"


def list_empty(pages: list[str], start: int, namespace: str, expressions: list[str]) -> list[str]:
    """Return the expressions of which pages that follow one another give no series."""
    target = {"job": f"{namespace}/rollout-operator", "namespace": namespace, "pod": "operator"}
    scrapes = [
        Scrape(at=start + STEP * place, page=page, labels=target)
        for place, page in enumerate(pages)
    ]
    end = scrapes[-1].at
    queries = [
        Query(expression=fill_in(each, namespace), start=start, end=end, step=STEP)
        for each in expressions
    ]
    answers = evaluate(scrapes, queries)
    return [
        f"{query.expression}: {answer.error or 'no series'}"
        for query, answer in zip(queries, answers, strict=True)
        if answer.error or not answer.series
    ]


def of_policies(expression: str) -> bool:
    return any(name.startswith(POLICIES) for name in metrics_of(expression))


def of_releases(expression: str) -> bool:
    return any(name.startswith(RELEASES) for name in metrics_of(expression))


def of_health_checks(expression: str) -> bool:
    return any(name.startswith(HEALTH_CHECKS) for name in metrics_of(expression))


async def test_dep97_dashboards_and_alerts_find_series(world: World) -> None:
    """DEP-97, DEP-74: after a rollout, an eviction and a downscale; ours and upstream's."""
    stage, start = ReviewStage(world), int(time.time())
    async with stage.stack:
        pages = await play(stage)
    alerts = [drop_comparisons(rule["expr"]) for rule in load_rules()]
    own = [each for each in alerts if not metrics_of(each) & OTHERS]
    assert len(own) == len(alerts) - 2
    everything = (*list_expressions(), *own)
    parts = (of_policies, of_releases, of_health_checks)
    shown = [each for each in everything if not any(is_of(each) for is_of in parts)]
    for expressions in (shown, [*DASHBOARD, *ALERTS]):
        assert list_empty(pages, start, world.namespace, expressions) == []


async def play(stage: ReviewStage) -> list[str]:
    """Roll out, evict and scale down; return the metrics as half a minute after one another."""
    pages = []
    world, a = stage.world, "ingester-zone-a"
    pods = stage.pods = await world.serve_pods()
    zones = [prepared_zone(pods, zone, wait="1s") for zone in grouped_zones(letters="ab")]
    stage.names = await world.create(zones[0], follow(zones[1], zones[0].name))
    for command, outcome in (
        ("budget ingester; set ingester 'maxUnavailable: 0'; operator one tls; hook all", ""),
        (f"annotate {a} {PAUSED} true; image v2; until 1 metric {WAITING}", ""),
        (f"annotate {a} {PAUSED} false; adopted; evict {a}-0", "403"),
        (f"set ingester 'maxUnavailable: 1'; until 201 evict {a}-0; whole", ""),
        (f"scale {a} 2 SCALE_MERGE; counts 2", "200"),
        ("5s", ""),
    ):
        assert await stage.act(command) == outcome
        pages.append(await stage.operator().metrics())
    return pages


def show_all(metrics: PolicyMetrics) -> None:
    """Have each family of a policy its series."""
    sets = (PolicySetStatus(name="db-a", replicas=3, updated_pods=1, outdated_pods=2),)
    zones = (PolicyZoneStatus(name="a", stateful_sets=sets),)
    metrics.show("db", PolicyStatus(phase="Progressing", zones=zones), ["Conflict"])
    metrics.count_batch("db", "a")
    metrics.count_delete("db", "a")
    metrics.record_duration("db", timedelta(seconds=20))
    metrics.show_completion("db", datetime(2026, 1, 1, tzinfo=UTC))


def test_dep97_panels_and_alert_of_policies_find_series() -> None:
    """DEP-97, MAZ-55: the series of a policy, where a scrape names their namespace anew."""
    alerts = [drop_comparisons(rule["expr"]) for rule in load_rules()]
    shown = [each for each in (*list_expressions(), *alerts) if of_policies(each)]
    metrics, pages = Metrics(), []
    policies = PolicyMetrics(metrics.registry, "prod", ["Conflict"])
    for _ in range(4):
        show_all(policies)
        pages.append(b"".join(metrics.render()).decode())

    assert len(shown) > 7
    assert list_empty(pages, 1_700_000_000, "prod", shown) == []
    # Of releases there are no series here: what is checked is that each is an expression.
    releases = [each for each in list_expressions() if of_releases(each)]
    found = list_empty(pages, 1_700_000_000, "prod", releases)
    assert releases
    assert [each for each in found if not each.endswith(": no series")] == []


def test_dep97_the_alert_of_health_checks_finds_series() -> None:
    [alert] = [rule["expr"] for rule in load_rules() if of_health_checks(rule["expr"])]
    metrics, pages = Metrics(), []
    gates = GateMetrics(metrics.registry)
    for _ in range(4):
        gates.show_group("MultiAZRollout/db", is_blocked=True, is_misconfigured=False)
        pages.append(b"".join(metrics.render()).decode())

    assert list_empty(pages, 1_700_000_000, "prod", [drop_comparisons(alert)]) == []


def fill_in(expression: str, namespace: str) -> str:
    """Return an expression as Grafana sends it, with all clusters and groups chosen."""
    chosen = {"cluster": ".*", "namespace": namespace, "rollout_group": ".*"}
    return re.sub(r"\$(\w+)", lambda found: chosen.get(found[1], "5m"), expression)


def drop_comparisons(expression: str) -> str:
    """Return what an alert reads, whether it is too much or not.

    Answers with a status of 500 are a fault of ours, which no script brings about.
    """
    text = re.sub(r"\s(==|[<>]=?) [\d.]+", " ", expression)
    return text.replace("unless on", "or on").replace('"5.."', '"..."')
