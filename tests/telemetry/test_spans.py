"""Spans of a process that does not trace: one object that does nothing."""

import pytest

from rollout_operator.model.outcome import Code, Reason
from rollout_operator.telemetry.spans import NO_SPAN, SpanRole, trace_keys, tracing
from tests.recorded_spans import recorded


def test_off_every_span_is_the_same_and_keeps_nothing() -> None:
    source = tracing.spans

    with source.begin("review", SpanRole.SERVER) as span:
        span.set_attributes({"a": 1})
        span.record_reasons([Reason(code=Code.UP_TO_DATE, text="done")])
        assert source.begin_within("call pod") is span

    assert span is NO_SPAN
    assert source.get_current() is NO_SPAN
    assert (span.is_recorded, span.log_keys, source.make_headers()) == (False, {}, {})


def test_off_an_error_passes() -> None:
    with pytest.raises(KeyError), tracing.spans.begin("review"):
        raise KeyError


async def test_a_reconcile_is_a_span_with_its_key() -> None:
    async def reconcile(key: object) -> str:
        return f"did {key}"

    with recorded() as traces:
        assert await trace_keys("reconcile a", reconcile)("ingester") == "did ingester"
        await trace_keys("reconcile b", reconcile)(("prod", "zone-a-0"))
    assert traces.attributes("reconcile a") == {"key": "ingester"}
    assert traces.attributes("reconcile b") == {"key": "prod/zone-a-0"}
    assert await trace_keys("off", reconcile)("x") == "did x"


async def test_a_reconcile_that_fails_is_a_failed_span() -> None:
    async def reconcile(key: str) -> None:
        raise ValueError(f"no {key}")

    with recorded() as traces, pytest.raises(ValueError, match="no x"):
        await trace_keys("reconcile", reconcile)("x")
    status = traces.find("reconcile").status
    assert (status.is_ok, status.description) == (False, "ValueError: no x")
