"""Evictions of pods that the cache does not show: what they may cost (LI-09)."""

import asyncio

from tests.guards.arbiter_bench import name_of, part, rule
from tests.virtual_time import elapsed, in_virtual_time
from tests.web.eviction_world import court


@in_virtual_time
async def test_li09_pods_that_never_were_cost_a_share_of_the_rate_limit() -> None:
    """LI-09: who asks for more of them is refused, to be tried again; known pods are no part."""
    made = court(qps=5.0)
    asked = [made.ask("a-0", name=f"none-{number}") for number in range(200)]
    begin = elapsed()
    answers = await asyncio.gather(*asked)
    allowed = [one for one in answers if one.startswith("allow")]
    assert len(allowed) == len(made.calls) <= 5 + 0.5 * (elapsed() - begin).total_seconds() + 1
    assert {one[:4] for one in answers if one not in allowed} == {"429 "}
    assert await made.ask("a-1") == "allow"


@in_virtual_time
async def test_li09_reviews_of_one_pod_share_a_read() -> None:
    """LI-09: beyond the burst, who waits for the next read gets its answer with all others."""
    made = court(qps=5.0)
    answers = await asyncio.gather(*(made.ask("a-0", name="none") for _ in range(100)))
    assert all(one.startswith("allow") for one in answers)
    assert len(made.calls) < 10


@in_virtual_time
async def test_li09_a_dry_run_of_a_pod_that_does_not_run_reads_nothing() -> None:
    """LI-09: it lets nothing go."""
    made = court(rule())
    held = made.here.client.objects["pods", name_of("a-0")]
    status = {**part(held, "status"), "phase": "Pending"}
    made.here.client.put("pods", {**held, "status": status})
    made.process.sync()
    assert (await made.ask("a-0", dryRun=True)).startswith("allow")
    assert made.calls == []
