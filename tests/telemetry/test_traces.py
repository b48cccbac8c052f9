"""What a trace holds, reviews, reconciles, calls and reasons, and what names it (DEP-71)."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

import pytest
from msgspec.structs import replace
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rollout_operator.kube.api import PODS
from rollout_operator.model.names import GroupName, NotFound
from rollout_operator.model.outcome import Code, Plan, Reason, Verdict
from rollout_operator.model.scaling import Review, Unusable, Version
from rollout_operator.telemetry.metrics import GroupStates, Metrics
from rollout_operator.telemetry.spans import NO_SPAN, SpanRole, get_trace_keys, trace_keys, tracing
from rollout_operator.telemetry.traces import LONGEST_TEXT, QUIET, RarelyLogged
from rollout_operator.telemetry.tracing import traced
from rollout_operator.web.dispatch import Deadline, Reviewer
from tests.fakes_clock import FakeClock
from tests.kube.fake_api import POD, FakeApi, refuse, reply
from tests.pods.pod_servers import PodServers, status
from tests.pods.stage import LONG, opened
from tests.recorded_spans import RecordedTraces, recorded
from tests.trace_collector import open_collector
from tests.web.served import PATH, ScriptedHook

REVIEW = Review(
    version=Version.V1,
    uid="u",
    operation="UPDATE",
    resource="statefulsets",
    subresource="scale",
    namespace="prod",
    name="zone-b",
    old=Unusable("absent"),
    new=Unusable("absent"),
)
WAITS = Reason(code=Code.ZONE_NOT_READY, text="zone-b has 2 of 3 pods ready", zone="zone-b")
PAUSED = Reason(code=Code.PAUSED_ZONE_NOT_READY, text="zone-c is paused", zone="zone-c")


# --- reviews -----------------------------------------------------------------------------------


async def answer(verdict: Verdict) -> None:
    hook = ScriptedHook(verdict=verdict)
    reviewer = Reviewer(hooks={PATH: hook}, request_timeout=LONG, clock=FakeClock())
    await reviewer.answer(PATH, REVIEW, Deadline(LONG, LONG))


async def test_a_review_is_a_span_with_its_reason(lines: list[str]) -> None:
    """TRACE-04: and its log line names the trace."""
    with recorded() as traces:
        await answer(Verdict(is_allowed=False, reason=WAITS))
    span = traces.find("review")
    assert span.kind is SpanKind.SERVER
    assert span.status.status_code is StatusCode.UNSET, "a denial is no error"
    known = traces.attributes("review")
    assert known["hook"] == PATH
    assert (known["allowed"], known["reason"]) == (False, "zone_not_ready")
    assert known["why"] == "zone-b has 2 of 3 pods ready"
    (line,) = lines
    assert f"trace_id={name_id(traces, 'review')}" in line


async def test_a_review_that_is_not_sampled_is_not_kept(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DEP-12: the SDK's own variables decide."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with recorded() as traces:
        await answer(Verdict(is_allowed=False, reason=WAITS))
    assert traces.names() == []
    assert "trace_id" not in lines[0]


# --- reconciles --------------------------------------------------------------------------------


def test_the_reasons_of_a_plan_are_those_of_its_span() -> None:
    """D-40: the same code and sentence as in log, metric and page."""
    states = GroupStates(Metrics(), FakeClock())
    with recorded() as traces, tracing.spans.begin("reconcile"):
        states.post(Plan(group=GroupName("g"), waits=(WAITS, PAUSED)))
    assert traces.attributes("reconcile") == {
        "reason": "zone_not_ready",
        "why": "zone-b has 2 of 3 pods ready",
        "zone": "zone-b",
    }
    events = [dict(event.attributes or {}) for event in traces.find("reconcile").events]
    assert [event["reason"] for event in events] == ["zone_not_ready", "paused_zone_not_ready"]


def test_a_long_text_is_cut() -> None:
    """SEC-13: tenants may write 256 KiB."""
    with recorded() as traces, tracing.spans.begin("x") as span:
        span.set_attributes({"a": "b" * (LONGEST_TEXT + 1)})
        span.record_reasons(
            [Reason(code=Code.PAUSED_ZONE_NOT_READY, text="c" * (LONGEST_TEXT + 1))]
        )
    known = traces.attributes("x")
    assert (known["a"], known["why"]) == ("b" * LONGEST_TEXT, "c" * LONGEST_TEXT)


# --- calls -------------------------------------------------------------------------------------


async def test_a_request_to_the_api_server_is_a_span_inside() -> None:
    """DEP-71: only that of a reconcile; watches and the Lease would be most of what is sent."""
    async with FakeApi() as api:
        api.on("GET", POD, reply({}), reply({}), refuse(404, "NotFound", "gone"))
        with recorded() as traces:
            await api.client().fetch(PODS, "prod", "a-0")
        assert (traces.names(), list_examples(api.metrics, API)) == ([], [])
        with recorded() as traces, tracing.spans.begin("reconcile"):
            await api.client().fetch(PODS, "prod", "a-0")
        assert list_examples(api.metrics, API) == [name_id(traces, "get pods")]
        assert traces.is_within("get pods", "reconcile")
        assert traces.find("get pods").kind is SpanKind.CLIENT
        assert traces.attributes("get pods") == {
            "http.request.method": "GET",
            "url.path": POD,
            "http.response.status_code": 200,
        }
        with recorded() as traces, tracing.spans.begin("reconcile"), pytest.raises(NotFound):
            await api.client().fetch(PODS, "prod", "a-0")
        assert traces.attributes("get pods")["http.response.status_code"] == 404
    assert all("traceparent" not in request.headers for request in api.requests)


async def test_what_a_reconcile_left_running_is_not_traced() -> None:
    """DEP-71: such as the watch of an object that a zone mirrors, which it would hold for ever."""
    over = asyncio.Event()
    async with FakeApi() as api:
        api.on("GET", POD, reply({}))

        async def fetch_later() -> None:
            await over.wait()
            await api.client().fetch(PODS, "prod", "a-0")
            found.append(dict(get_trace_keys()))

        found: list[dict[str, str]] = []
        with recorded() as traces:
            async with asyncio.TaskGroup() as tasks:
                with tracing.spans.begin("reconcile"):
                    tasks.create_task(fetch_later())
                    assert get_trace_keys()
                over.set()
    assert (traces.names(), found) == (["reconcile"], [{}])


async def test_a_call_to_a_pod_carries_its_trace() -> None:
    """SEC-11, DEP-71: that and nothing else is added to the request; the metric names it."""
    metrics = Metrics()
    async with PodServers(status(200)) as pods, opened(LONG, metrics) as client:
        with recorded() as traces, tracing.spans.begin("review"):
            pod = replace(pods.endpoint(4, path="a/b"), query="token=secret")
            assert await client.prepare_all([pod]) == []
        assert await client.prepare_all([pods.endpoint(4, path="a/b")]) == []
    assert list_examples(metrics, TO_PODS) == [name_id(traces, "call pod")]
    traced_lines, plain = (seen.head.decode().split("\r\n")[1:] for seen in pods.seen)
    context = traces.find("call pod").context
    assert context is not None
    ids = f"{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}"
    (header,) = set(traced_lines) - set(plain)
    assert header.startswith(f"traceparent: 00-{ids}-")
    assert traces.is_within("call pod", "review")
    assert traces.attributes("call pod") == {
        "pod": "zone-a-4",
        "http.request.method": "POST",
        "url.path": "/a/b",
        "http.response.status_code": 200,
    }


async def test_other_propagators_than_ours_send_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """DEP-71: nor is what is not sampled an example, since its trace could not be opened."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    metrics = Metrics()
    async with PodServers(status(200)) as pods, opened(LONG, metrics) as client:
        with recorded({"OTEL_PROPAGATORS": "none"}), tracing.spans.begin("review"):
            assert await client.prepare_all([pods.endpoint(4)]) == []
        assert list_examples(metrics, TO_PODS) == []
        monkeypatch.delenv("OTEL_TRACES_SAMPLER")
        with recorded({"OTEL_PROPAGATORS": "none"}), tracing.spans.begin("review"):
            assert await client.prepare_all([pods.endpoint(4)]) == []
    assert not any(b"traceparent" in seen.head for seen in pods.seen)


async def test_a_call_without_an_answer_is_a_failed_span() -> None:
    async with PodServers(status(200)) as pods, opened(LONG, Metrics()) as client:
        endpoint = pods.endpoint(4)
    async with opened(LONG, Metrics()) as client:
        with recorded() as traces, tracing.spans.begin("review"):
            [error] = await client.prepare_all([endpoint])
    span = traces.find("call pod")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == f"PodError: {error}"
    assert "http.response.status_code" not in traces.attributes("call pod")


# --- examples ---------------------------------------------------------------------------------

API: Final = "rollout_operator_kubernetes_api_client_request_duration_seconds"
TO_PODS: Final = "rollout_operator_pod_http_client_request_duration_seconds"


def read(metrics: Metrics) -> dict[str, Metric]:
    """Return the families by the library's own, strict reader."""
    text = b"".join(metrics.render_openmetrics()).decode()
    families: Iterator[Metric] = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # the library's
    return {family.name: family for family in families}


def list_examples(metrics: Metrics, name: str) -> list[str]:
    found = (sample.exemplar for sample in read(metrics)[name].samples)
    return [exemplar.labels["trace_id"] for exemplar in found if exemplar is not None]


def name_id(traces: RecordedTraces, name: str) -> str:
    context = traces.find(name).context
    assert context is not None
    return format_trace_id(context.trace_id)


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


# --- off, and around reconciles ----------------------------------------------------------------


def test_off_every_span_is_the_same_and_keeps_nothing_and_errors_pass() -> None:
    source = tracing.spans

    with source.begin("review", SpanRole.SERVER) as span:
        span.set_attributes({"a": 1})
        span.record_reasons([Reason(code=Code.UP_TO_DATE, text="done")])
        assert source.begin_within("call pod") is span

    assert span is NO_SPAN
    assert source.get_current() is NO_SPAN
    assert (span.is_recorded, span.log_keys, source.make_headers()) == (False, {}, {})
    with pytest.raises(KeyError), source.begin("review"):
        raise KeyError


async def test_a_reconcile_is_a_span_with_its_key_and_fails_with_it() -> None:
    async def reconcile(key: object) -> str:
        if key == "x":
            raise ValueError(f"no {key}")
        return f"did {key}"

    assert await trace_keys("off", reconcile)("y") == "did y"
    with recorded() as traces:
        assert await trace_keys("reconcile a", reconcile)("ingester") == "did ingester"
        await trace_keys("reconcile b", reconcile)(("prod", "zone-a-0"))
        with pytest.raises(ValueError, match="no x"):
            await trace_keys("reconcile c", reconcile)("x")
    assert traces.attributes("reconcile a") == {"key": "ingester"}
    assert traces.attributes("reconcile b") == {"key": "prod/zone-a-0"}
    status = traces.find("reconcile c").status
    assert (status.is_ok, status.description) == (False, "ValueError: no x")


# --- sending -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "rollout-operator"),
        ({"JAEGER_SERVICE_NAME": "old"}, "old"),
        ({"OTEL_SERVICE_NAME": "mine", "JAEGER_SERVICE_NAME": "old"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs"}, "theirs"),
    ],
)
def test_a_collector_gets_the_spans_at_the_end(
    environ: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRACE-02, PROC-05: what has not been sent by then is."""
    with open_collector() as collector:
        requested = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **environ}
        for key, value in requested.items():
            monkeypatch.setenv(key, value)
        with traced(requested), tracing.spans.begin("review"):
            pass
    assert collector.services() == {name}
    assert [span.name for span in collector.spans()] == ["review"]


def test_an_unreachable_collector_is_reported_once_in_a_while() -> None:
    """TRACE-03: and delays nothing."""
    now = 1.0
    rarely = RarelyLogged(lambda: now)
    record = logging.makeLogRecord({})
    assert [rarely.filter(record) for _ in range(3)] == [True, False, False]
    now += QUIET.total_seconds()
    assert rarely.filter(record)
