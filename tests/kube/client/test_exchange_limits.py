"""How requests of a client take their tokens (RATE-02, RATE-06, METR-22, D-65)."""

from datetime import timedelta

import pytest

from rollout_operator.kube.api import PODS
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.model.names import Throttled, Unreachable
from tests.kube.client_bench import DELETE, FETCH, POD, POD_LIST, SHORT, THIS, WATCH, Bench, pods
from tests.kube.fake_api import cut, reply, stream


async def test_rate_02_each_request_takes_a_token_but_watches(bench: Bench) -> None:
    bench.server.on("GET", POD, reply({}))
    bench.server.on("GET", POD_LIST, stream([]))
    client = bench.client(RateLimiter(0.001, 1), SHORT)
    await FETCH.run(client)
    await WATCH.run(client)
    with pytest.raises(Throttled) as caught:
        await DELETE.run(client)
    assert len(bench.server.requests) == 2, "a throttled request was sent"
    assert caught.value.call == "delete pods/a-0 in namespace prod"
    assert 'rate limiter for Kubernetes API group "core"' in str(caught.value)
    assert bench.metrics.api_rate_limited.labels("core")._value.get() == 1  # METR-22


async def test_rate_02_a_read_whose_connection_breaks_is_repeated_with_a_token(
    bench: Bench,
) -> None:
    """FP-13: a load balancer closes idle connections; aiohttp would repeat it past our limits."""
    bench.server.on("GET", POD, reply({}), cut(), reply({}), cut())
    client = bench.client(RateLimiter(0.001, 4), SHORT)
    await FETCH.run(client)
    await FETCH.run(client)
    assert len(bench.server.requests) == 3, "the second read was sent twice"
    with pytest.raises(Throttled):
        await FETCH.run(client)
    assert len(bench.server.requests) == 4, "its repetition would have been the fifth"


async def test_fp_13_a_watch_whose_connection_breaks_is_left_to_its_caller(bench: Bench) -> None:
    bench.server.on("GET", POD_LIST, cut())
    with pytest.raises(Unreachable):
        await WATCH.run(bench.client())
    assert len(bench.server.requests) == 1


async def test_si_09_a_delete_is_not_sent_later_than_what_it_rests_on(bench: Bench) -> None:
    """The next token is due in ten seconds: within the time of a write, but the read expires."""
    bench.server.on("DELETE", POD, reply({}))
    client = bench.client(RateLimiter(0.1, 1))
    await DELETE.run(client)
    with pytest.raises(Throttled):
        await client.delete(
            PODS, "prod", "a-0", precondition=THIS, sent_within=timedelta(seconds=5)
        )
    assert len(bench.server.requests) == 1


async def test_rate_06_waiting_for_a_token_is_not_measured_as_latency(bench: Bench) -> None:
    bench.server.on("GET", POD, reply({}))
    client = bench.client(RateLimiter(5, 1))
    await FETCH.run(client)
    await FETCH.run(client)  # waits for 0.2 s
    total = bench.metrics.api_request_duration.labels("core/v1/pods object", "GET", "200")._sum
    assert total.get() < 0.15


async def test_d_65_all_clients_of_a_process_share_its_tokens(bench: Bench) -> None:
    bench.server.on("GET", POD, reply({}))
    limits = RateLimiter(0.001, 1)
    await FETCH.run(bench.client(limits, SHORT))
    with pytest.raises(Throttled):
        await FETCH.run(bench.client(limits, SHORT))


async def test_si_09_a_read_whose_turn_was_waited_for_waits_no_more(bench: Bench) -> None:
    """What it shows is as old as the end of that wait."""
    bench.server.on("GET", POD_LIST, reply(pods(1)))
    client = bench.client(RateLimiter(0.001, 1), SHORT)
    await client.wait_turn(PODS, "prod")
    with pytest.raises(Throttled):
        await client.fetch_page(PODS, "prod")
    page = await client.fetch_page(PODS, "prod", has_turn=True)
    assert len(page.items) == 1
