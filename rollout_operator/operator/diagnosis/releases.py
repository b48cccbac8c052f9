"""The releases of a namespace from one list: described as the operator describes them.

Statuses say what was decided, so that nothing is decided anew. An object that may not be read is
left out, with a remark where a Rollout rests on it: most people need no right to any of these
kinds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rollout_operator.aio.tasks import gather_all
from rollout_operator.controllers.releases.caches import list_tags
from rollout_operator.controllers.releases.flux import gather_flux
from rollout_operator.kube import release_kinds as kinds
from rollout_operator.kube.api import NAMESPACES, Resource
from rollout_operator.kube.cache.store import WatchedStore
from rollout_operator.model.decode.releases.flux import decode_kustomization, decode_oci_repository
from rollout_operator.model.decode.releases.gate import decode_gate
from rollout_operator.model.decode.releases.head import Headed, decode_labelled_namespace, watch_as
from rollout_operator.model.decode.releases.health import decode_health_check
from rollout_operator.model.decode.releases.rollout import decode_rollout
from rollout_operator.model.decode.releases.schedule import decode_schedule
from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.described.releases import (
    HealthCheckDescription,
    ReleaseDescription,
    ScheduleDescription,
)
from rollout_operator.model.errors import ApiError, Denied, NotFound
from rollout_operator.model.objects import AnyWatched, Unreadable, list_decoded
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.rollout import (
    LabelledNamespace,
    RefusedRelease,
    ReleaseGate,
    ReleaseRollout,
)
from rollout_operator.model.releases.schedule import CLUSTER_SCHEDULE, SCHEDULE, ScheduleObject
from rollout_operator.operator.diagnosis.listing import Lister
from rollout_operator.planning.description.releases.gates import describe_schedule
from rollout_operator.planning.description.releases.rollouts import (
    RelatedObjects,
    describe_check,
    describe_release,
    describe_unreadable_release,
)
from rollout_operator.planning.releases.flux import list_targets
from rollout_operator.planning.releases.health import selects_namespaces

ALL_ROLLOUTS: Final = replace(kinds.ROLLOUTS, is_namespaced=False)
_ALL_CHECKS: Final = replace(kinds.HEALTH_CHECKS, is_namespaced=False)


class ListedReleases(msgspec.Struct, frozen=True, kw_only=True):
    """All objects that were listed in one namespace."""

    rollouts: Sequence[AnyWatched] = ()
    gates: Sequence[AnyWatched] = ()
    checks: Sequence[AnyWatched] = ()
    schedules: Sequence[AnyWatched] = ()
    repositories: Sequence[AnyWatched] = ()
    kustomizations: Sequence[AnyWatched] = ()
    wide_checks: Sequence[AnyWatched] = ()
    """HealthChecks of all namespaces, where a Rollout selects namespaces."""
    namespaces: Sequence[AnyWatched] = ()


class ReleaseReader(msgspec.Struct, frozen=True):
    """Lists the objects of releases in one namespace; `remarks` takes what could not be read."""

    lister: Lister
    namespace: str
    remarks: list[str]

    async def read(self) -> ListedReleases:
        """Return the objects; empty where there is no Rollout, or none may be read."""
        namespace = self.namespace
        try:
            rollouts = await self.lister.list_all(
                kinds.ROLLOUTS, namespace, watch_as(decode_rollout)
            )
        except (NotFound, Denied):
            return ListedReleases()
        except ApiError as error:
            self.remarks.append(f"Rollouts are left out: {error}")
            return ListedReleases()
        if not rollouts:
            return ListedReleases()
        gates, checks, own, common, repositories, kustomizations = await gather_all(
            (
                self._list(namespace, decode_gate, kinds.ROLLOUT_GATES),
                self._list(namespace, decode_health_check, kinds.HEALTH_CHECKS),
                self._list(namespace, partial(decode_schedule, SCHEDULE), kinds.ROLLOUT_SCHEDULES),
                self._list(
                    "", partial(decode_schedule, CLUSTER_SCHEDULE), kinds.CLUSTER_ROLLOUT_SCHEDULES
                ),
                self._list(namespace, decode_oci_repository, *kinds.OCI_REPOSITORIES),
                self._list(namespace, decode_kustomization, *kinds.KUSTOMIZATIONS),
            )
        )
        listed = ListedReleases(
            rollouts=rollouts,
            gates=gates,
            checks=checks,
            schedules=(*own, *common),
            repositories=repositories,
            kustomizations=kustomizations,
        )
        if not any(map(selects_namespaces, list_decoded(rollouts, ReleaseRollout))):
            return listed
        wide = await self._list("", decode_health_check, _ALL_CHECKS)
        namespaces = await self._list("", decode_labelled_namespace, NAMESPACES)
        return replace(listed, wide_checks=wide, namespaces=namespaces)

    async def _list(
        self, namespace: str, decode: Callable[[JsonBytes], Headed], *versions: Resource
    ) -> Sequence[AnyWatched]:
        """Return the objects in the first version that is served; empty where there is none."""
        for resource in versions:
            try:
                return await self.lister.list_all(resource, namespace, watch_as(decode))
            except NotFound:
                continue
            except ApiError as error:
                # Few people may read objects of the cluster: what rests on them says so itself.
                if resource is not kinds.CLUSTER_ROLLOUT_SCHEDULES or not isinstance(error, Denied):
                    self.remarks.append(f"{resource.plural} are left out: {error}")
                return ()
        return ()


class ObservedReleases(msgspec.Struct, frozen=True):
    """Describes the listed objects."""

    listed: ListedReleases

    def describe_releases(self) -> tuple[ReleaseDescription, ...] | UnsetType:
        """Return all Rollouts by name; UNSET where there is none."""
        common = RelatedObjects(
            gates=list_decoded(self.listed.gates, ReleaseGate),
            schedules=self._list_schedules(),
            checks=self._list_checks(),
        )
        descriptions: list[ReleaseDescription] = []
        for rollout in sorted(self.listed.rollouts, key=lambda each: each.name):
            if isinstance(rollout, Unreadable):
                descriptions.append(describe_unreadable_release(rollout))
            elif isinstance(rollout.decoded, ReleaseRollout | RefusedRelease):
                descriptions.append(
                    describe_release(rollout.decoded, self._relate(rollout.decoded, common))
                )
        return tuple(descriptions) or UNSET

    def describe_schedules(self) -> tuple[ScheduleDescription, ...] | UnsetType:
        """Return the schedules of the namespace, and those of the cluster; UNSET for none."""
        return tuple(map(describe_schedule, self._list_schedules())) or UNSET

    def describe_checks(self) -> tuple[HealthCheckDescription, ...] | UnsetType:
        """Return the HealthChecks of the namespace by name; UNSET where there is none."""
        rollouts = list_decoded(self.listed.rollouts, ReleaseRollout)
        labels = self._map_labels()
        descriptions = (describe_check(check, rollouts, labels) for check in self._list_checks())
        return tuple(descriptions) or UNSET

    def _relate(
        self, rollout: ReleaseRollout | RefusedRelease, common: RelatedObjects
    ) -> RelatedObjects:
        if isinstance(rollout, RefusedRelease):
            return common
        current, name = rollout.status.current, rollout.head.name
        tag = None if current is None else current.version.tag
        flux = gather_flux(
            name, _store(self.listed.repositories), _store(self.listed.kustomizations)
        )
        related = msgspec.structs.replace(common, targets=list_targets(name, tag, flux))
        if not selects_namespaces(rollout):
            return related
        checks = list_decoded(self.listed.wide_checks, HealthCheck)
        return msgspec.structs.replace(related, checks=checks, namespaces=self._map_labels())

    def _list_checks(self) -> tuple[HealthCheck, ...]:
        checks = list_decoded(self.listed.checks, HealthCheck)
        return tuple(sorted(checks, key=lambda check: check.head.name))

    def _map_labels(self) -> Mapping[str, Mapping[str, str]]:
        namespaces = list_decoded(self.listed.namespaces, LabelledNamespace)
        return {namespace.head.name: namespace.labels for namespace in namespaces}

    def _list_schedules(self) -> tuple[ScheduleObject, ...]:
        schedules = list_decoded(self.listed.schedules, ScheduleObject)
        return tuple(
            sorted(
                schedules, key=lambda schedule: (schedule.head.namespace == "", schedule.head.name)
            )
        )


def _store(objects: Sequence[AnyWatched]) -> WatchedStore:
    """Return a store that finds objects by what they mention."""
    store = WatchedStore(list_tags)
    store.replace_all(objects)
    return store
