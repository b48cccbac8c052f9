"""A rollout of the real operator as a collector of traces gets it."""

from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from rollout_lab.zones import three_zones

from rollout_operator.model.outcome import Code
from tests.system.starts import running
from tests.trace_collector import open_collector
from tests.world.world import World

pytestmark = pytest.mark.controlplane

END_LIMIT: Final = timedelta(seconds=45)


async def test_trace01_a_rollout_is_traced(world: World) -> None:
    """TRACE-01, D-40: deletes stand below their reconcile, which says what holds the group."""
    names = await world.create(*three_zones(replicas=1))
    with open_collector() as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        async with running(replace(world.launch(), env=environ)) as operator:
            await world.roll(names, "v2")
            # What has not been sent by then is: the process ends only after that.
            assert await operator.terminate(END_LIMIT) == 0
    spans = {span.span_id: span for span in collector.spans()}
    deletes = [span for span in spans.values() if span.name == "delete pods"]
    assert len(deletes) == len(names)
    assert {spans[span.parent_span_id].name for span in deletes} == {"reconcile rollout"}
    reasons = {
        read_attributes(span)["reason"]
        for span in spans.values()
        if "reason" in read_attributes(span)
    }
    assert Code.UP_TO_DATE in reasons
    assert {Code.UP_TO_DATE} < reasons <= {*Code}, "and what it waited for meanwhile"


def read_attributes(span: Span) -> dict[str, str]:
    """Return the texts among the attributes of a span."""
    return {one.key: one.value.string_value for one in span.attributes}
