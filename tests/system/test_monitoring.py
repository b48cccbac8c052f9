"""Dashboards and alerts on the series of a real operator, as Prometheus evaluates them (DEP-97)."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from rollout_operator.model.names import PAUSED
from rollout_operator.model.policy import PolicySetStatus, PolicyStatus, PolicyZoneStatus
from rollout_operator.telemetry.extra import PolicyMetrics
from rollout_operator.telemetry.metrics import Metrics
from tests.dashboard import list_expressions
from tests.expressions import metrics_of
from tests.manifests.test_monitoring import OTHERS, load_rules
from tests.system.budgeted import create_budgets
from tests.system.guarded import Guarded, guard, prepared_zone
from tests.system.scaled import follow, scale, wait_counts
from tests.system.upstream_queries import ALERTS, DASHBOARD
from tests.system.waits import read_metric, wait_true
from tests.world.api import STATEFULSETS
from tests.world.budgets import ZONE_BUDGETS, evict, grouped_zones, zone_budget
from tests.world.clients import CREATED
from tests.world.hooks import BUDGET_HOOKS, Registration
from tests.world.promql import Query, Scrape, evaluate
from tests.world.webpods import WebPods
from tests.world.world import World

pytestmark = pytest.mark.controlplane

STEP: Final = 30
GROUP: Final = "ingester"
BUDGET: Final = "ingester"
POLICIES: Final = "rollout_operator_multiaz_"
RELEASES: Final = "rollout_operator_release_"
WAITING: Final = "rollout_operator_group_waiting"


class Scraper:
    """Prometheus on the operator: each page half a minute after the one before."""

    def __init__(self, guarded: Guarded) -> None:
        self._guarded = guarded
        self._start = int(time.time())
        self.pages: list[str] = []

    async def scrape(self) -> None:
        """Take one page."""
        self.pages.append(await self._guarded.operator.metrics())

    def list_empty(self, expressions: list[str]) -> list[str]:
        """Return the expressions that are none, or that return no series at any time."""
        return list_empty(self.pages, self._start, self._guarded.world.namespace, expressions)


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
    """Return whether an expression reads series that only a process with policies has."""
    return any(name.startswith(POLICIES) for name in metrics_of(expression))


def of_releases(expression: str) -> bool:
    """Return whether an expression reads series that only a process with releases has."""
    return any(name.startswith(RELEASES) for name in metrics_of(expression))


async def test_dep97_dashboards_and_alerts_find_series(world: World) -> None:
    """DEP-97, DEP-74: after a rollout, an eviction and a downscale; ours and upstream's."""
    pods = await world.serve_pods()
    await create_budgets(world, [zone_budget(BUDGET, {"rollout-group": GROUP}, maxUnavailable=0)])
    zones = list_zones(pods)
    hooks = (*Registration(port=0).hooks, *BUDGET_HOOKS)
    guarded = await guard(world, *zones, pods=pods, registration={"hooks": hooks})
    scraper = Scraper(guarded)
    await scraper.scrape()

    await play(guarded, scraper)

    alerts = [drop_comparisons(rule["expr"]) for rule in load_rules()]
    own = [each for each in alerts if not metrics_of(each) & OTHERS]
    assert len(own) == len(alerts) - 2
    everything = (*list_expressions(), *own)
    shown = [each for each in everything if not (of_policies(each) or of_releases(each))]
    assert scraper.list_empty(shown) == []
    assert scraper.list_empty([*DASHBOARD, *ALERTS]) == []


def show_all(metrics: PolicyMetrics, name: str = "db") -> None:
    """Have each family of a policy its series."""
    sets = (PolicySetStatus(name="db-a", replicas=3, updated_pods=1, outdated_pods=2),)
    zones = (PolicyZoneStatus(name="a", stateful_sets=sets),)
    metrics.show(name, PolicyStatus(phase="Progressing", zones=zones), ["Conflict"])
    metrics.count_batch(name, "a")
    metrics.count_delete(name, "a")
    metrics.record_duration(name, timedelta(seconds=20))
    metrics.show_completion(name, datetime(2026, 1, 1, tzinfo=UTC))


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


def list_zones(pods: WebPods) -> list[ZoneSpec]:
    """Return zones under a budget, whose pods are prepared, and the later of which follow."""
    zones = [prepared_zone(pods, zone, wait="1s") for zone in grouped_zones(GROUP, letters="ab")]
    return [zones[0], follow(zones[1], zones[0].name)]


async def play(guarded: Guarded, scraper: Scraper) -> None:
    """Roll out, evict and scale down, with scrapes in between."""
    world, names = guarded.world, [f"{GROUP}-zone-{letter}" for letter in "ab"]
    await pause(world, names[0], "true")
    await world.set_image(names[:1], "v2")

    async def is_paused() -> bool:
        held = {"rollout_group": GROUP, "reason": "paused"}
        return await read_metric(guarded.operator, WAITING, **held) == 1

    await wait_true("paused", is_paused)
    await scraper.scrape()
    await pause(world, names[0], "false")
    await world.wait_adopted(names)
    assert (await evict(world.api, world.namespace, f"{names[0]}-0")).status not in CREATED
    await world.patch(ZONE_BUDGETS, BUDGET, {"spec": {"maxUnavailable": 1}})
    await scraper.scrape()

    async def is_evicted() -> bool:
        return (await evict(world.api, world.namespace, f"{names[0]}-0")).status in CREATED

    await wait_true("evicted", is_evicted)
    await world.wait_ready(names)
    await scale(guarded, names[0], 2)
    await wait_counts(world, dict.fromkeys(names, 2))
    for _ in range(2):
        await scraper.scrape()


async def pause(world: World, name: str, value: str) -> None:
    """Set the annotation of a zone that pauses it."""
    await world.patch(STATEFULSETS, name, {"metadata": {"annotations": {PAUSED: value}}})


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
