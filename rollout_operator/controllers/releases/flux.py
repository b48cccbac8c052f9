"""Objects of Flux in one namespace: their known state, and writes of single fields of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from rollout_operator.controllers.own_writes import NewestObjects
from rollout_operator.controllers.releases.caches import list_tags, tag_rollout, tag_source
from rollout_operator.kube.api import Applier, JsonObject, Patcher, Reader, Resource
from rollout_operator.kube.cache.followed import FollowedKind
from rollout_operator.model.decode.releases.kinds import DECODERS
from rollout_operator.model.errors import Conflict, NotFound, UnknownOutcome
from rollout_operator.model.objects import list_decoded
from rollout_operator.model.releases.flux import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    FluxObject,
    FluxWrite,
    PatchMethod,
)
from rollout_operator.model.releases.plan import FluxTarget
from rollout_operator.model.units import format_rfc3339
from rollout_operator.telemetry.logs import log

# Flux reconciles an object as soon as this changes.
REQUESTED_AT: Final = "reconcile.fluxcd.io/requestedAt"


class FluxClient(Reader, Patcher, Applier, Protocol):
    """What a FluxObjects calls."""


ListFlux = Callable[[str, Sequence[str]], Iterable[FluxObject]]
"""Returns the objects of a kind that mention any of these tags, in any order."""


def gather_flux(rollout: str, list_flux: ListFlux) -> tuple[FluxObject, ...]:
    """Return what a Rollout writes, wrote or waits for, as far as it can be read.

    OCIRepositories come first, and each kind by name.
    """
    tags = tag_rollout(rollout)
    written = sorted(list_flux(OCI_REPOSITORY, tags), key=_get_name)
    sources = [tag_source(repository.reference) for repository in written]
    return (*written, *sorted(list_flux(KUSTOMIZATION, (*tags, *sources)), key=_get_name))


def index_flux(objects: Iterable[FluxObject]) -> ListFlux:
    """Return what finds objects that were listed once."""
    tagged = [(flux, frozenset(list_tags(flux))) for flux in objects]
    return lambda kind, tags: (
        flux for flux, own in tagged if flux.kind == kind and not own.isdisjoint(tags)
    )


def _get_name(flux: FluxObject) -> str:
    return flux.head.name


class FluxObjects:
    """The objects that carry tags. Writes of this process count until the caches show them."""

    def __init__(
        self,
        client: FluxClient,
        namespace: str,
        repositories: FollowedKind,
        kustomizations: FollowedKind,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._kinds: Mapping[str, FollowedKind] = {
            OCI_REPOSITORY: repositories,
            KUSTOMIZATION: kustomizations,
        }
        self._newest = {
            kind: NewestObjects(followed.store.get, namespace, client, DECODERS[kind])
            for kind, followed in self._kinds.items()
        }
        self._doubtful: set[tuple[str, str]] = set()

    def get_flux(self, rollout: str) -> tuple[FluxObject, ...]:
        """Return what a Rollout writes, wrote or waits for, as far as it can be read."""
        return gather_flux(rollout, self._list_newest)

    def _list_newest(self, kind: str, tags: Sequence[str]) -> tuple[FluxObject, ...]:
        """Return the newest state of each object that mentions any of these."""
        cached = self._kinds[kind].store.list_tagged(*tags)
        return list_decoded(map(self._newest[kind].choose, cached), FluxObject)

    async def settle(self) -> None:
        """Read back objects with unanswered writes. Raises as `Reader.fetch`, and DecodeError."""
        for kind, name in tuple(self._doubtful):
            resource = self._kinds[kind].resource
            if resource is not None:
                try:
                    await self._newest[kind].read_back(resource, name)
                except NotFound:
                    log.debug("Object of Flux is gone", kind=kind, name=name)
            self._doubtful.discard((kind, name))

    async def try_write(self, write: FluxWrite) -> None:
        """Ask whether fields of an object would be written. Raises as `Applier.apply`."""
        if write.method is PatchMethod.APPLY:
            await self._apply(write, is_trial=True)

    async def write(self, write: FluxWrite) -> None:
        """Write fields of an object. Raises as `Applier.apply`, and DecodeError."""
        log.info("Writing an object of Flux", reason=write.code, why=write.text)
        name = write.head.name
        match write.method:
            case PatchMethod.APPLY:
                call = self._apply(write)
            case PatchMethod.MERGE:
                resource = self._get_resource(write.kind)
                call = self._client.patch(resource, self._namespace, name, dict(write.body))
        try:
            self._newest[write.kind].record(await call)
        except (Conflict, UnknownOutcome):
            self._doubtful.add((write.kind, name))
            raise

    async def _apply(self, write: FluxWrite, *, is_trial: bool = False) -> bytes:
        return await self._client.apply(
            self._get_resource(write.kind),
            self._namespace,
            write.head.name,
            dict(write.body),
            manager=write.manager,
            is_forced=write.is_forced,
            is_trial=is_trial,
        )

    async def request(self, target: FluxTarget, now: datetime) -> None:
        """Have Flux reconcile an object now. Raises as `Patcher.patch`."""
        patch: JsonObject = {"metadata": {"annotations": {REQUESTED_AT: format_rfc3339(now)}}}
        resource = self._get_resource(target.kind)
        await self._client.patch(resource, self._namespace, target.name, patch)

    def _get_resource(self, kind: str) -> Resource:
        resource = self._kinds[kind].resource
        if resource is None:
            raise NotFound(f"cannot write {kind}: the cluster does not have this kind any more")
        return resource
