"""The admin port of a running operator: pages, metrics, and which cluster a request is for."""

import json
from collections.abc import Mapping
from typing import Final

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from rollout_lab.zones import three_zones

from tests.system.grants import list_unneeded, shipped_grants
from tests.system.starts import running
from tests.system.waits import read_metric, wait_line, wait_reason, wait_true
from tests.world.budgets import install_kinds
from tests.world.faults import Cut, verbs
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# fmt: off
GROUP_BUCKETS: Final = [
    "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf",
]
# fmt: on
REQUEST_BUCKETS: Final = [*GROUP_BUCKETS[:-1], "25", "50", "100", "+Inf"]
SIZE_BUCKETS: Final = [*(float(4**power) for power in range(1, 16)), float("inf")]
CLUSTER: Final = "X-Cluster"


class Shape(msgspec.Struct, frozen=True):
    """What dashboards and alerts rely on in one metric."""

    type: str
    labels: tuple[str, ...]
    buckets: tuple[str, ...] = ()


_GROUP: Final = ("rollout_group",)
_ROUTE: Final = ("method", "route")
# METR-01 to METR-22, name, type and labels: dashboards select by them, so none may change.
SPECIFIED: Final[Mapping[str, Shape]] = {
    "group_reconciles_total": Shape("counter", _GROUP),
    "group_reconciles_failed_total": Shape("counter", _GROUP),
    "group_reconcile_duration_seconds": Shape("histogram", _GROUP, tuple(GROUP_BUCKETS)),
    "last_successful_group_reconcile_timestamp_seconds": Shape("gauge", _GROUP),
    "request_duration_seconds": Shape(
        "histogram", ("method", "route", "status_code", "ws"), tuple(REQUEST_BUCKETS)
    ),
    "request_message_bytes": Shape("histogram", _ROUTE),
    "response_message_bytes": Shape("histogram", _ROUTE),
    "inflight_requests": Shape("gauge", _ROUTE),
    "client_invalid_cluster_validation_label_requests_total": Shape(
        "counter", ("method", "protocol", "request_cluster")
    ),
    "server_invalid_cluster_validation_label_requests_total": Shape(
        "counter",
        (
            "cluster_validation_label",
            "method",
            "protocol",
            "request_cluster_validation_label",
        ),
    ),
    "kubernetes_api_client_request_duration_seconds": Shape(
        "histogram", ("method", "path", "status_code"), tuple(REQUEST_BUCKETS)
    ),
    "kubernetes_api_client_rate_limited_requests_total": Shape("counter", ("api_group",)),
}
# Without a request of the kind that they count they have a head, and no series.
WITHOUT_SERIES: Final = frozenset(
    {
        "client_invalid_cluster_validation_label_requests_total",
        "server_invalid_cluster_validation_label_requests_total",
    }
)
# METR-53 of every call that a rollout with a lost answer makes.
API_PATHS: Final = frozenset(
    {
        ("GET", "core/v1/pods collection"),
        ("GET", "core/v1/pods object"),
        ("DELETE", "core/v1/pods object"),
        ("GET", "apps/v1/statefulsets collection"),
        ("GET", "rollout-operator.grafana.com/v1/zoneawarepoddisruptionbudgets collection"),
        ("GET", "coordination.k8s.io/v1/leases object"),
        ("POST", "coordination.k8s.io/v1/leases collection"),
        ("PATCH", "coordination.k8s.io/v1/leases object"),
        # Whether there are any, while it obeys none.
        ("GET", "rollout.grafana.com/v1alpha1/multiazrollouts collection"),
        ("POST", "events.k8s.io/v1/events collection"),
    }
)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the metrics page."""

    name: str
    labels: Mapping[str, str]
    value: float


def _parse(text: str) -> tuple[dict[str, str], list[Series]]:
    """Return the type of each metric by its name on the page, and all series."""
    types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
    series = [
        Series(name=sample.name, labels=sample.labels, value=sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    return types, series


# What each page answers, and a word of it.
PAGES: Final = {
    "/ready": (200, "ready\n"),
    "/livez": (200, "alive\n"),
    "/status": (200, 'group "ingester"'),
    "/": (200, 'group "ingester"'),
    "/status.json": (200, '"name":"ingester"'),
    "/status.schema.json": (200, "GroupDescription"),
    "/reasons": (200, "several_zones_not_ready"),
    "/debug/pprof/": (200, "no Go profiler"),
    "/debug/pprof/heap": (200, "no Go profiler"),
    "/debug/pprof": (200, "no Go profiler"),
    "/metrics": (200, "rollout_operator_group_reconciles_total"),
    "/nothing": (404, ""),
    "/metrics/": (404, ""),
    "/admission/no-downscale": (404, ""),
    "/debug/": (404, ""),
}


async def test_dep67_what_the_port_shows_before_and_after_a_rollout(world: World) -> None:
    """DEP-13, DEP-20, DEP-67 to DEP-69, DEP-72, METR-01..22, METR-50, METR-51, METR-53, METR-02.

    METR-10: names, types, labels, buckets, values on dashboards; none for a lost group.

    HTTP-01, HTTP-04, SEED-061 to SEED-063, CLUS-01: pages; a second operator on the port ends;
    without a flag no cluster is demanded. RATE-07: `X-Cluster: <namespace>` on all requests.
    """
    await install_kinds(world.api)
    operator = await world.operator("-kubernetes.client-timeout=3s", is_through_proxy=True)
    types, series = _parse(await operator.metrics())
    assert not [one for one in series if "rollout_group" in one.labels], "no group is invented"
    assert types["rollout_operator_build_info"] == "gauge"
    assert types["process_resident_memory_bytes"] == "gauge"
    await _assert_port_is_taken(world, operator)

    names = await world.create(*three_zones(replicas=1))
    world.proxy.add(verbs("delete", "pods"), Cut(), times=1)
    await world.roll(names, "v2")
    await wait_reason(operator, "ingester", "up_to_date")
    await operator.fetch("/ready")

    async def is_renewed() -> bool:
        lines = (await operator.metrics()).splitlines()
        return any("leases object" in line and '"PATCH"' in line for line in lines)

    await wait_true("without a Lease that was renewed", is_renewed)
    await operator.metrics()  # what a scrape itself counts is seen by the next
    text = await operator.metrics()
    _check_metrics(text, *_parse(text))
    assert await _deleted(operator, "accepted") == 3
    assert await _deleted(operator, "refused") == 0
    await _assert_pages(operator)
    assert (await _fetch(operator, "/nothing", {CLUSTER: "other"}))[0] == 404
    assert await _rejected(operator, "other") is None

    sent = world.proxy.sent
    assert {one.headers.get(CLUSTER) for one in sent} == {world.namespace}
    assert {one.headers["Authorization"] for one in sent} == {f"Bearer {world.token}"}
    requested = {(one.request.verb, one.request.resource) for one in sent}
    budgeted = {("patch", "pods"), ("patch", "zoneawarepoddisruptionbudgets/status")}
    unused = {*budgeted, ("patch", "events"), *await list_unneeded(world)}
    assert requested == shipped_grants() - unused, "there is no budget, and no Event goes on"
    agents = {one.headers["User-Agent"] for one in sent}
    assert {agent.partition("/")[0] for agent in agents} == {"rollout-operator"}

    for name in names:
        await world.label(name, **{"rollout-group": "store"})
    await wait_reason(operator, "store", "3 pods of 3 zones")

    async def is_lost() -> bool:
        return 'rollout_group="ingester"' not in await operator.metrics()

    await wait_true("without the series of a group that is gone", is_lost)


async def _assert_port_is_taken(world: World, operator: OperatorProcess) -> None:
    """HTTP-04: the second one ends with 1 and names the port; the first one works on."""
    second = OperatorProcess(world.launch(), name="second")
    second.port = operator.port
    async with second:
        assert await second.wait_end() == 1
    assert f"-server.port: port {operator.port} is in use" in second.log_lines()[-1]
    assert await operator.is_ready()


async def _assert_pages(operator: OperatorProcess) -> None:
    for path, (status, what) in PAGES.items():
        code, text = await operator.fetch(path)
        assert (path, code) == (path, status)
        assert what in text, path
        async with aiohttp.ClientSession() as client:
            url = f"http://127.0.0.1:{operator.port}{path}"
            async with client.post(url, data=b"{}") as answer:
                assert (path, answer.status) == (path, 405 if status == 200 else 404)


def _check_metrics(text: str, types: Mapping[str, str], series: list[Series]) -> None:
    for short, shape in SPECIFIED.items():
        _check_shape(f"rollout_operator_{short}", shape, types, series)
    assert "_created" not in text
    assert 'le="1"' in text
    assert 'le="1.0"' not in text
    seen = {
        (one.labels["method"], one.labels["path"])
        for one in series
        if one.name.endswith("api_client_request_duration_seconds_count")
    }
    assert seen == API_PATHS
    codes = {one.labels["status_code"] for one in series if "api_client_request" in one.name}
    assert {"200", "error"} <= codes
    values = {one.name: one.value for one in series if one.labels == {"rollout_group": "ingester"}}
    short_values = {name.removeprefix("rollout_operator_"): one for name, one in values.items()}
    assert short_values["group_reconciles_total"] >= 3
    passes = short_values["group_reconcile_duration_seconds_count"]
    # A page is read in pieces, and a pass may begin or end in between.
    assert abs(short_values["group_reconciles_total"] - passes) <= 1
    assert short_values["last_successful_group_reconcile_timestamp_seconds"] > 1e9
    assert {one.labels["route"] for one in series if "route" in one.labels} == {"ready", "metrics"}


VALIDATION: Final = "-server.cluster-validation.http"


_OURS: Final = "<ours>"
# A path, the headers sent, and what is answered when validation is on.
VALIDATED: Final[tuple[tuple[str, dict[str, str], int], ...]] = (
    ("/nothing", {}, 511),
    ("/nothing", {CLUSTER: "other"}, 511),
    ("/nothing", {CLUSTER: _OURS}, 404),
    ("/nothing", {"User-Agent": "curl/8"}, 404),
    ("/free/thing", {}, 404),
    ("/metrics", {}, 200),
    ("/ready", {CLUSTER: "other"}, 200),
    ("/livez", {}, 200),
    ("/status", {}, 200),
    ("/status.json", {}, 200),
    ("/reasons", {}, 200),
    ("/debug/pprof/heap", {}, 200),
)


async def test_clus01_requests_for_another_cluster(world: World) -> None:
    """CLUS-01, CLUS-02, DEP-20, FLAG-22, FLAG-23, FLAG-24, FLAG-25: 511 says why.

    Soft: the request is answered, logged and counted.
    """
    launch = world.launch(
        f"{VALIDATION}.enabled",
        f"{VALIDATION}.excluded-paths=free",
        f"{VALIDATION}.excluded-user-agents=^curl/.*",
    )
    async with running(launch) as operator:
        for path, headers, status in VALIDATED:
            sent = {key: value.replace(_OURS, world.namespace) for key, value in headers.items()}
            code, text = await _fetch(operator, path, sent)
            assert (path, headers, code) == (path, headers, status)
            if code == 511:
                wanted = _word_rejection(sent.get(CLUSTER, ""), world.namespace)
                assert json.loads(text) == {**wanted, "route": "other"}
        assert await _rejected(operator, "") == 1
        assert await _rejected(operator, "other") == 1
        assert await _rejected(operator, world.namespace) is None
    launch = world.launch(f"{VALIDATION}.enabled", f"{VALIDATION}.soft-validation")
    async with running(launch) as operator:
        assert (await _fetch(operator, "/nothing", {CLUSTER: "other"}))[0] == 404
        await wait_line(operator, "wrong cluster validation label", "other", "rejected=false")
        assert await _rejected(operator, "other") == 1


def _check_shape(name: str, shape: Shape, types: Mapping[str, str], series: list[Series]) -> None:
    assert types.get(name) == shape.type, name
    suffix = "_count" if shape.type == "histogram" else ""
    found = [one for one in series if one.name == f"{name}{suffix}"]
    if name.removeprefix("rollout_operator_") in WITHOUT_SERIES:
        assert found == [], f"{name} has series without a cause"
        return
    assert found, f"{name} has no series"
    assert {tuple(sorted(one.labels)) for one in found} == {tuple(sorted(shape.labels))}
    if shape.type != "histogram":
        return
    edges = [
        one.labels["le"]
        for one in series
        if one.name == f"{name}_bucket"
        and {key: value for key, value in one.labels.items() if key != "le"} == found[0].labels
    ]
    if shape.buckets:
        assert edges == list(shape.buckets), name
    else:
        assert [float(edge) for edge in edges] == SIZE_BUCKETS, name


async def _fetch(
    operator: OperatorProcess, path: str, headers: Mapping[str, str]
) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{operator.port}{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.text()


def _word_rejection(wrong: str, ours: str) -> dict[str, str]:
    label = (
        f'wrong cluster validation label "{wrong}"' if wrong else "empty cluster validation label"
    )
    text = f"rejected request with {label} - it should be one of [{ours}]"
    return {"cluster_validation_error_message": text}


async def _deleted(operator: OperatorProcess, outcome: str) -> float | None:
    return await read_metric(operator, "rollout_operator_pods_deleted_total", outcome=outcome)


async def _rejected(operator: OperatorProcess, requested: str) -> float | None:
    return await read_metric(
        operator,
        "rollout_operator_server_invalid_cluster_validation_label_requests_total",
        request_cluster_validation_label=requested,
    )
