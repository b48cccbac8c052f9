"""The object behind a Scale is taken from the cache where that is certainly fresh, else read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from rollout_operator.kube.store import StatefulSetStore
from rollout_operator.model.decode import decode_statefulset
from rollout_operator.model.errors import (
    ApiError,
    DecodeError,
    Denied,
    InvalidInput,
    NotFound,
    Unreachable,
)
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import StatefulSet, Unreadable
from rollout_operator.model.review import Review, Scalable, Unusable, Version
from rollout_operator.web.parents import CATCH_UP, Parent, Parents
from tests.controllers.fake_door import FakeDoor, Json
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
        self.door = FakeDoor([self.stored], [])
        self.store = StatefulSetStore()
        if self.cached is not None:
            self.store.upsert(self.cached)
        self.parents = Parents(self.store, self.door, namespace="test", clock=self.clock)

    async def find(self, review: Review, limit: timedelta = LIMIT) -> Parent:
        return await self.parents.find(review, self.clock.elapsed() + limit)


def stored(version: str = "7", uid: str = "uid-zone-a", **changes: object) -> Json:
    """Return the set as the API server holds it."""
    one = zone("zone-a", labels=LABELS)
    part(one, "metadata").update(resourceVersion=version, uid=uid, **changes)
    return one


def cached(version: str = "7", uid: str = "uid-zone-a") -> StatefulSet:
    """Return the set as the cache shows it; its own value of the label tells it from the store."""
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
    ("in_cache", "asked", "source", "reads"),
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
def test_the_cache_answers_only_where_it_is_fresh(
    in_cache: StatefulSet | Unreadable | None, asked: str, source: str, reads: int
) -> None:
    """T-06 /scale, D-20: SI-14 needs the labels that the write is admitted against."""

    @in_virtual_time
    async def find() -> None:
        rig = Rig(stored(), in_cache)
        found = await rig.find(scale(version=asked))
        assert found.labels["grafana.com/no-downscale"] == source
        assert rig.door.calls == ["get statefulsets/zone-a"] * reads

    find()


@in_virtual_time
async def test_a_cache_that_follows_in_a_moment_is_waited_for() -> None:
    """A watch is milliseconds behind: no read."""
    rig = Rig(stored(), cached("6"))
    begin = rig.clock.elapsed()

    class Following(StatefulSetStore):
        """Shows the new version from the third look on."""

        looks = 0

        def get(self, namespace: str, name: str) -> StatefulSet | Unreadable | None:
            self.looks += 1
            if self.looks == 3:
                self.upsert(cached("7"))
            return super().get(namespace, name)

    store = Following()
    store.upsert(cached("6"))
    parents = Parents(store, rig.door, namespace="test", clock=rig.clock)
    found = await parents.find(scale(), begin + LIMIT)
    assert found.labels["grafana.com/no-downscale"] == "cached"
    assert rig.door.calls == []
    assert rig.clock.elapsed() - begin == sum(CATCH_UP[:2], timedelta(0))


@in_virtual_time
async def test_the_wait_for_the_cache_ends_before_the_time_is_over() -> None:
    rig = Rig(stored(), cached("6"))
    await rig.find(scale(), timedelta(milliseconds=12))
    assert rig.clock.elapsed() == timedelta(milliseconds=5)
    assert rig.door.calls == ["get statefulsets/zone-a"]


@in_virtual_time
async def test_a_read_that_hangs_ends_in_time() -> None:
    """D-20: what cannot be read is told in time, whatever is made of it."""
    rig = Rig(stored())

    async def never(call: str) -> None:
        await rig.clock.sleep(timedelta(days=1))

    rig.door.pause = never
    with pytest.raises(Unreachable, match=r"no answer within 9\.0s"):
        await rig.find(scale())
    assert rig.clock.elapsed() == LIMIT


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (scale("pods"), InvalidInput, "unsupported resource pods"),
        (scale(at="other"), Denied, "namespace other is not looked after"),
    ],
)
def test_what_is_not_ours_is_not_read(asked: Review, error: type[ApiError], text: str) -> None:
    """NODOWN-05, SEC: no read in a namespace that the operator does not look after."""

    @in_virtual_time
    async def find() -> None:
        rig = Rig(stored(), cached())
        with pytest.raises(error, match=text):
            await rig.find(asked)
        assert rig.door.calls == []

    find()


@pytest.mark.parametrize("resource", ["deployments", "replicasets"])
def test_other_workloads_are_read(resource: str) -> None:
    """NODOWN-05: they are in no cache."""

    @in_virtual_time
    async def find() -> None:
        rig = Rig(stored(), cached())
        rig.door.put(resource, stored(annotations={"a": "b"}))
        found = await rig.find(scale(resource))
        assert found == Parent(
            labels={"rollout-group": "ingester", **LABELS}, annotations={"a": "b"}
        )

        rig.door.put(resource, {"metadata": {"name": "zone-a"}})
        assert await rig.find(scale(resource)) == Parent()

        with pytest.raises(NotFound):
            await rig.find(replace_name(scale(resource), "gone"))

    find()


@pytest.mark.parametrize("metadata", [{"name": "zone-a", "labels": []}, {"name": 1}])
def test_what_does_not_decode_is_told(metadata: Json) -> None:
    """SI-13: it is no absent label."""

    @in_virtual_time
    async def find() -> None:
        rig = Rig(stored())
        rig.door.objects["deployments", "zone-a"] = {"metadata": metadata}
        rig.door.objects["statefulsets", "zone-a"] = {"metadata": metadata}
        for resource in bad_kinds(metadata):
            with pytest.raises(DecodeError):
                await rig.find(scale(resource))

    find()


def bad_kinds(metadata: Json) -> Sequence[str]:
    """A name that is no text does not matter for a Deployment: nobody asks for it."""
    return ["statefulsets"] if metadata["name"] == 1 else ["statefulsets", "deployments"]


@in_virtual_time
async def test_a_review_without_an_old_object_is_read_for() -> None:
    rig = Rig(stored(), cached())
    asked = scale()
    bare = Review(
        version=asked.version,
        uid="u",
        resource=asked.resource,
        namespace="test",
        name="zone-a",
        old=Unusable("absent"),
        new=asked.new,
    )
    found = await rig.find(bare)
    assert found.labels["grafana.com/no-downscale"] == "true"


def replace_name(review: Review, name: str) -> Review:
    return Review(
        version=review.version,
        uid=review.uid,
        resource=review.resource,
        namespace=review.namespace,
        name=name,
        old=review.old,
        new=review.new,
    )
