"""The releases of a namespace from one list: described as the operator describes them.

Statuses say what was decided, so that nothing is decided anew. An object that may not be read is
left out, with a remark where a Rollout rests on it: most people need no right to any of these
kinds.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rollout_operator.aio.tasks import gather_all
from rollout_operator.controllers.releases.flux import ListFlux, gather_flux, index_flux
from rollout_operator.kube import release_kinds as kinds
from rollout_operator.kube.api import NAMESPACES, Resource
from rollout_operator.model.decode.releases.kinds import DECODERS
from rollout_operator.model.described.releases import (
    HealthCheckDescription,
    ReleaseDescription,
    ScheduleDescription,
)
from rollout_operator.model.errors import ApiError, Denied, NotFound
from rollout_operator.model.objects import AnyWatched, list_decoded
from rollout_operator.model.releases.objects import ReleaseObjects, gather_releases
from rollout_operator.model.releases.plan import FluxTarget
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.operator.diagnosis.listing import Lister
from rollout_operator.planning.description.releases.gates import describe_schedule, order_schedules
from rollout_operator.planning.description.releases.rollouts import (
    describe_check,
    describe_release,
    describe_unreadable_release,
)
from rollout_operator.planning.releases.flux import list_targets
from rollout_operator.planning.releases.health import selects_namespaces

ALL_ROLLOUTS: Final = replace(kinds.ROLLOUTS, is_namespaced=False)
_ROLLOUTS: Final = (kinds.ROLLOUTS,)
_SHOWN: Final = (
    *((kinds.ROLLOUT_GATES,), (kinds.HEALTH_CHECKS,), (kinds.ROLLOUT_SCHEDULES,)),
    *((kinds.CLUSTER_ROLLOUT_SCHEDULES,), kinds.OCI_REPOSITORIES, kinds.KUSTOMIZATIONS),
    kinds.IMAGE_POLICIES,
)
_WIDE: Final = ((replace(kinds.HEALTH_CHECKS, is_namespaced=False),), (NAMESPACES,))
# Few people may read these: what rests on them says so itself.
_QUIET: Final = (kinds.ROLLOUTS, kinds.CLUSTER_ROLLOUT_SCHEDULES, kinds.IMAGE_POLICIES[0])


class ReleaseReader(msgspec.Struct, frozen=True):
    """Lists objects of releases in one namespace. What is absent, or fails, holds no other."""

    lister: Lister
    namespace: str
    absent: list[str] = []
    """Kinds that the API server does not know."""
    failures: list[tuple[Resource, ApiError]] = []

    async def list_all(self, *wanted: Sequence[Resource]) -> list[AnyWatched]:
        """Return the objects of all these kinds, each in the first version that is served."""
        objects: list[AnyWatched] = []
        read = await gather_all(map(self._list, wanted))
        for versions, found in zip(wanted, read, strict=True):
            if isinstance(found, NotFound):
                self.absent.append(versions[0].kind)
            elif isinstance(found, ApiError):
                self.failures.append((versions[0], found))
            else:
                objects += found
        return objects

    async def _list(self, versions: Sequence[Resource]) -> list[AnyWatched] | ApiError:
        absence = NotFound("")
        for resource in versions:
            namespace = self.namespace if resource.is_namespaced else ""
            try:
                return await self.lister.list_all(resource, namespace, DECODERS[resource.kind])
            except NotFound as error:
                absence = error
            except ApiError as error:
                return error
        return absence


async def read_shown_releases(
    lister: Lister, namespace: str, remarks: list[str]
) -> "ObservedReleases":
    """Return what is shown; nothing where there is no Rollout, or none may be read.

    `remarks` takes what could not be read.
    """
    reader = ReleaseReader(lister, namespace)
    objects = await reader.list_all(_ROLLOUTS)
    if objects:
        objects += await reader.list_all(*_SHOWN)
    if any(map(selects_namespaces, list_decoded(objects, ReleaseRollout))):
        wide = await reader.list_all(*_WIDE)
        objects += [each for each in wide if each.namespace != namespace]
    remarks += _explain_failures(reader.failures)
    return ObservedReleases(gather_releases(objects), namespace)


def _explain_failures(failures: Sequence[tuple[Resource, ApiError]]) -> Iterator[str]:
    for resource, error in failures:
        if not isinstance(error, Denied) or resource not in _QUIET:
            name = "Rollouts" if resource is kinds.ROLLOUTS else resource.plural
            yield f"{name} are left out: {error}"


class ObservedReleases(msgspec.Struct, frozen=True):
    """Describes the listed objects of one namespace."""

    objects: ReleaseObjects
    namespace: str

    def describe_releases(self) -> tuple[ReleaseDescription, ...] | UnsetType:
        """Return all Rollouts by name; UNSET where there is none."""
        list_flux = index_flux(self.objects.flux)
        broken = self.objects.list_unreadable(kinds.ROLLOUTS.kind)
        described = [
            *(
                describe_release(each, self.objects, _list_targets(each, list_flux))
                for each in self.objects.rollouts
            ),
            *map(describe_unreadable_release, broken),
        ]
        return tuple(sorted(described, key=lambda each: each.name)) or UNSET

    def describe_schedules(self) -> tuple[ScheduleDescription, ...] | UnsetType:
        """Return the schedules of the namespace, and those of the cluster; UNSET for none."""
        return tuple(map(describe_schedule, order_schedules(self.objects.schedules))) or UNSET

    def describe_checks(self) -> tuple[HealthCheckDescription, ...] | UnsetType:
        """Return the HealthChecks of the namespace by name; UNSET where there is none."""
        rollouts, labels = self.objects.list_obeyed(), self.objects.namespaces
        own = (each for each in self.objects.checks if each.head.namespace == self.namespace)
        described = (
            describe_check(each, rollouts, labels)
            for each in sorted(own, key=lambda check: check.head.name)
        )
        return tuple(described) or UNSET


def _list_targets(
    rollout: ReleaseRollout | RefusedRelease, list_flux: ListFlux
) -> tuple[FluxTarget, ...]:
    current, name = rollout.status.current, rollout.head.name
    tag = None if current is None else current.version.tag
    return list_targets(name, tag, gather_flux(name, list_flux))
