"""Single decisions of the simulated StatefulSet controller, and the cache it decides from."""

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Resource
from rollout_operator.lab.controllers.members import new_pod, read_member, revision_of
from rollout_operator.lab.controllers.revisions import new_revision
from rollout_operator.lab.controllers.set_pass import Pass
from rollout_operator.lab.controllers.set_status import CountedStatus
from rollout_operator.lab.controllers.set_view import ControllerCache
from rollout_operator.lab.controllers.set_writes import SetWrites, WriteFailed
from rollout_operator.lab.model.fields import child, name_of
from rollout_operator.lab.model.history import Commit
from rollout_operator.lab.model.request import ApiAnswer, ApiRequest, NotModelled
from rollout_operator.lab.nodes.behaviour import Behaviour, StartKind, by_image
from rollout_operator.lab.virtual_loop.pace import Range, Timers, draw
from rollout_operator.lab.zones import ZoneSpec, statefulset
from tests.lab.cluster_world import world
from tests.virtual_time import elapsed, in_virtual_time

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LAG = (timedelta(seconds=1), timedelta(seconds=9))


class Api:
    """Takes all writes but those of the names it refuses."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.absent: tuple[str, ...] = ()
        self.asked: list[str] = []
        self.made: dict[str, str] = {}
        """Revisions of created pods by name."""

    def get(self, resource: Resource, namespace: str, name: str) -> JsonObject | None:
        return None

    def call_now(self, request: ApiRequest) -> ApiAnswer:
        body = request.body if isinstance(request.body, dict) else {}
        name = request.name or name_of(body)
        self.asked.append(f"{request.verb} {name}")
        if request.verb == "create":
            self.made[name] = revision_of(body)
        if name in self.absent:
            return ApiAnswer(status=404, body={"reason": "NotFound", "message": "none"})
        if name in self.refused:
            return ApiAnswer(status=403, body={"reason": "Forbidden", "message": "no"})
        return ApiAnswer(status=200, body=body)

    def now(self) -> datetime:
        return NOW


def look(api: Api, zone: ZoneSpec, pods: list[JsonObject], **spec: object) -> tuple[Pass, object]:
    """Make one pass and return it with its failure."""
    sts = statefulset(zone)
    sts = {**sts, "spec": {**child(sts, "spec"), **spec}}
    revision = new_revision(sts, 1, 0)
    looked = Pass(
        sts=sts,
        pods=[read_member(pod) for pod in pods],
        current=revision,
        update=revision,
        status=CountedStatus(
            observed_generation=1,
            current_revision=name_of(revision),
            update_revision=name_of(revision),
            collisions=0,
        ),
        writes=SetWrites(api, sts, {}),
        now=NOW,
        rng=random.Random(1),
    )
    return looked, looked.run()


def living(zone: ZoneSpec, *ordinals: int, phase: str = "Pending") -> list[JsonObject]:
    sts = statefulset(zone)
    template = child(sts, "spec", "template")
    pods = [new_pod(sts, template, "web-old", ordinal) for ordinal in ordinals]
    return [{**pod, "status": {"phase": phase}} for pod in pods]


def test_parallel_pods_are_made_in_growing_batches_until_one_fails() -> None:
    """One, two, four, ...: a batch is finished, the next one is not begun."""
    api = Api("web-1")
    _, failure = look(api, ZoneSpec(name="web", replicas=9), [])
    assert isinstance(failure, WriteFailed)
    assert api.asked[0] == "create web-0"
    assert sorted(api.asked[1:]) == ["create web-1", "create web-2"]


def test_an_ordered_set_stops_at_the_first_pod_it_makes() -> None:
    api = Api()
    _, failure = look(api, ZoneSpec(name="web", pod_management="OrderedReady"), [])
    assert failure is None
    assert api.asked == ["create web-0"]


def test_pods_of_a_pass_are_counted_only_once_the_server_has_shown_them() -> None:
    zone = ZoneSpec(name="web", replicas=3)
    looked, _ = look(Api(), zone, living(zone, 0))
    assert looked.status.replicas == 1


def test_condemned_pods_of_a_parallel_set_go_together_ready_or_not() -> None:
    api, zone = Api(), ZoneSpec(name="web", replicas=1)
    look(api, zone, living(zone, 0, 1, 2, 3))
    assert sorted(api.asked) == ["delete web-1", "delete web-2", "delete web-3"]


def test_a_finished_pod_is_replaced_whatever_its_exit() -> None:
    api, zone = Api(), ZoneSpec(name="web", replicas=2)
    look(api, zone, living(zone, 0, 1, phase="Succeeded"))
    assert sorted(api.asked) == ["delete web-0", "delete web-1"]


def test_a_failed_delete_comes_back_and_the_counts_stay() -> None:
    zone = ZoneSpec(name="web", replicas=0)
    looked, failure = look(Api("web-0"), zone, living(zone, 0))
    assert isinstance(failure, WriteFailed)
    assert "403 Forbidden: no" in str(failure)
    assert looked.status.replicas == 1


def test_a_pod_that_is_gone_already_needs_no_delete() -> None:
    api, zone = Api(), ZoneSpec(name="web", replicas=0)
    api.absent = ("web-0",)
    _, failure = look(api, zone, living(zone, 0))
    assert failure is None


def test_several_unavailable_pods_of_a_rolling_update_are_not_modelled() -> None:
    """Real servers drop the field unless a feature is switched on: no guess is made."""
    zone = ZoneSpec(name="web", replicas=0, strategy="RollingUpdate")
    update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 2}}
    with pytest.raises(NotModelled, match="maxUnavailable of statefulset web"):
        look(Api(), zone, [], updateStrategy=update)


def test_a_partition_keeps_what_is_below_it() -> None:
    zone = ZoneSpec(name="web", replicas=2, strategy="RollingUpdate")
    ready: JsonObject = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    pods = [{**pod, "status": ready} for pod in living(zone, 0, 1)]
    for partition, deleted in ((2, []), (1, ["delete web-1"]), (0, ["delete web-1"])):
        api = Api()
        update = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
        look(api, zone, pods, updateStrategy=update)
        assert api.asked == deleted


@pytest.mark.parametrize(
    ("strategy", "of_current"),
    [
        pytest.param({"type": "OnDelete"}, [], id="on delete"),
        pytest.param({"type": "RollingUpdate"}, ["web-4", "web-5"], id="no partition given"),
        pytest.param(
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}, [], id="none below"
        ),
        pytest.param(
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}, ["web-4"], id="one below"
        ),
    ],
)
def test_of_which_revision_a_missing_pod_is_made(
    strategy: JsonObject, of_current: list[str]
) -> None:
    """Where only the type is given, as many are of the current one as the status counts."""
    zone = ZoneSpec(name="web", replicas=3, first_ordinal=4)
    looked, _ = look(Api(), zone, [])
    spec = {**child(looked.sts, "spec"), "updateStrategy": strategy}
    sts: JsonObject = {**looked.sts, "spec": spec, "status": {"currentReplicas": 2}}
    new = new_revision({**sts, "spec": {**spec, "template": {"spec": {}}}}, 2, 0)
    api = Api()
    replace(looked, sts=sts, update=new, writes=SetWrites(api, sts, {})).run()
    assert sorted(api.made) == ["web-4", "web-5", "web-6"]
    assert [name for name, one in sorted(api.made.items()) if one != name_of(new)] == of_current


def test_a_rolling_update_goes_no_further_while_a_replaced_pod_is_not_ready() -> None:
    zone = ZoneSpec(name="web", replicas=2, strategy="RollingUpdate")
    old, replaced = living(zone, 0, 1)
    sts = statefulset(zone)
    template, name = child(sts, "spec", "template"), name_of(new_revision(sts, 1, 0))
    replaced = {**new_pod(sts, template, name, 1), "status": {"phase": "Running"}}
    api = Api()
    look(api, zone, [old, replaced])
    assert api.asked == []


def test_a_pod_deleted_by_a_rolling_update_no_longer_counts_as_current() -> None:
    zone = ZoneSpec(name="web", replicas=2, strategy="RollingUpdate")
    looked, _ = look(Api(), zone, living(zone, 0, 1))
    looked.status.current_revision = "web-old"
    looked.run()
    assert looked.status.current == 1


def commit_of(revision: int, resource: Resource = STATEFULSETS) -> Commit:
    obj: JsonObject = {"metadata": {"name": "web", "namespace": "default"}, "n": revision}
    return Commit(
        at=timedelta(0),
        revision=revision,
        actor="person",
        resource=resource,
        namespace="default",
        name="web",
        before=None,
        after=obj,
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_lagging_cache_keeps_the_order_of_a_kind(seed: int) -> None:
    @in_virtual_time
    async def scenario() -> None:
        timers = Timers()
        view = ControllerCache(timers=timers, rng=random.Random(seed), lag=LAG)
        seen: list[int] = []
        done = Waiter(seen, 20)
        view.on_change = done.take
        for revision in range(1, 21):
            view.bring(commit_of(revision))
        assert not view.has_seen("statefulsets", 1)
        assert view.sets == {}
        await done.wait()
        assert seen == list(range(1, 21))
        assert LAG[0] <= elapsed() <= LAG[1]
        assert view.has_seen("statefulsets", 20)
        assert not view.has_seen("pods", 1)

    scenario()


class Waiter:
    """Waits for so many commits."""

    def __init__(self, seen: list[int], most: int) -> None:
        self._seen = seen
        self._most = most
        self._done = asyncio.Event()

    def take(self, commit: Commit) -> None:
        self._seen.append(commit.revision)
        if len(self._seen) == self._most:
            self._done.set()

    async def wait(self) -> None:
        await self._done.wait()


@in_virtual_time
async def test_a_cache_without_lag_knows_at_once() -> None:
    nothing: Range = (timedelta(0), timedelta(0))
    view = ControllerCache(timers=Timers(), rng=random.Random(1), lag=nothing)
    view.bring(commit_of(3, PODS))
    assert [one.name for one in view.pods("", "default")] == ["web"]
    assert view.pods("", "other") == view.pods("u", "default") == []
    view.bring(commit_of(4, Resource("", "v1", "secrets", "Secret")))
    assert not view.has_seen("secrets", 4)


def test_spans_are_drawn_between_their_ends() -> None:
    rng = random.Random(1)
    drawn = [draw(rng, LAG) for _ in range(200)]
    assert LAG[0] <= min(drawn) < max(drawn) <= LAG[1]
    assert max(drawn) - min(drawn) > timedelta(seconds=7)


@in_virtual_time
async def test_a_bad_revision_and_its_correction() -> None:
    """S4 by hand: broken pods stay until they are deleted, and come back at the corrected one."""
    choose = by_image({"bad": Behaviour(kind=StartKind.CRASH_LOOP)})
    with world(choose=choose) as scene:
        await scene.bring_up(ZoneSpec(name="web"))
        first = scene.status("web")["updateRevision"]
        scene.set_image("web", "bad")
        await scene.until_revised("web", first)
        second = scene.status("web")["updateRevision"]
        scene.delete_pod("web-0")
        await scene.until(lambda: scene.status("web").get("readyReplicas") == 2)
        scene.set_image("web", "v3")
        await scene.until_revised("web", second)
        for ordinal in range(3):
            scene.delete_pod(f"web-{ordinal}")
        await scene.until_rolled("web")
        assert len(scene.revisions()) == 3
