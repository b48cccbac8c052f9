"""A StatefulSet and its pods as the watches bring them to `Arrivals`: for tests of newcomers."""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_operator.guards.downscales.newcomers import LONGEST_GAP, Arrivals
from rollout_operator.guards.downscales.past_names import FORGOTTEN
from rollout_operator.kube.cache.store import PodStore, StatefulSetStore
from rollout_operator.model.group import Newcomers
from rollout_operator.model.names import PREPARE_DOWNSCALE, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from tests.builders import pod, sts, unreadable
from tests.fakes_clock import FakeClock

NO_GAP: Final = timedelta(0)
GAP: Final = LONGEST_GAP + timedelta(seconds=1)
MOMENT: Final = timedelta(seconds=1)


def prepared(replicas: int, **changes: object) -> StatefulSet:
    """Return a set whose downscales are prepared."""
    return sts("a", replicas, labels={PREPARE_DOWNSCALE: "true"}, **changes)


class World:
    """Stores as informers fill them, and what is told of each change.

    The process has watched for an hour when anything happens: at the start nothing is known.
    """

    def __init__(self, replicas: int, pods: str = "") -> None:
        self.sets, self.pods, self.clock = StatefulSetStore(), PodStore(), FakeClock()
        self.arrivals = Arrivals(self.sets, self.pods, self.clock)
        self._version = 1
        self.sts = prepared(replicas, generation=1)
        self.list_sets(self.sts)
        self.list_pods(*(pod("a", ordinal, state) for ordinal, state in enumerate(pods)))
        self.clock.jump(FORGOTTEN)

    def scale(self, replicas: int) -> None:
        self.change(replicas=replicas, generation=self.sts.generation + 1)

    def change(self, **changes: object) -> None:
        """Change the set, and have the watch bring it."""
        self.sts = replace(self.sts, resource_version=self._next(), **changes)
        self._upsert(self.sts)

    def spoil(self) -> None:
        """Have an event of the set come that cannot be decoded."""
        self._upsert(self.spoilt)

    @property
    def spoilt(self) -> Unreadable:
        found = unreadable("StatefulSet", self.sts.name)
        return replace(found, uid=self.sts.uid, resource_version=self._next())

    def delete(self, last: Unreadable | None = None) -> None:
        """Delete the set; the event shows its last state, or that it cannot be decoded."""
        end = last or replace(self.sts, resource_version=self._next())
        for old, new in self.sets.remove(end):
            self.arrivals.on_set(old, new)

    def create(self, replicas: int, **changes: object) -> None:
        """Create a set of that name anew."""
        self.change(uid=Uid("anew"), generation=1, replicas=replicas, **changes)

    def _upsert(self, one: StatefulSet | Unreadable) -> None:
        for old, new in self.sets.upsert(one):
            self.arrivals.on_set(old, new)

    def put(self, one: Pod) -> None:
        for old, new in self.pods.upsert(replace(one, resource_version=self._next())):
            self.arrivals.on_pod(old, new)

    def remove(self, ordinal: int) -> None:
        found = self.pods.get("test", f"zone-a-{ordinal}")
        assert isinstance(found, Pod)
        for old, new in self.pods.remove(replace(found, resource_version=self._next())):
            self.arrivals.on_pod(old, new)

    def remove_above(self, ordinal: int) -> None:
        """Have all pods above an ordinal go, as the controller makes them after a downscale."""
        for one in self.listed:
            if (place := int(one.name.rpartition("-")[2])) > ordinal:
                self.remove(place)

    def list_sets(self, *found: StatefulSet, gap: timedelta = timedelta.max) -> None:
        changes = self.sets.replace_all(found)
        self.arrivals.on_list(gap)
        for old, new in changes:
            self.arrivals.on_set(old, new)

    def list_changed(self, *, gap: timedelta, **changes: object) -> None:
        """Change the set, and have a list bring it."""
        self.sts = replace(self.sts, resource_version=self._next(), **changes)
        self.list_sets(self.sts, gap=gap)

    def list_pods(self, *found: Pod, gap: timedelta = timedelta.max) -> None:
        changes = self.pods.replace_all(found)
        self.arrivals.on_list(gap)
        for old, new in changes:
            self.arrivals.on_pod(old, new)

    @property
    def known(self) -> Newcomers:
        found = self.arrivals.get(self.sts.uid)
        assert found is not None
        return found

    @property
    def used(self) -> int:
        """Return how many of the wanted places are used."""
        return min(self.known.used, self.sts.replicas)

    @property
    def seen(self) -> tuple[int, set[str]]:
        return self.used, set(self.known.pods)

    @property
    def listed(self) -> list[Pod]:
        return [one for one in self.pods.list_all() if isinstance(one, Pod)]

    def _next(self) -> str:
        self._version += 1
        return f"{self._version}"


def new(ordinal: int, **changes: object) -> Pod:
    return pod("a", ordinal, "L", phase="Pending", **changes)
