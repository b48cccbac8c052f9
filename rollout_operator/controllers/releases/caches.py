"""The caches for releases: the kinds of `kuberik.com` and of Flux, each where it is there.

Decides whether the caches may be used for decisions, what objects mention, to find those of one
Rollout among thousands, and which Rollouts to reconcile when an object changes (REL-89). What the
absence of a kind means is decided in `observe`.

HealthChecks of all namespaces, for Rollouts that select namespaces, are followed if needed. A
process has one of these for all its namespaces. Unused, it costs no request.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NoReturn

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import NAMESPACES, Reader, Resource
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.followed import FollowedKind, KindSource, OnWatched
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.store import WatchedStore
from rollout_operator.kube.release_kinds import HEALTH_CHECKS
from rollout_operator.model.decode.releases.kinds import DECODERS
from rollout_operator.model.errors import Unreachable
from rollout_operator.model.objects import AnyWatched, list_decoded
from rollout_operator.model.releases.flux import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    FluxObject,
    FluxReference,
    ImagePolicy,
    ImageRepository,
)
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.rollout import (
    LabelledNamespace,
    RefusedRelease,
    ReleaseGate,
    ReleaseRollout,
)
from rollout_operator.model.releases.schedule import ScheduleObject
from rollout_operator.planning.releases.flux import name_manager
from rollout_operator.planning.releases.health import takes_check
from rollout_operator.planning.rollout.zones import SNAPSHOT_LIMIT

MakeInformer = Callable[[Collection[AnyWatched]], Informer[AnyWatched]]

# Of Rollouts that select HealthChecks by other means than the value of a label.
_SELECTS: Final = "selects:"


class ReleaseCaches(msgspec.Struct, frozen=True, kw_only=True):
    """The caches of one namespace."""

    rollouts: FollowedKind
    gates: FollowedKind
    checks: FollowedKind
    policies: FollowedKind
    image_repositories: FollowedKind
    oci_repositories: FollowedKind
    kustomizations: FollowedKind
    schedules: FollowedKind

    def list_kinds(self) -> tuple[FollowedKind, ...]:
        """Return all followed kinds."""
        return (
            *(self.rollouts, self.gates, self.checks, self.policies),
            *(self.image_repositories, self.oci_repositories, self.kustomizations),
            self.schedules,
        )

    def list_rollouts(self) -> tuple[ReleaseRollout, ...]:
        """Return the Rollouts that can be obeyed."""
        return list_decoded(self.rollouts.store.list_all(), ReleaseRollout)

    def list_announced(self) -> tuple[ReleaseRollout, ...]:
        """Return the Rollouts for which versions are announced, also those that are refused."""
        refused = list_decoded(self.rollouts.store.list_all(), RefusedRelease)
        announced = (each.announced for each in refused if each.announced is not None)
        return (*self.list_rollouts(), *announced)

    def list_selecting(self, check: HealthCheck) -> tuple[ReleaseRollout, ...]:
        """Return the Rollouts that may select a HealthCheck, by its labels alone."""
        selecting = self.rollouts.store.list_tagged(*tag_labels(check.labels))
        return tuple(
            rollout
            for rollout in list_decoded(selecting, ReleaseRollout)
            if takes_check(rollout, check)
        )

    def list_policies(self) -> tuple[ImagePolicy, ...]:
        """Return the image policies."""
        return list_decoded(self.policies.store.list_all(), ImagePolicy)

    def list_repositories(self) -> tuple[FluxObject, ...]:
        """Return the OCIRepositories."""
        return list_decoded(self.oci_repositories.store.list_all(), FluxObject)

    def list_flux(self, kind: str, tags: Sequence[str]) -> tuple[FluxObject, ...]:
        """Return the objects of Flux of a kind that mention any of these tags."""
        kinds = {OCI_REPOSITORY: self.oci_repositories, KUSTOMIZATION: self.kustomizations}
        return list_decoded(kinds[kind].store.list_tagged(*tags), FluxObject)

    def find_lack(self) -> str | None:
        """Say why nothing may be decided yet: a kind is not known, or its cache is too old.

        A kind that may not be read is shown in statuses, and holds only the Rollouts that need it.
        What is not known of schedules holds new versions alone.
        """
        for kind in self.list_kinds():
            if kind is self.schedules:
                continue
            if kind.lack is not None and not kind.is_forbidden:
                return kind.lack
            if kind.age > SNAPSHOT_LIMIT:
                return f"{kind.kind}: the cache is {kind.age.total_seconds():.0f}s old"
        return None


def follow_kind(
    resources: Sequence[Resource], client: Reader, make_informer: MakeInformer, namespace: str = ""
) -> FollowedKind:
    """Return a kind, followed in the first of its versions that the cluster serves.

    Without a namespace it is followed in all of them, and nothing is found by what it mentions.
    """
    store = WatchedStore(list_tags) if namespace else WatchedStore()
    decode = DECODERS[resources[0].kind]
    versions = [replace(each, is_namespaced=bool(namespace)) for each in resources]
    source = KindSource(
        resources=versions,
        namespace=namespace,
        client=client,
        make_informer=lambda resource: make_informer(
            Collection(resource=resource, namespace=namespace, decode=decode, store=store)
        ),
    )
    return FollowedKind(source, store)


def list_tags(decoded: object) -> Iterator[str]:
    """Yield the tags of an object: Rollouts, field managers, and the sources that it applies."""
    match decoded:
        case ReleaseRollout():
            yield from _tag_selector(decoded)
        case ReleaseGate():
            yield decoded.rollout
        case FluxObject():
            yield from decoded.rollouts.values()
            for managers in decoded.writers.values():
                yield from managers
            yield from (problem.rollout for problem in decoded.problems)
            if decoded.source is not None and decoded.source.kind == OCI_REPOSITORY:
                yield tag_source(decoded.source)


def tag_rollout(name: str) -> tuple[str, ...]:
    """Return the tags of objects that a Rollout writes, or wrote."""
    return (name, name_manager(name))


def tag_source(source: FluxReference) -> str:
    """Return the tag of Kustomizations that apply a source; no name has a colon."""
    return f"source:{source.namespace}/{source.name}"


def tag_labels(labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the tags of Rollouts that may select a HealthCheck with these labels."""
    yield _SELECTS
    yield from (f"{_SELECTS}{key}={value}" for key, value in labels.items())


def _tag_selector(rollout: ReleaseRollout) -> Iterator[str]:
    checks = rollout.spec.checks
    if checks is not None and checks.selector is not None:
        # One of the required labels is enough to find it by.
        first = min(checks.selector.labels.items(), default=None)
        yield _SELECTS if first is None else f"{_SELECTS}{first[0]}={first[1]}"


def list_concerned(decoded: object, objects: ReleaseCaches) -> Iterator[str]:
    """Yield the names of the Rollouts that an object of their namespace concerns."""
    match decoded:
        case ReleaseRollout() | RefusedRelease():
            yield decoded.head.name
        case ReleaseGate():
            yield decoded.rollout
        case ScheduleObject():
            yield from _list_selected(decoded, objects.list_rollouts())
        case HealthCheck():
            yield from (
                rollout.head.name
                for rollout in objects.list_rollouts()
                if takes_check(rollout, decoded)
            )
        case ImagePolicy():
            yield from _list_of_policies(objects.list_announced(), [decoded])
        case ImageRepository():
            of_it = [policy for policy in objects.list_policies() if _reads(policy, decoded)]
            yield from _list_of_policies(objects.list_announced(), of_it)
        case FluxObject():
            yield from decoded.rollouts.values()
            if decoded.source is not None:
                # What applies the object of a Rollout: its bake waits for that.
                for repository in objects.list_repositories():
                    if repository.reference == decoded.source:
                        yield from repository.rollouts.values()


def _list_selected(schedule: ScheduleObject, rollouts: Iterable[ReleaseRollout]) -> Iterator[str]:
    """Yield the Rollouts that a schedule may hold, by their labels alone."""
    selector = schedule.rollouts
    for rollout in rollouts:
        if selector is None or selector.takes(rollout.labels):
            yield rollout.head.name


def _reads(policy: ImagePolicy, repository: ImageRepository) -> bool:
    place = (policy.repository.namespace, policy.repository.name)
    return place == (repository.head.namespace, repository.head.name)


def _list_of_policies(
    rollouts: Iterable[ReleaseRollout], policies: Iterable[ImagePolicy]
) -> Iterator[str]:
    places = {(policy.head.namespace, policy.head.name) for policy in policies}
    for rollout in rollouts:
        namespace = rollout.spec.policy_namespace or rollout.head.namespace
        if (namespace, rollout.spec.policy_name) in places:
            yield rollout.head.name


class WideChecks:
    """All HealthChecks of a cluster, and the labels of its namespaces."""

    def __init__(self, checks: FollowedKind, namespaces: FollowedKind) -> None:
        self._kinds = (checks, namespaces)
        self._checks = checks
        self._namespaces = namespaces
        self._wanted = asyncio.Event()

    def find_problem(self) -> str | None:
        """Say why they may not be read; None where they may. Raises Unreachable until it is known.

        They are followed from the first call on.
        """
        self._wanted.set()
        for kind in self._kinds:
            if kind.is_forbidden:
                return f"HealthChecks of other namespaces: {kind.lack}"
            if kind.lack is not None:
                raise Unreachable(f"HealthChecks of other namespaces: {kind.lack}")
            if kind.age > SNAPSHOT_LIMIT:
                raise Unreachable(f"{kind.kind}: the cache of all namespaces is too old")
        return None

    def find_lack(self) -> str | None:
        """Say why nothing may be decided by them yet."""
        try:
            return self.find_problem()
        except Unreachable as error:
            return str(error)

    def get_watched(self, namespace: str, name: str) -> AnyWatched | None:
        """Return a HealthCheck as it was read last; None where there is none."""
        return self._checks.store.get(namespace, name)

    def list_checks(self) -> tuple[HealthCheck, ...]:
        """Return the HealthChecks of all namespaces."""
        return list_decoded(self._checks.store.list_all(), HealthCheck)

    def map_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of all namespaces, by their names."""
        namespaces = list_decoded(self._namespaces.store.list_all(), LabelledNamespace)
        return {namespace.head.name: namespace.labels for namespace in namespaces}

    def on_change(self, on_check: OnWatched, on_all: Callable[[], None]) -> None:
        """Call back with a HealthCheck that changed, or where any of them may have come or gone."""
        self._checks.on_change(on_check)
        self._namespaces.on_change(lambda old, new: on_all())
        for kind in self._kinds:
            kind.on_news(on_all)

    async def run(self, clock: Clock) -> NoReturn:
        """Wait until they are needed, then follow them until cancelled."""
        await self._wanted.wait()
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(kind.run(clock), name=f"{kind.kind} informer of the cluster")
        raise AssertionError("a followed kind runs until it is cancelled")


def build_wide_checks(client: Reader, make_informer: MakeInformer) -> WideChecks:
    """Return the HealthChecks of all namespaces, followed by this client."""
    return WideChecks(
        follow_kind([HEALTH_CHECKS], client, make_informer),
        follow_kind([NAMESPACES], client, make_informer),
    )
