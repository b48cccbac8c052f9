"""The snapshot for one decision on a schedule, taken from the caches at one moment."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from rollout_operator.controllers.releases.schedules.gates import KeptGates
from rollout_operator.kube.cache.followed import FollowedKind
from rollout_operator.model.objects import AnyWatched, Unreadable, WatchedObject, list_decoded
from rollout_operator.model.releases.compat import ReleaseCompat
from rollout_operator.model.releases.namespace import LabelledNamespace
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.model.releases.schedule import ScheduleObject
from rollout_operator.model.releases.schedule_plan import GatedRollout, ScheduleSnapshot
from rollout_operator.planning.rollout.zones import SNAPSHOT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleKinds:
    """The kinds that schedules depend on: of one namespace, or of the cluster."""

    schedules: FollowedKind
    rollouts: FollowedKind
    gates: FollowedKind
    namespaces: FollowedKind | None = None
    """None where schedules are of one namespace."""

    def list_kinds(self) -> tuple[FollowedKind, ...]:
        """Return all followed kinds."""
        own = (self.schedules, self.rollouts, self.gates)
        return own if self.namespaces is None else (*own, self.namespaces)

    def find_lack(self) -> str | None:
        """Say why nothing may be decided yet: a kind is not known, or its cache is too old."""
        for kind in self.list_kinds():
            if kind.lack is not None:
                return kind.lack
            if kind.age > SNAPSHOT_LIMIT:
                return f"{kind.kind}: the cache is {kind.age.total_seconds():.0f}s old"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleObserver:
    """Takes the snapshots of schedules."""

    kinds: ScheduleKinds
    gates: KeptGates
    now: Callable[[], datetime]
    """The API server's time."""
    compat: ReleaseCompat

    def observe(self, schedule: ScheduleObject) -> ScheduleSnapshot:
        """Return the snapshot of now."""
        return ScheduleSnapshot(
            schedule=schedule,
            now=self.now(),
            rollouts=tuple(self._list_rollouts()),
            gates=self.gates.list_all(),
            namespaces=self._map_namespaces(),
            compat=self.compat,
        )

    def _list_rollouts(self) -> Iterator[GatedRollout]:
        for watched in self.kinds.rollouts.store.list_all():
            rollout = read_gated(watched)
            if rollout is not None:
                yield rollout

    def _map_namespaces(self) -> Mapping[str, Mapping[str, str]]:
        followed = self.kinds.namespaces
        namespaces = (
            () if followed is None else list_decoded(followed.store.list_all(), LabelledNamespace)
        )
        return {namespace.head.name: namespace.labels for namespace in namespaces}


def read_gated(watched: AnyWatched | None) -> GatedRollout | None:
    """Return a Rollout as schedules use it; also a Rollout that cannot be read has gates."""
    if isinstance(watched, Unreadable):
        return GatedRollout(namespace=watched.namespace, name=watched.name, labels=watched.labels)
    if not isinstance(watched, WatchedObject):
        return None
    rollout = watched.decoded
    if not isinstance(rollout, ReleaseRollout | RefusedRelease):
        return None
    return GatedRollout(
        namespace=watched.namespace,
        name=watched.name,
        labels=rollout.labels,
        is_terminating=rollout.head.is_terminating,
    )
