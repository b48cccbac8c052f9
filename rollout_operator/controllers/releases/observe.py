"""The snapshot for one decision on a Rollout, taken from the caches at one moment.

Objects in other namespaces are read live: an image policy, where a Rollout names it, and the
ImageRepository of a policy. Registries are read beside this, in `look_ups`.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final, TypeVar, cast

import msgspec

from rollout_operator.controllers.releases.caches import ReleaseCaches, WideChecks
from rollout_operator.controllers.releases.flux import FluxObjects
from rollout_operator.controllers.releases.look_ups import LookUpKey, ReleaseLookUps
from rollout_operator.controllers.releases.schedules.observe import FollowedSchedules
from rollout_operator.kube.api import Reader
from rollout_operator.kube.cache.followed import FollowedKind
from rollout_operator.model.decode.releases.flux import decode_image_policy, decode_image_repository
from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.errors import DecodeError, Denied, InvalidInput, NotFound
from rollout_operator.model.objects import Unreadable, list_decoded
from rollout_operator.model.releases.flux import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    FluxReference,
    ImagePolicy,
    ImageRepository,
)
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.plan import FluxTarget, PolicyReading, ReleaseSnapshot
from rollout_operator.model.releases.reference import parse_repository
from rollout_operator.model.releases.release import ReleaseMetadata
from rollout_operator.model.releases.rollout import (
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseRollout,
)
from rollout_operator.planning.releases import conditions
from rollout_operator.planning.releases.discovery import needs_metadata
from rollout_operator.planning.releases.flux import list_targets

Kept = TypeVar("Kept")

NO_POLICIES: Final = "the cluster has no image policies: Flux is not installed, or not all of it"
NO_TARGETS: Final = "the cluster has neither OCIRepositories nor Kustomizations to write a tag to"
NO_OTHERS: Final = "other namespaces are left alone by -releases.no-cross-namespace-refs"


class Unobserved(Exception):
    """Within this package: a decision needs an unreadable object. `reason` is that of `Ready`."""

    def __init__(self, problem: str, reason: str = "") -> None:
        super().__init__(problem)
        self.reason = reason


class ReleaseObserver(msgspec.Struct, frozen=True, kw_only=True):
    """Takes the snapshots of one namespace."""

    namespace: str
    caches: ReleaseCaches
    flux: FluxObjects
    look_ups: ReleaseLookUps | None
    """None where no registry is read."""
    reader: Reader
    wide: WideChecks
    """HealthChecks of other namespaces."""
    schedules: FollowedSchedules
    now: Callable[[], datetime]
    """The API server's time."""
    compat: ReleaseCompat
    verifies_wanted: bool = False
    """Whether a pin of a tag that the registry does not have is held."""
    keeps_to_namespace: bool = False
    """Whether references to objects of other namespaces are refused."""

    def find_lack(self) -> str | None:
        """Say why nothing may be decided yet."""
        return self.caches.find_lack() or self.schedules.find_lack()

    async def observe(
        self, rollout: ReleaseRollout | RefusedRelease, write_problem: str = ""
    ) -> ReleaseSnapshot:
        """Return the snapshot of now. Raises what `Reader.fetch` raises, and DecodeError.

        `write_problem` is why an object of Flux could not be written last time.
        """
        if isinstance(rollout, RefusedRelease):
            if rollout.announced is None:
                return ReleaseSnapshot(rollout=rollout, now=self.now(), compat=self.compat)
            return msgspec.structs.replace(await self.observe(rollout.announced), rollout=rollout)
        await self.flux.settle()
        metadata: Mapping[str, ReleaseMetadata | None] = {}
        is_wide = False
        try:
            self._check_kinds()
            is_wide = self._check_selection(rollout)
            policy = await self._read_policy(rollout)
            reading = describe_policy(policy)
            if self.look_ups is not None:
                metadata = await self._look_up(rollout, policy, self.look_ups)
        except Unobserved as error:
            reading = PolicyReading(problem=str(error), reason=error.reason)
        current, name = rollout.status.current, rollout.head.name
        # From here on nothing waits: all of it is of one moment.
        flux, now = self.flux.get_flux(name), self.now()
        gates = list_decoded(self.caches.gates.store.list_tagged(name), ReleaseGate)
        tag = None if current is None else current.version.tag
        targets = list_targets(name, tag, flux)
        if not reading.problem and (lack := explain_absence(self._list_absent(), targets)):
            reading = PolicyReading(problem=lack, reason=conditions.NO_FLUX)
        return ReleaseSnapshot(
            rollout=rollout,
            now=now,
            policy=reading,
            metadata=metadata,
            gates=gates,
            schedule_holds=self.schedules.list_holds(rollout, gates, now),
            checks=self.wide.list_checks() if is_wide else self._list_checks(rollout),
            namespaces=self.wide.map_labels() if is_wide else {},
            targets=targets,
            write_problem=write_problem,
            verifies_wanted=self.verifies_wanted,
            compat=self.compat,
        )

    def _check_kinds(self) -> None:
        """Raise Unobserved where a kind may not be read, or where there is no Flux."""
        caches = self.caches
        if caches.gates.is_forbidden:
            raise Unobserved(str(caches.gates.lack), conditions.GATES_UNKNOWN)
        if caches.checks.is_forbidden:
            raise Unobserved(str(caches.checks.lack), conditions.CHECKS_UNKNOWN)
        for kind in (caches.policies, caches.oci_repositories, caches.kustomizations):
            if kind.is_forbidden:
                raise Unobserved(str(kind.lack))
        if caches.policies.is_absent:
            raise Unobserved(NO_POLICIES, conditions.NO_FLUX)
        if lack := explain_absence(self._list_absent()):
            raise Unobserved(lack, conditions.NO_FLUX)

    def _list_absent(self) -> list[str]:
        kinds = (self.caches.oci_repositories, self.caches.kustomizations)
        return [kind.kind for kind in kinds if kind.is_absent]

    def _check_selection(self, rollout: ReleaseRollout) -> bool:
        """Return whether other namespaces are read; raise Unobserved where they may not be."""
        checks = rollout.spec.checks
        if checks is None or checks.namespaces is None:
            return False
        if problem := self.wide.find_problem():
            raise Unobserved(problem, conditions.CHECKS_UNKNOWN)
        return True

    def _list_checks(self, rollout: ReleaseRollout) -> tuple[HealthCheck, ...]:
        if rollout.spec.checks is None:
            return ()
        return list_decoded(self.caches.checks.store.list_all(), HealthCheck)

    async def _read_policy(self, rollout: ReleaseRollout) -> ImagePolicy:
        spec = rollout.spec
        place = FluxReference(
            kind="ImagePolicy",
            namespace=spec.policy_namespace or self.namespace,
            name=spec.policy_name,
        )
        return await self._read(place, self.caches.policies, decode_image_policy)

    async def _read(
        self, place: FluxReference, kind: FollowedKind, decode: Callable[[JsonBytes], Kept]
    ) -> Kept:
        """Return another object: from the cache, or from another namespace by a live read."""
        text = f"{place.kind} {place.namespace}/{place.name}"
        if not place.name:
            raise Unobserved(f"{place.kind}: no name is given")
        if place.namespace == self.namespace:
            stored = kind.store.get(place.namespace, place.name)
            if isinstance(stored, Unreadable):
                raise Unobserved(stored.error)
            if stored is None:
                raise Unobserved(f"{text}: there is none")
            return cast(Kept, stored.decoded)
        if self.keeps_to_namespace:
            raise Unobserved(f"{text}: {NO_OTHERS}")
        if kind.resource is None:
            raise Unobserved(f"{text}: the cluster does not have this kind")
        try:
            return decode(await self.reader.fetch(kind.resource, place.namespace, place.name))
        except NotFound as error:
            raise Unobserved(f"{text}: there is none") from error
        except (Denied, DecodeError) as error:
            raise Unobserved(str(error)) from error

    async def _look_up(
        self, rollout: ReleaseRollout, policy: ImagePolicy, look_ups: ReleaseLookUps
    ) -> Mapping[str, ReleaseMetadata | None]:
        """Return the known answers of registries about the releases that may come next."""
        wanted, spec = rollout.spec.wanted_version, rollout.spec
        tags = {release.tag for release in rollout.status.available_releases}
        digests: dict[str, str | None] = {}
        latest = policy.latest
        if latest and needs_metadata(rollout.status, latest.tag, latest.digest):
            digests[latest.tag] = latest.digest
        if wanted is not None and wanted not in tags:
            digests.setdefault(wanted, None)
        if not digests:
            return {}
        try:
            repository = await self._read(
                policy.repository, self.caches.image_repositories, decode_image_repository
            )
            _check_access(policy, repository, self.namespace)
        except Unobserved as error:
            for tag in digests:
                look_ups.report_problem(LookUpKey(rollout.head.name, tag), error)
            return {}
        releases = {
            tag: await look_ups.fetch(
                LookUpKey(rollout.head.name, tag), repository, spec.update_interval, digest
            )
            for tag, digest in digests.items()
        }
        return {tag: metadata for tag, (is_known, metadata) in releases.items() if is_known}


def explain_absence(absent: Collection[str], targets: Collection[FluxTarget] | None = None) -> str:
    """Return why no object can get a tag; empty where one can, or where all kinds are there.

    `absent` are kinds that the cluster does not have. What a Rollout writes to may be of these, if
    it has no targets; None: they are not known yet.
    """
    missing = [kind for kind in (OCI_REPOSITORY, KUSTOMIZATION) if kind in absent]
    if len(missing) > 1:
        return NO_TARGETS
    if not missing or targets is None or targets:
        return ""
    return (
        f"the cluster has no kind {missing[0]}, and no object of another kind is annotated for it"
    )


def _check_access(policy: ImagePolicy, repository: ImageRepository, own: str) -> None:
    """Raise Unobserved where a policy may not use an ImageRepository of another namespace.

    Flux knows by `spec.accessFrom` which policies may, and selects a tag of that image for no other
    policy. Else any writer of a policy could have a registry read with the pull secret of another
    namespace.
    """
    if repository.head.namespace == own:
        return
    try:
        image = None if policy.latest is None else parse_repository(policy.latest.image)
    except InvalidInput:
        image = None
    if image != repository.image:
        place = f"ImageRepository {repository.head.key}"
        raise Unobserved(f"{place}: Flux has selected no tag of its image for {policy.head.key}")


def describe_policy(policy: ImagePolicy) -> PolicyReading:
    """Return an image policy as decisions use it."""
    latest = policy.latest
    return PolicyReading(
        latest=None if latest is None else latest.tag,
        digest=None if latest is None else latest.digest,
        order=policy.order,
    )
