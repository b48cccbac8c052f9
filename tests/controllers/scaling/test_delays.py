"""Delayed downscales from the annotation to the calls: T-05, DELAY-01 to 14."""

from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise

import pytest

from rollout_operator.model.outcome import Code
from rollout_operator.planning.delays import SOON_TRIES
from tests.controllers.fake_client import Json
from tests.controllers.scaling_bench import GROUP, HOUR, SECOND, Bench, pass_time
from tests.controllers.scaling_objects import Store, delayed
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import part

DUE = timedelta(minutes=70)
HALF = timedelta(minutes=30)


def calls(zone: str, *, stay: str = "", post: str = "") -> list[str]:
    """Return calls by ordinals: those that un-prepare, and those that prepare."""
    called_pods = [f"DELETE zone-{zone}-{ordinal}" for ordinal in stay]
    return sorted([*called_pods, *(f"POST zone-{zone}-{ordinal}" for ordinal in post)])


@pytest.mark.parametrize(
    ("one", "scale", "prepared", "called", "patched"),
    [
        pytest.param(
            delayed("b", 5), 3, {4: DUE, 3: DUE}, calls("b", stay="012", post="34"), ["zone-b 3"],
            id="row 1",
        ),
        pytest.param(
            delayed("b", 5), 1, {4: DUE, 3: 75 * SECOND * 60, 2: HALF, 1: 75 * SECOND * 60},
            calls("b", stay="0", post="1234"), ["zone-b 3"], id="row 4",
        ),
        pytest.param(
            delayed("b", 5, force="2"), 10, dict.fromkeys(range(5), DUE),
            calls("b", stay="01", post="234"), ["zone-b 2"], id="row 11",
        ),
    ],
)  # fmt: skip
@in_virtual_time
async def test_t05(
    one: Json, scale: int, prepared: Mapping[int, timedelta], called: list[str], patched: list[str]
) -> None:
    """Who is called once each, and what is written: within a second."""
    bench = Bench([one], has_settled=False)
    bench.references.show(scale, 1)
    bench.stores.prepare("b", prepared)
    async with bench.living():
        await pass_time(SECOND)
    assert sorted(set(bench.stores.calls)) == called
    assert bench.client.patched == patched


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(Store(prepared=DUE, status=500), id="row 5"),
        pytest.param(Store(prepared=DUE, error=ConnectionResetError()), id="row 6"),
        pytest.param(Store(prepared=DUE, body=b"OK"), id="row 7"),
        pytest.param(Store(takes=HOUR), id="FP-25 hangs"),
    ],
)
@in_virtual_time
async def test_t05_a_pod_without_a_usable_word_holds_back_all(broken: Store) -> None:
    """DELAY-07, SEED-078: of 3 and 4 the highest is due, 3 is called ever again, nothing goes."""
    bench = Bench([delayed("b", 5)])
    bench.references.show(3, 5)
    bench.stores.prepare("b", {4: DUE})
    bench.stores.behave["zone-b-3"] = broken
    async with bench.living():
        await pass_time(600 * SECOND)
        assert bench.waits() == [f"{Code.POD_GAVE_NO_TIME} zone-b"]
        assert "zone-b-3" in bench.reasons()[0].text
    assert bench.client.patched == []
    called = bench.stores.calls.count("POST zone-b-3")
    assert 11 <= called <= 13, "soon at first, then once a minute (LI-11)"


@in_virtual_time
async def test_w20_pods_that_do_not_confirm_hold_back_no_upscale() -> None:
    """T-05 row 9 with HTTP 500 and with pods that hang, W-20."""
    bench = Bench([delayed("b", 2)])
    bench.references.show(5, 2)
    bench.stores.behave = {"zone-b-0": Store(status=500), "zone-b-1": Store(takes=HOUR)}
    async with bench.living():
        await pass_time(0.01 * SECOND)
        assert bench.client.patched == ["zone-b 5"]
        await pass_time(600 * SECOND)
        for pod in ("zone-b-0", "zone-b-1"):
            soon = bench.stores.calls.count(f"DELETE {pod}")
            assert 1 <= soon <= 1 + SOON_TRIES, "the process before this one may have called it"
        bench.stores.take()
        await pass_time(1800 * SECOND)
    for pod in ("zone-b-0", "zone-b-1"):
        assert bench.stores.calls.count(f"DELETE {pod}") <= 3, "then at a low rate (LI-11)"


@in_virtual_time
async def test_seed_079_pods_at_rest_are_reported_rarely() -> None:
    """DELAY-10, LI-11: once, and then every ten minutes; a new process un-prepares them once."""
    bench = Bench([delayed("b", 3)])
    bench.references.show(3, 3)
    async with bench.living():
        await pass_time(3600 * SECOND)
    counts = {pod: bench.stores.calls.count(f"DELETE zone-b-{pod}") for pod in range(3)}
    assert all(6 <= count <= 7 for count in counts.values()), counts
    assert not any(call.startswith("POST") for call in bench.stores.calls)


@in_virtual_time
async def test_the_whole_hour_is_waited_for() -> None:
    """DELAY-08: from the first POST on, and with fresh words: then it goes within seconds."""
    bench = Bench([delayed("b", 5)])
    bench.references.show(3, 5)
    async with bench.living():
        await pass_time(HOUR - SECOND)
        assert bench.client.patched == []
        await pass_time(3 * SECOND)
        assert bench.client.patched == ["zone-b 3"]
    called = [at for call, at in _pairs(bench) if call == "POST zone-b-4"]
    assert HOUR <= called[-1] <= HOUR + 2 * SECOND
    assert len(called) <= 63, "once a minute, and for the decision"


@in_virtual_time
async def test_pods_of_a_revoked_downscale_are_un_prepared_at_once() -> None:
    """SEED-079: 5, 3 is wanted, 5 again: a called pod is told that it stays, and begins anew."""
    bench = Bench([delayed("b", 5)])
    bench.references.show(3, 5)
    async with bench.living():
        await pass_time(HOUR / 2 + 200 * SECOND)
        bench.stores.take()
        bench.references.show(5, 5)
        bench.queue.add(GROUP)
        await pass_time(SECOND)
        assert bench.stores.take() == calls("b", stay="34")
        bench.references.show(3, 5)
        bench.queue.add(GROUP)
        await pass_time(HOUR - SECOND)
        assert bench.client.patched == []
        await pass_time(4 * SECOND)
        assert bench.client.patched == ["zone-b 3"]


def _pairs(bench: Bench) -> list[tuple[str, timedelta]]:
    return list(zip(bench.stores.calls, bench.stores.at, strict=True))


@pytest.mark.parametrize("how", ["replaced", "ready"])
@in_virtual_time
async def test_a_pod_that_comes_back_is_called_at_once(how: str) -> None:
    """DELAY-07: the downscale does not wait for the minute of a pod that failed for long."""
    bench = Bench([delayed("b", 5)], has_settled=False)
    bench.references.show(4, 1)
    bench.stores.prepare("b", {4: DUE}, status=500)
    pod = bench.client.objects["pods", "zone-b-4"]
    async with bench.living():
        _set_ready(pod, "False")
        bench.follow()
        await pass_time(200 * SECOND)
        assert bench.client.patched == []
        called = [at for call, at in _pairs(bench) if call == "POST zone-b-4"]
        assert [round((later - sooner) / SECOND) for sooner, later in pairwise(called)][:5] == [
            5, 10, 20, 40, 60
        ]  # fmt: skip
        bench.stores.prepare("b", {4: DUE})
        if how == "replaced":
            part(pod, "metadata")["uid"] = "uid-another"
        _set_ready(pod, "True")
        bench.follow()
        await pass_time(SECOND)
        assert bench.client.patched == ["zone-b 4"]


def _set_ready(pod: Json, status: str) -> None:
    conditions = part(pod, "status")["conditions"]
    assert isinstance(conditions, list)
    conditions[0]["status"] = status
