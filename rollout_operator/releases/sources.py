"""The caches for releases, and look-ups of releases in registries.

The kinds of `kuberik.com` and of Flux are followed where the cluster has them. Tags say what an
object mentions, to find those of one Rollout among thousands, and which Rollouts to reconcile when
it changes (REL-89). HealthChecks of all namespaces, for Rollouts that select namespaces, are
followed from the first use on, once for a process.

A pass waits a moment for an answer of a registry, so that most releases are recorded with the data
of their image; a registry that hangs delays no deployment beyond that. A tag is looked up once, and
again after the Rollout's interval where that failed, or where its digest moved. Secrets are read
before each read of a registry, and kept nowhere. An error names a Secret and its key, never a
value.
"""

import asyncio
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import ClassVar, Final, NamedTuple, NoReturn, Protocol
from urllib.parse import quote, urlsplit

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import Recent
from rollout_operator.controllers.worker import (
    RECHECK,
    Attempts,
    Controller,
    GetCached,
    NewestObjects,
    Reconciles,
    Result,
    StatusWriter,
)
from rollout_operator.kube.api import (
    HEALTH_CHECKS,
    NAMESPACES,
    SECRETS,
    Reader,
    Resource,
    TimedPatcher,
)
from rollout_operator.kube.informer import Collection, Informer, ObjectSource
from rollout_operator.kube.kinds import FollowedKind, OnWatched, WatchedKind
from rollout_operator.kube.store import WatchedStore
from rollout_operator.model.decode.objects import decode_secret
from rollout_operator.model.names import ApiError, InvalidInput, NotFound, Unreachable
from rollout_operator.model.objects import AnyWatched, WatchedObject, list_decoded
from rollout_operator.outbound import Route
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT
from rollout_operator.releases.model.decode_flux import DECODERS
from rollout_operator.releases.model.plan import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    FluxObject,
    FluxReference,
    HealthCheck,
    ImagePolicy,
    ImageRepository,
)
from rollout_operator.releases.model.releases import (
    ImageReference,
    LabelledNamespace,
    RefusedRelease,
    ReleaseGate,
    ReleaseMetadata,
    ReleaseRollout,
    ScheduleObject,
)
from rollout_operator.releases.planning.bake import takes_check
from rollout_operator.releases.planning.flux import name_manager
from rollout_operator.releases.registry import (
    Keyring,
    RegistryAccess,
    RegistryError,
    ReleaseNotFound,
    decode_pull_secret,
)
from rollout_operator.telemetry.logs import log

_MakeInformer = Callable[[ObjectSource, Collection[AnyWatched]], Informer[AnyWatched]]

# The tag of Rollouts that select HealthChecks by other means than the value of a label.
_SELECTS: Final = "selects:"
# Registries that are read at a time, for all Rollouts of a namespace.
_WORKERS: Final = 4


class ObjectClient(Reader, TimedPatcher, Protocol): ...


@dataclass(slots=True, kw_only=True)
class ObjectController(ABC):
    """Reconciles the objects of one kind by their names."""

    title: ClassVar[str]
    resync: ClassVar[timedelta | None]
    """When an object that cannot be read is reconciled again; its next version wakes it anyway."""

    client: ObjectClient
    resource: Resource
    namespace: str
    """Empty for objects of the cluster."""
    get_cached: GetCached[WatchedObject]
    find_lack: Callable[[], str | None]
    """Returns why nothing may be decided yet."""
    attempts: Attempts
    newest: NewestObjects[WatchedObject] = field(init=False)
    """With those that this process wrote."""
    statuses: StatusWriter[WatchedObject] = field(init=False)
    _reconciles: Reconciles = field(init=False)

    def __post_init__(self) -> None:
        decode = DECODERS[self.resource.kind]
        self.newest = NewestObjects(self.get_cached, self.namespace, self.client, decode)
        self.statuses = StatusWriter(self.client, self.resource, self.newest)
        self._reconciles = Reconciles(
            kind=self.title,
            attempts=self.attempts,
            once=self._reconcile_once,
            name_keys=self._name_keys,
        )

    async def reconcile(self, name: str) -> Result:
        return await self._reconciles.reconcile(name)

    def get_error(self, name: str) -> str:
        """Return why an object could not be reconciled last, empty where it could."""
        return self._reconciles.get_error(name)

    @abstractmethod
    async def _decide(self, watched: WatchedObject) -> timedelta | None:
        """Observe and act, and return when to do so again. Raises ApiError and DecodeError."""

    @abstractmethod
    def _forget(self, name: str) -> None:
        """Forget what is remembered of an object that is gone."""

    async def _reconcile_once(self, name: str) -> timedelta | None:
        watched = await self.newest.settle(self.resource, name)
        if watched is None:
            self.newest.forget(name)
            self._forget(name)
            return None
        if lack := self.find_lack():
            log.debug(f"{self.title} waits", **self._name_keys(name), why=lack)
            return RECHECK
        if not isinstance(watched, WatchedObject):
            return self.resync  # the log has why it cannot be read
        return await self._decide(watched)

    def _name_keys(self, name: str) -> Mapping[str, str]:
        return {self.title.removeprefix("Health").lower(): name}


class ReleaseCaches(msgspec.Struct, frozen=True, kw_only=True):
    rollouts: WatchedKind
    gates: WatchedKind
    checks: WatchedKind
    policies: WatchedKind
    image_repositories: WatchedKind
    oci_repositories: WatchedKind
    kustomizations: WatchedKind
    schedules: WatchedKind

    def list_kinds(self) -> tuple[WatchedKind, ...]:
        return (
            *(self.rollouts, self.gates, self.checks, self.policies),
            *(self.image_repositories, self.oci_repositories, self.kustomizations),
            self.schedules,
        )

    def list_written(self) -> tuple[WatchedKind, WatchedKind]:
        """Return the kinds of objects that get a tag."""
        return self.oci_repositories, self.kustomizations

    def list_rollouts(self) -> tuple[ReleaseRollout, ...]:
        return list_decoded(self.rollouts.store.list_all(), ReleaseRollout)

    def list_announced(self) -> tuple[ReleaseRollout, ...]:
        """Return the Rollouts with announced versions, also those that are refused."""
        refused = list_decoded(self.rollouts.store.list_all(), RefusedRelease)
        announced = (each.announced for each in refused if each.announced is not None)
        return (*self.list_rollouts(), *announced)

    def list_selecting(self, check: HealthCheck) -> tuple[ReleaseRollout, ...]:
        """Return the Rollouts that may select a HealthCheck, by its labels alone."""
        selecting = self.rollouts.store.list_tagged(*tag_labels(check.labels))
        rollouts = list_decoded(selecting, ReleaseRollout)
        return tuple(rollout for rollout in rollouts if takes_check(rollout, check))

    def list_flux(self, kind: str, tags: Sequence[str]) -> tuple[FluxObject, ...]:
        kinds = {OCI_REPOSITORY: self.oci_repositories, KUSTOMIZATION: self.kustomizations}
        return list_decoded(kinds[kind].store.list_tagged(*tags), FluxObject)

    def find_lack(self) -> str | None:
        """Return why nothing may be decided yet: a kind is unknown, or its cache is too old.

        A kind that may not be read is reported in statuses, and holds only Rollouts that need it.
        Unknown schedules hold new versions only.
        """
        for kind in self.list_kinds():
            if kind is self.schedules:
                continue
            if kind.lack is not None and not kind.is_forbidden:
                return kind.named_lack
            if kind.age > SNAPSHOT_LIMIT:
                return f"{kind.kind}: the cache is {kind.age.total_seconds():.0f}s old"
        return None


def follow_kind(
    resources: Sequence[Resource],
    client: ObjectSource,
    make_informer: _MakeInformer,
    namespace: str = "",
    check: Callable[[], Awaitable[None]] | None = None,
) -> WatchedKind:
    """Return a kind in the first of its versions that the cluster serves.

    Without a namespace it is followed in all of them, and not indexed by tags. `check` is that of
    `FollowedKind`.
    """
    collection: Collection[AnyWatched] = Collection(
        resource=resources[0],
        namespace=namespace,
        decode=DECODERS[resources[0].kind],
        store=WatchedStore(tag_watched if namespace else None),
    )
    versions = [replace(each, is_namespaced=bool(namespace)) for each in resources]
    return FollowedKind(client, collection, make_informer, versions=versions, check=check)


def tag_watched(item: AnyWatched) -> Iterator[str]:
    yield from list_tags(item.decoded) if isinstance(item, WatchedObject) else ()


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
        # One of the required labels is enough to find it.
        first = min(checks.selector.labels.items(), default=None)
        yield _SELECTS if first is None else f"{_SELECTS}{first[0]}={first[1]}"


def list_concerned(decoded: object, objects: ReleaseCaches) -> Iterator[str]:
    """Yield the names of the Rollouts that an object of their namespace concerns."""
    match decoded:
        case ReleaseRollout() | RefusedRelease():
            yield decoded.head.name
        case ReleaseGate():
            yield decoded.rollout
        case ScheduleObject(rollouts=selector):
            for rollout in objects.list_rollouts():
                # By its labels alone.
                if selector is None or selector.takes(rollout.labels):
                    yield rollout.head.name
        case HealthCheck():
            rollouts = objects.list_rollouts()
            yield from (each.head.name for each in rollouts if takes_check(each, decoded))
        case ImagePolicy():
            yield from _list_of_policies(objects.list_announced(), [decoded])
        case ImageRepository():
            place = (decoded.head.namespace, decoded.head.name)
            policies = list_decoded(objects.policies.store.list_all(), ImagePolicy)
            of_it = [
                policy
                for policy in policies
                if (policy.repository.namespace, policy.repository.name) == place
            ]
            yield from _list_of_policies(objects.list_announced(), of_it)
        case FluxObject():
            yield from decoded.rollouts.values()
            if decoded.source is not None:
                # The bake of a Rollout waits for the object that applies its own.
                repositories = objects.oci_repositories.store.list_all()
                for repository in list_decoded(repositories, FluxObject):
                    if repository.reference == decoded.source:
                        yield from repository.rollouts.values()


def _list_of_policies(
    rollouts: Iterable[ReleaseRollout], policies: Iterable[ImagePolicy]
) -> Iterator[str]:
    places = {(policy.head.namespace, policy.head.name) for policy in policies}
    for rollout in rollouts:
        namespace = rollout.spec.policy_namespace or rollout.head.namespace
        if (namespace, rollout.spec.policy_name) in places:
            yield rollout.head.name


class WideChecks:
    """The HealthChecks of a cluster, and the labels of its namespaces."""

    def __init__(self, checks: WatchedKind, namespaces: WatchedKind) -> None:
        self._checks, self._namespaces = self._kinds = (checks, namespaces)
        self._wanted = asyncio.Event()

    def find_problem(self) -> str | None:
        """Return why they may not be read, None where they may; follow them from now on.

        Raises Unreachable until it is known.
        """
        self._wanted.set()
        for kind in self._kinds:
            if kind.is_forbidden:
                return f"HealthChecks of other namespaces: {kind.named_lack}"
            if kind.lack is not None:
                raise Unreachable(f"HealthChecks of other namespaces: {kind.named_lack}")
            if kind.age > SNAPSHOT_LIMIT:
                raise Unreachable(f"{kind.kind}: the cache of all namespaces is too old")
        return None

    def find_lack(self) -> str | None:
        """Return why nothing may be decided by them yet."""
        try:
            return self.find_problem()
        except Unreachable as error:
            return str(error)

    def get_watched(self, namespace: str, name: str) -> AnyWatched | None:
        return self._checks.store.get(namespace, name)

    def list_checks(self) -> tuple[HealthCheck, ...]:
        return list_decoded(self._checks.store.list_all(), HealthCheck)

    def map_labels(self) -> Mapping[str, Mapping[str, str]]:
        namespaces = list_decoded(self._namespaces.store.list_all(), LabelledNamespace)
        return {namespace.head.name: namespace.labels for namespace in namespaces}

    def on_change(
        self,
        on_check: OnWatched,
        on_all: Callable[[], None],
    ) -> None:
        """Call back with a HealthCheck that changed, or when any may have come or gone."""
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


def build_wide_checks(client: ObjectSource, make_informer: _MakeInformer) -> WideChecks:
    return WideChecks(
        follow_kind([HEALTH_CHECKS], client, make_informer),
        follow_kind([NAMESPACES], client, make_informer),
    )


_NO_CLOUD: Final = ("", "generic")
# The newer name, and the name of earlier releases of Flux.
_CA: Final = ("ca.crt", "caFile")
_CERTIFICATE: Final = ("tls.crt", "certFile")
_KEY: Final = ("tls.key", "keyFile")

# So long a pass waits for an answer.
PATIENCE: Final = timedelta(seconds=5)
# Of one Rollout: the tag that its policy selects, its pin, and the former of both.
MOST_TAGS: Final = 4


async def read_access(reader: Reader, repository: ImageRepository) -> RegistryAccess:
    """Return how to read the registry of an ImageRepository.

    Raises InvalidInput where a person must change something, and what `Reader.fetch` raises.
    """
    keyring = await _read_keyring(reader, repository)
    trust, proof = await _read_trust(reader, repository)
    return RegistryAccess(
        keyring=keyring,
        is_insecure=repository.is_insecure,
        proof=proof,
        route=Route(trust=trust, proxy=await _read_proxy(reader, repository)),
    )


async def _read_keyring(reader: Reader, repository: ImageRepository) -> Keyring:
    if repository.pull_secret is not None:
        return decode_pull_secret(await _read(reader, repository, repository.pull_secret))
    if repository.provider not in _NO_CLOUD:
        raise InvalidInput(
            f"{_name(repository)}: spec.provider: credentials of {repository.provider} are not"
            " fetched here; name a pull secret in spec.secretRef"
        )
    return Keyring()


async def _read_trust(
    reader: Reader, repository: ImageRepository
) -> tuple[ssl.SSLContext | None, str]:
    """Return what is trusted and shown, and a digest of that."""
    if repository.certificates is None:
        return None, ""
    data = await _read(reader, repository, repository.certificates)
    where = f"{_name(repository)}: secret {repository.certificates}"
    ca, certificate, key = (_find(data, names) for names in (_CA, _CERTIFICATE, _KEY))
    has_pair = certificate is not None or key is not None
    context = ssl.create_default_context()
    try:
        if ca is not None or not has_pair:
            context.load_verify_locations(cadata=(ca or b"").decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise InvalidInput(f"{where}: ca.crt holds no certificates in PEM") from None
    try:
        if has_pair:
            _load_pair(context, certificate or b"", key or b"")
    except (ssl.SSLError, OSError, ValueError):
        text = "tls.crt and tls.key are no certificate with its key, in PEM and without a password"
        raise InvalidInput(f"{where}: {text}") from None
    return context, sha256(repr((ca, certificate, key)).encode()).hexdigest()


def _find(data: Mapping[str, bytes], names: Iterable[str]) -> bytes | None:
    return next((data[name] for name in names if name in data), None)


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # The library reads it from a file: from one in memory, that no other process sees.
    with os.fdopen(os.memfd_create("client certificate"), "wb") as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        # Without a password it would prompt at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=lambda: "")


async def _read_proxy(reader: Reader, repository: ImageRepository) -> str | None:
    if repository.proxy is None:
        return None
    data = await _read(reader, repository, repository.proxy)
    address, *pair = (data.get(key, b"") for key in ("address", "username", "password"))
    try:
        url = urlsplit(address.decode("ascii").strip())
        has_host = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        has_host = False
    if not has_host:
        text = f"{_name(repository)}: secret {repository.proxy}: address is no URL of a proxy"
        raise InvalidInput(text)
    host = url.netloc.rpartition("@")[2]
    user = ":".join(quote(part, safe="") for part in pair) + "@" if pair[0] else ""
    return f"{url.scheme}://{user}{host}"


async def _read(reader: Reader, repository: ImageRepository, name: str) -> Mapping[str, bytes]:
    """Return the data of a Secret beside the ImageRepository."""
    where = f"{_name(repository)}: secret {name}"
    try:
        body = await reader.fetch(SECRETS, repository.head.namespace, name)
    except NotFound as error:
        raise InvalidInput(f"{where}: there is none") from error
    try:
        return decode_secret(body)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def _name(repository: ImageRepository) -> str:
    return f"ImageRepository {repository.head.key}"


class LookUpKey(NamedTuple):
    """A tag of the images of an ImageRepository, for one Rollout."""

    rollout: str
    tag: str


class _LookUpState(msgspec.Struct, kw_only=True):
    repository: ImageRepository
    interval: timedelta
    digest: str | None
    """That of the image policy: another digest is another image."""
    answered: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    metadata: ReleaseMetadata | None = None
    is_known: bool = False
    """Whether the registry answered, perhaps that it has no such tag."""
    due_at: timedelta | None = None
    """When it is looked up again; None for never, while it is the same image."""


class Registries(Protocol):
    """Reads registries, as `registry.RegistryClient` does."""

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        """Return the data of an image. Raises InvalidInput and RegistryError."""
        ...


class ReleaseLookUps:
    def __init__(
        self,
        registries: Registries,
        secrets: Reader,
        clock: Clock,
        wake: Callable[[str, timedelta], None],
        *,
        rng: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """`wake` has a Rollout reconciled after so long, as there may be new answers."""
        self._registries, self._secrets = registries, secrets
        self._clock, self._wake = clock, wake
        self.controller: Controller[LookUpKey] = Controller(
            "look up releases", self.look_up, workers=_WORKERS, rng=rng
        )
        self._states: dict[str, Recent[str, _LookUpState]] = {}
        self._problems: dict[str, Recent[str, tuple[str, int]]] = {}
        """The last problem of each tag of a Rollout, and how often in a row it occurred."""

    async def fetch(
        self,
        key: LookUpKey,
        repository: ImageRepository,
        interval: timedelta,
        digest: str | None = None,
    ) -> tuple[bool, ReleaseMetadata | None]:
        """Return whether the registry answered, and its answer; None if it has no such tag."""
        state = self._find(key)
        if state is None or (state.repository.image, state.digest) != (repository.image, digest):
            state = _LookUpState(repository=repository, interval=interval, digest=digest)
            self._remember(key, state)
            self.controller.add(key)
        elif state.due_at is not None and self._clock.elapsed() >= state.due_at:
            state.repository, state.interval, state.due_at = repository, interval, None
            self.controller.add(key)
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await state.answered.wait()
        except TimeoutError:
            # The next caller does not wait: the answer wakes the Rollout.
            state.answered.set()
        return state.is_known, state.metadata

    def forget(self, rollout: str) -> None:
        self._states.pop(rollout, None)
        self._problems.pop(rollout, None)

    async def look_up(self, key: LookUpKey) -> Result:
        state = self._find(key)
        if state is None:
            return Result()
        image = ImageReference(state.repository.image, tag=key.tag)
        try:
            access = await read_access(self._secrets, state.repository)
            state.metadata = await self._registries.fetch_release(image, access)
            state.is_known = True
            if (problems := self._problems.get(key.rollout)) is not None:
                problems.pop(key.tag, None)
        except ReleaseNotFound as error:
            state.metadata, state.is_known = None, True
            self._retry(key, state, error, state.interval)
        except RegistryError as error:
            wait = max(state.interval, error.retry_after or timedelta(0))
            self._retry(key, state, error, wait)
        except (InvalidInput, ApiError) as error:
            self._retry(key, state, error, state.interval)
        state.answered.set()
        self._wake(key.rollout, timedelta(0))
        if state.due_at is not None:
            self._wake(key.rollout, state.due_at - self._clock.elapsed())
        return Result()

    def _retry(
        self, key: LookUpKey, state: _LookUpState, error: Exception, wait: timedelta
    ) -> None:
        state.due_at = self._clock.elapsed() + wait
        self.report_problem(key, error, again_in=wait)

    def report_problem(self, key: LookUpKey, error: Exception, **more: object) -> None:
        """Log why a release cannot be looked up, ever more rarely while that stays the same."""
        emit = log.warn if self._is_news(key, str(error)) else log.debug
        emit("Release not looked up", rollout=key.rollout, tag=key.tag, **more, err=error)

    def _is_news(self, key: LookUpKey, problem: str) -> bool:
        """Return whether a problem is worth a warning: when it is new, then ever more rarely."""
        problems = self._problems.setdefault(key.rollout, Recent(MOST_TAGS))
        before, times = problems.get(key.tag, ("", 0))
        times = times + 1 if problem == before else 1
        problems.put(key.tag, (problem, times))
        return times.bit_count() == 1

    def _find(self, key: LookUpKey) -> _LookUpState | None:
        tags = self._states.get(key.rollout)
        return None if tags is None else tags.get(key.tag)

    def _remember(self, key: LookUpKey, state: _LookUpState) -> None:
        self._states.setdefault(key.rollout, Recent(MOST_TAGS)).put(key.tag, state)
