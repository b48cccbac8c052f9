"""The reads of `doctor` about releases: few where there is none, and no operator makes them."""

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.kube import release_kinds as kinds
from rollout_operator.kube.api import DEPLOYMENTS, Resource
from rollout_operator.model.decode.broken import decode_or_salvage
from rollout_operator.model.decode.installation import decode_kuberik
from rollout_operator.model.decode.releases.flux import (
    decode_image_policy,
    decode_image_repository,
    decode_kustomization,
    decode_oci_repository,
)
from rollout_operator.model.decode.releases.gate import decode_gate
from rollout_operator.model.decode.releases.head import read_head
from rollout_operator.model.decode.releases.health import decode_health_check
from rollout_operator.model.decode.releases.rollout import KIND, decode_rollout
from rollout_operator.model.decode.releases.schedule import decode_schedule
from rollout_operator.model.diagnosis.installation import Installation, Source
from rollout_operator.model.diagnosis.releases import InstalledReleases
from rollout_operator.model.errors import DecodeError
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.model.releases.schedule import CLUSTER_SCHEDULE, SCHEDULE
from rollout_operator.operator.diagnosis.listing import Decoder, Reading
from rollout_operator.planning.diagnosis.releases import makes

_DEPLOYMENTS: Final = structs.replace(DEPLOYMENTS, is_namespaced=False)
_OWN: Final = (
    kinds.ROLLOUTS,
    kinds.ROLLOUT_GATES,
    kinds.HEALTH_CHECKS,
    kinds.ROLLOUT_SCHEDULES,
    kinds.CLUSTER_ROLLOUT_SCHEDULES,
)
_OF_FLUX: Final = (
    kinds.IMAGE_POLICIES,
    kinds.IMAGE_REPOSITORIES,
    kinds.OCI_REPOSITORIES,
    kinds.KUSTOMIZATIONS,
)

T = TypeVar("T")


async def read_releases(reading: Reading, installation: Installation) -> InstalledReleases:
    """Return the installed releases; empty where there are none."""
    is_made = makes(installation)
    rollouts = await reading.list_all(Source.RELEASES, kinds.ROLLOUTS, _decode_any)
    if not is_made:
        reading.unread.pop(Source.RELEASES, None)  # most users need no right to read them
    if not is_made and not rollouts:
        return InstalledReleases()
    others = await _list_quietly(reading, _DEPLOYMENTS, decode_kuberik)
    listing = _Listing(reading)
    own, flux = listing.list_own, listing.list_of_flux
    cluster = kinds.CLUSTER_ROLLOUT_SCHEDULES
    decode_wide = listing.decode(cluster, partial(decode_schedule, CLUSTER_SCHEDULE))
    releases = InstalledReleases(
        rollouts=rollouts,
        gates=await own(kinds.ROLLOUT_GATES, decode_gate),
        checks=await own(kinds.HEALTH_CHECKS, decode_health_check),
        schedules=(
            *await own(kinds.ROLLOUT_SCHEDULES, partial(decode_schedule, SCHEDULE)),
            *filter(None, await _list_quietly(reading, cluster, decode_wide)),
        ),
        policies=await flux(kinds.IMAGE_POLICIES, decode_image_policy),
        repositories=await flux(kinds.IMAGE_REPOSITORIES, decode_image_repository),
        sources=await flux(kinds.OCI_REPOSITORIES, decode_oci_repository),
        kustomizations=await flux(kinds.KUSTOMIZATIONS, decode_kustomization),
        others=tuple(filter(None, others)),
    )
    unknown = [versions[0] for versions in _OF_FLUX if reading.unknown.issuperset(versions)]
    return replace(
        releases,
        missing=tuple(kind.kind for kind in _OWN if kind in reading.unknown),
        missing_of_flux=tuple(kind.kind for kind in unknown),
        unreadable=tuple(listing.unreadable),
    )


class _Listing(msgspec.Struct, frozen=True):
    """Lists objects kind by kind; an unreadable object hides no other."""

    reading: Reading
    unreadable: list[Unreadable] = []

    async def list_own(self, resource: Resource, decode: Decoder[T]) -> tuple[T, ...]:
        return await self._list(Source.RELEASES, resource, decode)

    async def list_of_flux(self, versions: Sequence[Resource], decode: Decoder[T]) -> tuple[T, ...]:
        """Return the objects in the first version that the API server knows."""
        for resource in versions:
            objects = await self._list(Source.FLUX, resource, decode)
            if resource not in self.reading.unknown:
                return objects
        return ()

    def decode(self, resource: Resource, decode: Decoder[T]) -> Decoder[T | None]:
        """Return what reads an object, or records that it cannot be read."""

        def decode_or_record(raw: msgspec.Raw) -> T | None:
            found = decode_or_salvage(resource.kind, decode, raw)
            if not isinstance(found, Unreadable):
                return found
            self.unreadable.append(found)
            return None

        return decode_or_record

    async def _list(self, source: Source, resource: Resource, decode: Decoder[T]) -> tuple[T, ...]:
        objects = await self.reading.list_all(source, resource, self.decode(resource, decode))
        return tuple(each for each in objects if each is not None)


def _decode_any(raw: msgspec.Raw) -> ReleaseRollout | RefusedRelease:
    """Return a Rollout; a Rollout whose status cannot be read is refused, and hides no other."""
    try:
        return decode_rollout(raw)
    except DecodeError as error:
        read = read_head(KIND, raw)
        return RefusedRelease(head=read.head, problem=f"{error}", labels=read.labels)


async def _list_quietly(reading: Reading, resource: Resource, decode: Decoder[T]) -> tuple[T, ...]:
    """Return objects of the cluster; where they may not be listed none, without a remark."""
    own = Reading(reading.client, reading.namespace, unknown=reading.unknown)
    return await own.list_all(Source.RELEASES, resource, decode)
