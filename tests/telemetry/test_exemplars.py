"""Durations of requests name a trace as their example: DEP-71."""

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest
from opentelemetry.trace import format_trace_id
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rollout_operator.kube.api import PODS
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.spans import get_trace_keys, tracing
from tests.kube.client_bench import POD, open_bench
from tests.kube.fake_api import FakeApi, reply
from tests.pods.conftest import LONG, opened
from tests.pods.one_call import confirm
from tests.pods.pod_servers import PodServers, status
from tests.recorded_spans import RecordedTraces, recorded

API: Final = "rollout_operator_kubernetes_api_client_request_duration_seconds"
TO_PODS: Final = "rollout_operator_pod_http_client_request_duration_seconds"


def read(metrics: Metrics) -> dict[str, Metric]:
    """Return the families by the library's own, strict reader."""
    text = b"".join(metrics.render_openmetrics()).decode()
    families: Iterator[Metric] = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # the library's
    return {family.name: family for family in families}


def list_examples(metrics: Metrics, name: str) -> Iterator[str]:
    for sample in read(metrics)[name].samples:
        if sample.exemplar is not None:
            yield sample.exemplar.labels["trace_id"]


def name_id(traces: RecordedTraces, name: str) -> str:
    context = traces.find(name).context
    assert context is not None
    return format_trace_id(context.trace_id)


async def test_dep71_a_request_to_the_api_server_names_its_trace() -> None:
    async with FakeApi() as server, open_bench(server) as bench:
        server.on("GET", POD, reply({}))
        await bench.client().fetch(PODS, "prod", "a-0")
        assert list(list_examples(bench.metrics, API)) == []
        with recorded() as traces, tracing.spans.begin("reconcile"):
            await bench.client().fetch(PODS, "prod", "a-0")
    assert list(list_examples(bench.metrics, API)) == [name_id(traces, "get pods")]


async def test_dep71_a_call_to_a_pod_names_its_trace() -> None:
    metrics = Metrics()
    async with PodServers(status(200)) as pods, opened(LONG, metrics) as client:
        with recorded() as traces, tracing.spans.begin("review"):
            await confirm(client, pods.endpoint(4))
    assert list(list_examples(metrics, TO_PODS)) == [name_id(traces, "call pod")]


async def test_dep71_what_is_not_sampled_is_no_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trace could not be opened."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    metrics = Metrics()
    async with PodServers(status(200)) as pods, opened(LONG, metrics) as client:
        with recorded(), tracing.spans.begin("review"):
            await confirm(client, pods.endpoint(4))
    assert list(list_examples(metrics, TO_PODS)) == []


async def test_dep71_nor_is_what_a_reconcile_left_running() -> None:
    found: list[dict[str, str]] = []
    over = asyncio.Event()

    async def request_later() -> None:
        await over.wait()
        found.append(dict(get_trace_keys()))

    with recorded():
        async with asyncio.TaskGroup() as tasks:
            with tracing.spans.begin("reconcile"):
                tasks.create_task(request_later())
                assert get_trace_keys()
            over.set()
    assert found == [{}]


def test_dep71_all_metrics_are_valid_openmetrics() -> None:
    """The reader refuses counters without `_total`, odd bounds, and a text without its end."""
    metrics = Metrics()
    metrics.begin_group('a "quoted"\\ group\n')
    metrics.http_request_duration.labels("POST", "x", "200", "false").observe(1)
    families = read(metrics)
    assert families["rollout_operator_group_reconciles"].type == "counter"
    bounds = [
        sample.labels["le"]
        for sample in families["rollout_operator_request_duration_seconds"].samples
        if sample.name.endswith("_bucket")
    ]
    assert "1.0" in bounds
