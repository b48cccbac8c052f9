"""Prepare-downscale: what is refused or let through before any pod is called, and in time.

Which reviews, labels and groups are refused at all stands in the tables of `tests/planning`.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.names import (
    PREPARE_PATH,
    PREPARE_PORT,
    ApiError,
    NotFound,
    Throttled,
    Uid,
    Unreachable,
)
from rollout_operator.model.objects import Endpoint, Key
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import Scalable, Unusable
from tests.virtual_time import EPOCH, in_virtual_time
from tests.web.downscale_world import (
    LIMIT,
    PREPARED,
    WHERE,
    World,
    outdate,
    part,
    prepared_alone,
    raw,
    three_zones,
    zone,
)
from tests.web.fake_pods import hang

DENIED = "downscale of statefulsets/zone-a in test from 5 to 3 replicas is not allowed because "
FAILED = "one or more pods failed to prepare for shutdown."
NO_PREPARE = "only a label counts: the check is off"


def nothing_was_done(world: World) -> bool:
    return (world.calls.calls, world.memory.downscales.list_sets()) == ([], [])


@pytest.mark.parametrize(
    ("labels", "annotations", "code", "text"),
    [
        pytest.param(
            PREPARED,
            {PREPARE_PATH: WHERE[PREPARE_PATH]},
            Code.PREPARE_MISCONFIGURED,
            "port annotation is not set or empty.",
            id="PREP-06 SEED-090",
        ),
        pytest.param(
            PREPARED,
            {PREPARE_PORT: "8080"},
            Code.PREPARE_MISCONFIGURED,
            "path annotation is not set or empty.",
            id="PREP-07",
        ),
        pytest.param(
            PREPARED,
            {**WHERE, PREPARE_PORT: "80@127.0.0.1:9999"},
            Code.PREPARE_MISCONFIGURED,
            "is no port from 1 to 65535",
            id="SEC SI-21 a port",
        ),
        pytest.param(
            {**PREPARED, "grafana.com/no-downscale": "true"},
            WHERE,
            Code.NO_DOWNSCALE,
            f"{DENIED}it has the label 'grafana.com/no-downscale=true'",
            id="NODOWN-04 SI-10 no-downscale is called after this hook, and would refuse",
        ),
        pytest.param({}, WHERE, Code.NOT_GUARDED, "", id="PREP-05 absent: allowed"),
        pytest.param(
            {"grafana.com/prepare-downscale": "yes"},
            {},
            Code.PREPARE_MISCONFIGURED,
            "port annotation is not set or empty.",
            id="D-89 whatever is no clear no counts as true",
        ),
        pytest.param(
            {"grafana.com/prepare-downscale": "No"}, WHERE, Code.NOT_GUARDED, "", id="D-89 a no"
        ),
        pytest.param(
            {},
            PREPARED,
            Code.LABEL_MISPLACED,
            "",
            id="PREP-05 W-49 an annotation: allowed with a warning",
        ),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
@in_virtual_time
async def test_what_the_set_says_is_judged_before_any_call(
    labels: Mapping[str, str], annotations: Mapping[str, str], code: Code, text: str, whole: bool
) -> None:
    world = prepared_alone(zone("zone-a", labels=labels, annotations=annotations))
    verdict = await world.send_request("zone-a", 3, whole=whole)
    assert verdict.reason.code is code
    assert text in verdict.reason.text
    assert verdict.is_allowed is (code in {Code.NOT_GUARDED, Code.LABEL_MISPLACED})
    assert bool(verdict.warnings) == (code is Code.LABEL_MISPLACED)
    assert all(warning.endswith(NO_PREPARE) for warning in verdict.warnings)
    assert nothing_was_done(world)


@in_virtual_time
async def test_prep_08_a_set_without_a_service_is_refused() -> None:
    one = zone("zone-a")
    part(one, "spec")["serviceName"] = ""
    world = prepared_alone(one)
    verdict = await world.send_request("zone-a", 3)
    assert verdict.reason.code is Code.PREPARE_MISCONFIGURED
    assert verdict.reason.text.endswith("the serviceName is not set or empty.")
    assert nothing_was_done(world)


@pytest.mark.parametrize(
    ("replicas", "first", "requested"),
    [
        pytest.param(
            3, 2, "downscale of", id="SI-10 D-10 pods 0 and 1 go, and no call prepared them"
        ),
        pytest.param(5, 2, "change of spec.ordinals.start of", id="SI-10 FP-29 moved up"),
        pytest.param(9, 2, "change of spec.ordinals.start of", id="moved up, and more of them"),
        pytest.param(5, -2, "change of spec.ordinals.start of", id="moved down"),
    ],
)
@in_virtual_time
async def test_si10_ordinals_that_move_are_refused(
    replicas: int, first: int, requested: str
) -> None:
    """SI-10, D-10: pods go that no call would have prepared, whether the count falls or not."""
    world = three_zones()
    start = max(-first, 0)
    review = world.review("zone-a", replicas, whole=True)
    assert isinstance(review.old, Scalable)
    assert isinstance(review.new, Scalable)
    moved = replace(
        review,
        old=replace(review.old, first_ordinal=start),
        new=replace(review.new, first_ordinal=start + first),
    )
    verdict = await world.memory.hook.review(moved, LIMIT)
    assert (verdict.is_allowed, verdict.reason.code) == (False, Code.PREPARE_MISCONFIGURED)
    assert verdict.reason.text.startswith(requested)
    assert verdict.reason.text.endswith(
        " is not allowed because it changes spec.ordinals.start, and pods are prepared only"
        " where the first ordinal stays"
    )
    assert (world.client.calls, world.calls.calls) == ([], [])


@in_virtual_time
async def test_what_is_found_during_the_live_read_counts() -> None:
    """D-25, SI-12: the records of an earlier process are taken up while the group is read."""
    world = three_zones()
    a = decode_statefulset(raw(world.client.objects["statefulsets", "zone-a"]))
    found = Key(set_uid=a.uid, replicas_from=5, replicas_to=4)

    async def adopt(call: str) -> None:
        if world.memory.downscales.get(a.uid) is None:
            called = [(Uid("uid-zone-a-4-old"), "zone-a-4")]
            world.memory.downscales.adopt(a, found, EPOCH, called)

    world.client.pause = adopt
    verdict = await world.send_request("zone-a", 3)
    assert (verdict.reason.code, verdict.code) == (Code.OTHER_DOWNSCALE_UNDERWAY, 429)
    reservation = world.memory.downscales.get(a.uid)
    assert reservation is not None
    assert reservation.key == found
    assert world.calls.calls == []


@pytest.mark.parametrize(
    "fault", [Unreachable("time-out"), Throttled("own limiter"), NotFound("no such set")]
)
@in_virtual_time
async def test_w12_a_set_that_cannot_be_read_is_refused(fault: ApiError) -> None:
    """W-12, D-21, SI-13: the label cannot be ruled out; it may be repeated."""
    world = three_zones()
    world.sets.replace_all([])
    world.fail(fault, "")
    verdict = await world.send_request("zone-a", 3)
    assert (verdict.reason.code, verdict.code) == (Code.CANNOT_CHECK, 429)
    assert verdict.reason.text == (
        f"{DENIED}the label grafana.com/prepare-downscale cannot be ruled out: {fault}"
    )


@pytest.mark.parametrize("kind", ["list statefulsets", "list pods"])
@in_virtual_time
async def test_prep_10_18_a_group_that_cannot_be_read_is_refused(kind: str) -> None:
    world = three_zones()
    world.fail(Unreachable("time-out"), kind)
    verdict = await world.send_request("zone-a", 3)
    assert verdict.reason.code is Code.GROUP_NOT_READ
    assert verdict.reason.text == f"{DENIED}finding other statefulsets failed. time-out"
    assert nothing_was_done(world)


@in_virtual_time
async def test_prep_09_a_set_without_a_group_has_no_neighbours() -> None:
    """PREP-09: PREP-10 to 19 are skipped, the pods are called all the same."""
    world = prepared_alone(zone("zone-a", group=None))
    outdate(world, "zone-b")
    assert (await world.send_request("zone-a", 3)).is_allowed
    assert world.calls.names("POST") == ["zone-a-4", "zone-a-3"]


@in_virtual_time
async def test_si10_pods_are_found_where_the_selector_has_no_labels() -> None:
    """SI-10, D-10: `matchExpressions` alone; the pods that it controls are called all the same."""
    one = zone("zone-a", group=None)
    part(one, "spec")["selector"] = {"matchExpressions": [{"key": "name", "operator": "Exists"}]}
    world = prepared_alone(one)
    verdict = await world.send_request("zone-a", 3)
    assert verdict.warnings == ()
    assert world.calls.names("POST") == ["zone-a-4", "zone-a-3"]


async def changed(world: World) -> Verdict:
    """Review what was right a moment ago: the store must confirm what a review says."""
    review = world.review("zone-a", 3)
    world.commit("zone-a", 4)
    return await world.memory.hook.review(review, LIMIT)


async def undecodable(world: World) -> Verdict:
    review = replace(world.review("zone-a", 3), new=Unusable("broken"))
    return await world.memory.hook.review(review, LIMIT)


async def stopping(world: World) -> Verdict:
    """Its pods would be left to the next process at once."""
    world.is_stopping = True
    return await world.send_request("zone-a", 3)


@pytest.mark.parametrize(
    ("send_request", "code"),
    [
        pytest.param(changed, Code.CHANGED_MEANWHILE, id="SEC D-68"),
        pytest.param(undecodable, Code.CANNOT_CHECK, id="PREP-02, PREP-04, SI-13"),
        pytest.param(stopping, Code.STOPPING, id="SI-22, FP-35"),
    ],
)
@in_virtual_time
async def test_what_cannot_be_relied_upon_is_read_again(
    send_request: Callable[[World], Awaitable[Verdict]], code: Code
) -> None:
    world = three_zones()
    verdict = await send_request(world)
    assert (verdict.is_allowed, verdict.reason.code) == (False, code)
    assert code is Code.CANNOT_CHECK or verdict.code == 429
    assert world.calls.calls == []


@in_virtual_time
async def test_w13_a_pod_that_hangs() -> None:
    """W-13, PREP-23: refused in time, the pods are un-prepared before, and once more later."""
    world = three_zones()

    async def answer(method: str, endpoint: Endpoint) -> None:
        if method == "POST" and endpoint.pod == "zone-a-3":
            await hang(method, endpoint)

    world.calls.answer = answer
    verdict = await world.send_request("zone-a", 3)
    assert verdict.reason.code is Code.REVIEW_TIMED_OUT
    assert verdict.reason.text == f"{DENIED}{FAILED} not all have answered within 7.2s"
    assert world.clock.now() - EPOCH < timedelta(seconds=9)
    assert world.calls.names("DELETE") == ["zone-a-4", "zone-a-3"]
    assert world.memory.downscales.backlog.count() == 2


@in_virtual_time
async def test_w13_pods_that_take_no_call_at_all() -> None:
    """W-13, FP-26: neither POST nor DELETE is answered: the refusal is in time all the same."""
    world = three_zones()
    world.calls.answer = hang
    verdict = await world.send_request("zone-a", 3)
    assert verdict.reason.code is Code.REVIEW_TIMED_OUT
    assert world.clock.elapsed() <= timedelta(seconds=9)
    assert world.memory.downscales.backlog.count() == 2


@in_virtual_time
async def test_an_api_server_that_hangs() -> None:
    """SI-13, LI-06: refused in time, by its cause, and nothing is reserved."""
    world = three_zones()

    async def never(call: str) -> None:
        await world.clock.sleep(timedelta(days=1))

    world.client.pause = never
    verdict = await world.send_request("zone-a", 3)
    assert (verdict.reason.code, verdict.code) == (Code.GROUP_NOT_READ, 429)
    assert "no answer within 8 s" in verdict.reason.text
    assert world.clock.elapsed() <= timedelta(seconds=9)
    assert world.memory.downscales.list_sets() == []
