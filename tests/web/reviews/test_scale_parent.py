"""The object behind a Scale is taken from the cache where that is certainly fresh, else read."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube.api import Resource
from rollout_operator.kube.store import StatefulSetStore
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.names import (
    ApiError,
    DeadlinePassed,
    DecodeError,
    Denied,
    InvalidInput,
    NotFound,
    Throttled,
    Uid,
)
from rollout_operator.model.objects import StatefulSet, Unreadable
from rollout_operator.model.scaling import Review, Scalable, Unusable, Version
from rollout_operator.web.no_downscale import CATCH_UP, Parent, Parents, UnconfirmedReads
from tests.controllers.fake_client import FakeClient, Json
from tests.virtual_time import VirtualClock, in_virtual_time
from tests.web.downscale_world import part, raw, zone

LABELS = {"grafana.com/no-downscale": "true"}
LIMIT = timedelta(seconds=9)


@dataclass
class Rig:
    """Parents on a store and a cache of one StatefulSet each."""

    stored: Json
    cached: StatefulSet | Unreadable | None = None
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        self.client = FakeClient([self.stored], [])
        self.store = StatefulSetStore()
        if self.cached is not None:
            self.store.upsert(self.cached)
        self.parents = Parents(
            self.store, self.client, UnconfirmedReads(0), namespace="test", clock=self.clock
        )

    async def find(self, review: Review, limit: timedelta = LIMIT) -> Parent:
        return await self.parents.fetch(review, self.clock.elapsed() + limit)


def stored(version: str = "7", uid: str = "uid-zone-a", **changes: object) -> Json:
    """Return the set as the API server holds it."""
    one = zone("zone-a", labels=LABELS)
    part(one, "metadata").update(resourceVersion=version, uid=uid, **changes)
    return one


def cached(version: str = "7", uid: str = "uid-zone-a") -> StatefulSet:
    """Return the set as the cache shows it; its own label distinguishes it from the store."""
    one = stored(version, uid)
    part(part(one, "metadata"), "labels")["grafana.com/no-downscale"] = "cached"
    return decode_statefulset(raw(one))


def scale(
    resource: str = "statefulsets", *, version: str = "7", uid: str = "uid-zone-a", at: str = "test"
) -> Review:
    old = Scalable(kind="Scale", uid=Uid(uid), resource_version=version, replicas=5)
    return Review(
        version=Version.V1,
        uid="u",
        resource=resource,
        subresource="scale",
        namespace=at,
        name="zone-a",
        old=old,
        new=old,
    )


def unreadable() -> Unreadable:
    return Unreadable(
        kind="StatefulSet",
        namespace="test",
        name="zone-a",
        uid=Uid("uid-zone-a"),
        resource_version="7",
        error="spec.replicas: broken",
    )


@pytest.mark.parametrize(
    ("in_cache", "requested", "source", "reads"),
    [
        pytest.param(cached("7"), "7", "cached", 0, id="SEED-083 the same version: no read"),
        pytest.param(cached("12"), "7", "cached", 0, id="a newer version: no read"),
        pytest.param(cached("6"), "7", "true", 1, id="SI-14 an older version: one read"),
        pytest.param(cached("9"), "10", "true", 1, id="versions are numbers, not texts"),
        pytest.param(cached("7", uid="x"), "7", "true", 1, id="another UID: one read"),
        pytest.param(cached("7"), "", "true", 1, id="a review without version: one read"),
        pytest.param(cached("a7"), "7", "true", 1, id="versions that do not compare: one read"),
        pytest.param(unreadable(), "7", "true", 1, id="an unreadable view: one read"),
        pytest.param(None, "7", "true", 1, id="not in the cache: one read"),
    ],
)
@in_virtual_time
async def test_the_cache_answers_only_where_it_is_fresh(
    in_cache: StatefulSet | Unreadable | None, requested: str, source: str, reads: int
) -> None:
    """T-06 /scale, D-20: SI-14 needs the labels that the write is admitted against."""
    rig = Rig(stored(), in_cache)
    found = await rig.find(scale(version=requested))
    assert found.labels["grafana.com/no-downscale"] == source
    assert rig.client.calls == ["get statefulsets/zone-a"] * reads


@in_virtual_time
async def test_a_cache_that_follows_in_a_moment_is_waited_for() -> None:
    """A watch is milliseconds behind: no read."""
    rig = Rig(stored(), cached("6"))
    begin = rig.clock.elapsed()

    class Following(StatefulSetStore):
        """Shows the new version from the third read on."""

        reads = 0

        def get(self, namespace: str, name: str) -> StatefulSet | Unreadable | None:
            self.reads += 1
            if self.reads == 3:
                self.upsert(cached("7"))
            return super().get(namespace, name)

    store = Following()
    store.upsert(cached("6"))
    parents = Parents(store, rig.client, UnconfirmedReads(0), namespace="test", clock=rig.clock)
    found = await parents.fetch(scale(), begin + LIMIT)
    assert found.labels["grafana.com/no-downscale"] == "cached"
    assert rig.client.calls == []
    assert rig.clock.elapsed() - begin == sum(CATCH_UP[:2], timedelta(0))


@in_virtual_time
async def test_the_wait_for_the_cache_ends_before_the_time_is_over() -> None:
    rig = Rig(stored(), cached("6"))
    await rig.find(scale(), timedelta(milliseconds=12))
    assert rig.clock.elapsed() == timedelta(milliseconds=5)
    assert rig.client.calls == ["get statefulsets/zone-a"]


@in_virtual_time
async def test_a_read_that_hangs_ends_in_time() -> None:
    """D-20: what cannot be read is reported in time, as a lack of time of ours."""
    rig = Rig(stored())

    async def never(call: str) -> None:
        await rig.clock.sleep(timedelta(days=1))

    rig.client.pause = never
    with pytest.raises(DeadlinePassed, match=r"no answer within 9\.0s"):
        await rig.find(scale())
    assert rig.clock.elapsed() == LIMIT


@pytest.mark.parametrize(
    ("requested", "error", "text"),
    [
        (scale("pods"), InvalidInput, "unsupported resource pods"),
        (scale(at="other"), Denied, "namespace other is not looked after"),
    ],
)
@in_virtual_time
async def test_what_is_not_ours_is_not_read(
    requested: Review, error: type[ApiError], text: str
) -> None:
    """NODOWN-05: no read in a namespace that the operator does not look after."""
    rig = Rig(stored(), cached())
    with pytest.raises(error, match=text):
        await rig.find(requested)
    assert rig.client.calls == []


@pytest.mark.parametrize("resource", ["deployments", "replicasets"])
@in_virtual_time
async def test_other_workloads_are_read(resource: str) -> None:
    """NODOWN-05: they are in no cache."""
    rig = Rig(stored(), cached())
    rig.client.put(resource, stored(annotations={"a": "b"}))
    found = await rig.find(scale(resource))
    assert found == Parent(labels={"rollout-group": "ingester", **LABELS}, annotations={"a": "b"})

    rig.client.put(resource, {"metadata": {"name": "zone-a"}})
    assert await rig.find(scale(resource)) == Parent()

    with pytest.raises(NotFound):
        await rig.find(replace(scale(resource), name="gone"))


@pytest.mark.parametrize("metadata", [{"name": "zone-a", "labels": []}, {"name": 1}])
@in_virtual_time
async def test_what_does_not_decode_is_reported(metadata: Json) -> None:
    """SI-13: it is no absent label."""
    rig = Rig(stored())
    rig.client.objects["deployments", "zone-a"] = {"metadata": metadata}
    rig.client.objects["statefulsets", "zone-a"] = {"metadata": metadata}
    for resource in bad_kinds(metadata):
        with pytest.raises(DecodeError):
            await rig.find(scale(resource))


def bad_kinds(metadata: Json) -> Sequence[str]:
    """A name that is no text does not matter for a Deployment: nothing reads it."""
    return ["statefulsets"] if metadata["name"] == 1 else ["statefulsets", "deployments"]


@in_virtual_time
async def test_a_review_without_an_old_object_is_read_for() -> None:
    rig = Rig(stored(), cached())
    bare = replace(scale(), old=Unusable("absent"))
    found = await rig.find(bare)
    assert found.labels["grafana.com/no-downscale"] == "true"


class SlowClient(FakeClient):
    """Answers with what was stored when it was read, once the test lets it."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.may_answer = asyncio.Event()

    async def fetch(
        self, resource: Resource, namespace: str, name: str, subresource: str = "", **how: object
    ) -> bytes:
        try:
            return await super().fetch(resource, namespace, name, subresource, **how)
        finally:
            await self.may_answer.wait()


async def list_while_reading(
    client: SlowClient, first: Review, change: Callable[[], None], second: Review
) -> list[Parent | ApiError]:
    """Review, change the world during the read, review again; return both answers."""
    clock = VirtualClock()
    parents = Parents(
        StatefulSetStore(), client, UnconfirmedReads(0), namespace="test", clock=clock
    )
    answers: list[Parent | ApiError] = []

    async def send_request(review: Review) -> None:
        try:
            answers.append(await parents.fetch(review, clock.elapsed() + LIMIT))
        except ApiError as error:
            answers.append(error)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send_request(first))
        await clock.sleep(timedelta(seconds=1))
        change()
        tasks.create_task(send_request(second))
        await clock.sleep(timedelta(seconds=1))
        client.may_answer.set()
    return answers


def labelled(value: str, **metadata: object) -> Json:
    one = stored(**metadata)  # type: ignore[arg-type]  # versions and UIDs are texts
    part(part(one, "metadata"), "labels")["grafana.com/no-downscale"] = value
    return one


@pytest.mark.parametrize("resource", ["deployments", "statefulsets"])
@pytest.mark.parametrize(
    ("later", "reads"),
    [
        pytest.param({"version": "7"}, 1, id="SI-14 of the version that is read: shared"),
        pytest.param({"version": "6"}, 1, id="of an older version, not to be written: shared"),
        pytest.param({"version": "8"}, 2, id="SI-14 of a newer version: read again"),
        pytest.param({"version": ""}, 2, id="of no version: read again"),
        pytest.param({"version": "7", "uid": "x"}, 2, id="of another object: read again"),
        pytest.param({"version": "7", "uid": ""}, 2, id="of no object: read again"),
    ],
)
@in_virtual_time
async def test_si14_a_read_is_shared_only_where_it_is_new_enough(
    resource: str, later: dict[str, str], reads: int
) -> None:
    """D-20, SI-14: a label that was set after the read was sent counts for the review after it."""
    client = SlowClient()
    client.put(resource, labelled("before"))
    relabelled = labelled("after", version="8")

    first, second = await list_while_reading(
        client,
        scale(resource),
        lambda: client.put(resource, relabelled),
        scale(resource, **later),
    )

    assert isinstance(first, Parent)
    assert isinstance(second, Parent)
    assert first.labels["grafana.com/no-downscale"] == "before"
    expected = "before" if reads == 1 else "after"
    assert second.labels["grafana.com/no-downscale"] == expected
    assert client.calls == [f"get {resource}/zone-a"] * reads


@in_virtual_time
async def test_si14_that_there_was_no_object_is_not_believed_for_one_that_came_since() -> None:
    """SI-13: an error from before the review is no answer to it, and 404 would let it pass."""
    client, requested = SlowClient(), scale("deployments")
    created = labelled("after")

    first, second = await list_while_reading(
        client, requested, lambda: client.put("deployments", created), requested
    )

    assert isinstance(first, NotFound)
    assert isinstance(second, Parent)
    assert second.labels["grafana.com/no-downscale"] == "after"


@in_virtual_time
async def test_an_error_is_one_for_all_callers_before_the_read() -> None:
    """D-53: 60 reviews of what cannot be read are two reads."""
    rig = Rig(stored(), None)

    async def fail(call: str) -> None:
        await rig.clock.sleep(timedelta(seconds=1))
        raise Throttled("own limiter")

    async def send_request() -> str:
        with pytest.raises(Throttled) as caught:
            await rig.find(scale("deployments"))
        return str(caught.value)

    rig.client.pause = fail
    assert await gather_all(send_request() for _ in range(60)) == ["own limiter"] * 60
    assert rig.client.calls == ["get deployments/zone-a"] * 2
