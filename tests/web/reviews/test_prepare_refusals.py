"""Prepare-downscale: what is refused or let through before any pod is called, and in time."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.downscale import Endpoint, Key
from rollout_operator.model.errors import ApiError, NotFound, Throttled, Unreachable
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code
from rollout_operator.model.review import Scalable, Unusable
from tests.controllers.fake_client import Json
from tests.virtual_time import EPOCH, in_virtual_time
from tests.web.downscale_world import (
    PREPARED,
    outdate,
    part,
    prepared_alone,
    raw,
    three_zones,
    zone,
)
from tests.web.fake_pods import hang

PREFIX = "downscale of statefulsets/zone-a in test from 5 to 3 replicas is "
DENIED = f"{PREFIX}not allowed because "
FAILED = "one or more pods failed to prepare for shutdown."

Change = Callable[[Json], None]


def _annotate(**values: str | None) -> Change:
    keys = {"port": "grafana.com/prepare-downscale-http-port"}
    keys["path"] = "grafana.com/prepare-downscale-http-path"

    def change(one: Json) -> None:
        annotations = part(part(one, "metadata"), "annotations")
        for name, value in values.items():
            if value is None:
                del annotations[keys[name]]
            else:
                annotations[keys[name]] = value

    return change


def _no_service(one: Json) -> None:
    part(one, "spec")["serviceName"] = ""


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(_annotate(port=None), "port annotation is not set or empty.", id="PREP-06"),
        pytest.param(
            _annotate(port="", path=""), "port annotation is not set or empty.", id="PREP-06 first"
        ),
        pytest.param(_annotate(path=None), "path annotation is not set or empty.", id="PREP-07"),
        pytest.param(_no_service, "the serviceName is not set or empty.", id="PREP-08"),
        pytest.param(
            _annotate(port="80@127.0.0.1:9999"), "is no port from 1 to 65535", id="SEC SI-21 a port"
        ),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_misconfigured(change: Change, text: str, whole: bool) -> None:
    """SEED-090: refused without a call, and nothing is claimed."""

    @in_virtual_time
    async def run() -> None:
        one = zone("zone-a")
        change(one)
        world = prepared_alone(one)
        verdict = await world.ask("zone-a", 3, whole=whole)
        assert verdict.reason.code is Code.PREPARE_MISCONFIGURED
        assert verdict.reason.text.startswith(DENIED)
        assert text in verdict.reason.text
        assert world.calls.calls == []
        assert world.memory.downscales.list_sets() == []

    run()


@pytest.mark.parametrize(
    ("labels", "warnings"),
    [
        pytest.param({}, (), id="PREP-05 absent"),
        pytest.param(
            {"grafana.com/prepare-downscale": "yes"},
            ('label grafana.com/prepare-downscale: "yes" is not true: the check is off',),
            id="PREP-05 W-49 not true",
        ),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_unlabelled(labels: Mapping[str, str], warnings: tuple[str, ...], whole: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        world = prepared_alone(zone("zone-a", labels=labels))
        verdict = await world.ask("zone-a", 3, whole=whole)
        assert verdict.is_allowed
        assert verdict.warnings == warnings
        assert world.calls.calls == []
        assert world.memory.downscales.list_sets() == []

    run()


@pytest.mark.parametrize("whole", [True, False])
def test_a_set_that_may_not_lose_pods_is_not_prepared(whole: bool) -> None:
    """NODOWN-04, SI-10: no-downscale is asked after this hook, and would refuse."""

    @in_virtual_time
    async def run() -> None:
        labels = {**PREPARED, "grafana.com/no-downscale": "true"}
        world = prepared_alone(zone("zone-a", labels=labels))
        verdict = await world.ask("zone-a", 3, whole=whole)
        assert (verdict.is_allowed, verdict.reason.code) == (False, Code.NO_DOWNSCALE)
        assert verdict.reason.text == (f"{DENIED}it has the label 'grafana.com/no-downscale=true'")
        assert (world.client.calls, world.calls.calls) == ([], [])
        assert world.memory.downscales.list_sets() == []

    run()


@in_virtual_time
async def test_the_first_ordinal_must_not_change_in_the_same_request() -> None:
    """SI-10, D-10: 5 pods from 0 become 3 from 2: pods 0 and 1 go, and nobody asked them."""
    world = three_zones()
    asked = world.review("zone-a", 3, whole=True)
    assert isinstance(asked.new, Scalable)
    moved = replace(asked, new=replace(asked.new, first_ordinal=2))
    verdict = await world.memory.hook.review(moved, timedelta(seconds=9))
    assert (verdict.is_allowed, verdict.reason.code) == (False, Code.PREPARE_MISCONFIGURED)
    assert verdict.reason.text == (
        f"{DENIED}it changes spec.ordinals.start, and pods are prepared only where the first"
        " ordinal stays"
    )
    assert (world.client.calls, world.calls.calls) == ([], [])


@pytest.mark.parametrize(("replicas", "first"), [(5, 2), (9, 2), (5, -2)])
def test_si10_ordinals_that_move_alone_are_refused(replicas: int, first: int) -> None:
    """SI-10, FP-29, D-10: the count does not fall, and pods go that nobody would have asked."""

    @in_virtual_time
    async def run() -> None:
        world = three_zones()
        asked = world.review("zone-a", replicas, whole=True)
        assert isinstance(asked.old, Scalable)
        assert isinstance(asked.new, Scalable)
        start = max(-first, 0)
        moved = replace(
            asked,
            old=replace(asked.old, first_ordinal=start),
            new=replace(asked.new, first_ordinal=start + first),
        )
        verdict = await world.memory.hook.review(moved, timedelta(seconds=9))
        assert (verdict.is_allowed, verdict.reason.code) == (False, Code.PREPARE_MISCONFIGURED)
        assert verdict.reason.text == (
            "change of spec.ordinals.start of statefulsets/zone-a in test from"
            f" {start} to {start + first}, which removes pods, is not allowed because it changes"
            " spec.ordinals.start, and pods are prepared only where the first ordinal stays"
        )
        assert (world.client.calls, world.calls.calls) == ([], [])

    run()


@in_virtual_time
async def test_what_is_found_during_the_look_counts() -> None:
    """D-25, SI-12: the notes of an earlier process are taken up while the group is read."""
    world = three_zones()
    a = decode_statefulset(raw(world.client.objects["statefulsets", "zone-a"]))
    found = Key(set_uid=a.uid, replicas_from=5, replicas_to=4)

    async def adopt(call: str) -> None:
        if world.memory.downscales.get(a.uid) is None:
            told = [(Uid("uid-zone-a-4-old"), "zone-a-4")]
            world.memory.downscales.adopt(a, found, EPOCH, told)

    world.client.pause = adopt
    verdict = await world.ask("zone-a", 3)
    assert (verdict.reason.code, verdict.code) == (Code.OTHER_DOWNSCALE_UNDERWAY, 429)
    claim = world.memory.downscales.get(a.uid)
    assert claim is not None
    assert claim.key == found
    assert world.calls.calls == []


@pytest.mark.parametrize(
    "fault", [Unreachable("time-out"), Throttled("own limiter"), NotFound("no such set")]
)
def test_w12_a_set_that_cannot_be_read_is_refused(fault: ApiError) -> None:
    """W-12, D-21, SI-13: the label cannot be ruled out; it may be repeated."""

    @in_virtual_time
    async def run() -> None:
        world = three_zones()
        world.sets.replace_all([])

        def fail(call: str) -> None:
            raise fault

        world.client.before = fail
        verdict = await world.ask("zone-a", 3)
        assert verdict.reason.code is Code.CANNOT_CHECK
        assert verdict.reason.text == (
            f"{DENIED}the label grafana.com/prepare-downscale cannot be ruled out: {fault}"
        )
        assert verdict.code == 429

    run()


@pytest.mark.parametrize("kind", ["list statefulsets", "list pods"])
def test_prep_10_18_a_group_that_cannot_be_read_is_refused(kind: str) -> None:
    @in_virtual_time
    async def run() -> None:
        world = three_zones()

        def fail(call: str) -> None:
            if call.startswith(kind):
                raise Unreachable("time-out")

        world.client.before = fail
        verdict = await world.ask("zone-a", 3)
        assert verdict.reason.code is Code.GROUP_NOT_READ
        assert verdict.reason.text == f"{DENIED}finding other statefulsets failed. time-out"
        assert world.memory.downscales.list_sets() == []

    run()


@in_virtual_time
async def test_prep_09_a_set_without_a_group_has_no_neighbours() -> None:
    """PREP-09: PREP-10 to 19 are skipped, the pods are called all the same."""
    world = prepared_alone(zone("zone-a", group=None))
    outdate(world, "zone-b")
    assert (await world.ask("zone-a", 3)).is_allowed
    assert world.calls.names("POST") == ["zone-a-4", "zone-a-3"]


@in_virtual_time
async def test_si10_pods_are_found_where_the_selector_has_no_labels() -> None:
    """SI-10, D-10: `matchExpressions` alone; the pods that it controls are called all the same."""
    one = zone("zone-a", group=None)
    part(one, "spec")["selector"] = {"matchExpressions": [{"key": "name", "operator": "Exists"}]}
    world = prepared_alone(one)
    verdict = await world.ask("zone-a", 3)
    assert verdict.warnings == ()
    assert world.calls.names("POST") == ["zone-a-4", "zone-a-3"]


@in_virtual_time
async def test_nothing_is_done_on_the_word_of_a_review() -> None:
    """SEC: whoever reaches the port could send reviews; the store must confirm them."""
    world = three_zones()
    asked = world.review("zone-a", 3)
    world.commit("zone-a", 4)
    verdict = await world.memory.hook.review(asked, timedelta(seconds=9))
    assert verdict.reason.code is Code.CHANGED_MEANWHILE
    assert verdict.code == 429
    assert world.calls.calls == []


@in_virtual_time
async def test_an_undecodable_set_is_refused_and_another_kind_is_not() -> None:
    """PREP-02, PREP-04, SI-13."""
    world = three_zones()
    asked = world.review("zone-a", 3)
    broken = type(asked)(
        version=asked.version, uid="u", resource="statefulsets", namespace="test", name="zone-a",
        old=asked.old, new=Unusable("broken"),
    )  # fmt: skip
    assert not (await world.memory.hook.review(broken, timedelta(seconds=9))).is_allowed


@in_virtual_time
async def test_no_downscale_begins_while_the_operator_stops() -> None:
    """SI-22, FP-35: its pods would be left to the next process at once."""
    world = three_zones()
    world.is_stopping = True
    verdict = await world.ask("zone-a", 3)
    assert (verdict.reason.code, verdict.code) == (Code.STOPPING, 429)
    assert world.calls.calls == []


@in_virtual_time
async def test_w13_a_pod_that_hangs() -> None:
    """W-13, PREP-23: refused in time, the pods are told before, and are owed another telling."""
    world = three_zones()

    async def answer(method: str, endpoint: Endpoint) -> None:
        if method == "POST" and endpoint.pod == "zone-a-3":
            await hang(method, endpoint)

    world.calls.answer = answer
    verdict = await world.ask("zone-a", 3)
    assert verdict.reason.code is Code.REVIEW_TIMED_OUT
    assert verdict.reason.text == f"{DENIED}{FAILED} not all have answered within 7.2s"
    assert world.clock.now() - EPOCH < timedelta(seconds=9)
    assert world.calls.names("DELETE") == ["zone-a-4", "zone-a-3"]
    assert world.memory.downscales.debts.count() == 2


@in_virtual_time
async def test_w13_pods_that_take_no_call_at_all() -> None:
    """W-13, FP-26: neither POST nor DELETE is answered: the refusal is in time all the same."""
    world = three_zones()
    world.calls.answer = hang
    verdict = await world.ask("zone-a", 3)
    assert verdict.reason.code is Code.REVIEW_TIMED_OUT
    assert world.clock.elapsed() <= timedelta(seconds=9)
    assert world.memory.downscales.debts.count() == 2


@in_virtual_time
async def test_an_api_server_that_hangs() -> None:
    """SI-13, LI-06: refused in time, by its cause, and nothing is claimed."""
    world = three_zones()

    async def never(call: str) -> None:
        await world.clock.sleep(timedelta(days=1))

    world.client.pause = never
    verdict = await world.ask("zone-a", 3)
    assert (verdict.reason.code, verdict.code) == (Code.GROUP_NOT_READ, 429)
    assert "no answer within 8 s" in verdict.reason.text
    assert world.clock.elapsed() <= timedelta(seconds=9)
    assert world.memory.downscales.list_sets() == []
