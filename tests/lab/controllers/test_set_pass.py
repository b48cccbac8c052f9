"""Single decisions of the simulated StatefulSet controller, and the cache it decides from."""

import asyncio
import random
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
from rollout_operator.lab.virtual_loop.pace import Range, Timers, draw
from rollout_operator.lab.zones import ZoneSpec, statefulset
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


def test_a_failed_delete_comes_back_and_the_counts_stay() -> None:
    zone = ZoneSpec(name="web", replicas=0)
    looked, failure = look(Api("web-0"), zone, living(zone, 0))
    assert isinstance(failure, WriteFailed)
    assert "403 Forbidden: no" in str(failure)
    assert looked.status.replicas == 1


def test_several_unavailable_pods_of_a_rolling_update_are_not_modelled() -> None:
    """Real servers drop the field unless a feature is switched on: no guess is made."""
    zone = ZoneSpec(name="web", replicas=0, strategy="RollingUpdate")
    update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 2}}
    with pytest.raises(NotModelled, match="maxUnavailable of statefulset web"):
        look(Api(), zone, [], updateStrategy=update)


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
