"""The caches for releases: the kinds of `kuberik.com` and of Flux, each where it is there.

Decides whether the caches may be used for decisions, what objects mention, to find those of one
Rollout among thousands, and which Rollouts to reconcile when an object changes (REL-89). What the
absence of a kind means is decided in `observe`.

HealthChecks of all namespaces, for Rollouts that select namespaces, are followed if needed. A
process has one of these for all its namespaces. Unused, it costs no request.

Look-ups of releases in registries: beside everything else, remembered, and never too often.

A pass waits a moment for an answer, so that most releases are recorded with all that their image
says of itself; a registry that hangs delays no deployment beyond that. A tag is looked up once, and
again after the Rollout's interval where that failed, or where its digest moved.

An ImageRepository says by which credentials and which proxy a registry is read. Secrets are read
before each read of a registry, and kept nowhere. An error names a Secret and its key: no text has
anything of its values.
"""

import asyncio
import base64
import binascii
import os
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NoReturn, Protocol
from urllib.parse import quote, urlsplit

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.controllers.worker import Result
from rollout_operator.kube.api import HEALTH_CHECKS, NAMESPACES, SECRETS, Reader, Resource
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.kinds import FollowedKind, KindSource, OnWatched
from rollout_operator.kube.store import WatchedStore
from rollout_operator.model.decode.flux import DECODERS
from rollout_operator.model.names import ApiError, InvalidInput, NotFound, Unreachable
from rollout_operator.model.objects import AnyWatched, list_decoded
from rollout_operator.model.release_plan import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    FluxObject,
    FluxReference,
    HealthCheck,
    ImagePolicy,
    ImageRepository,
)
from rollout_operator.model.releases import (
    ImageReference,
    LabelledNamespace,
    RefusedRelease,
    ReleaseGate,
    ReleaseMetadata,
    ReleaseRollout,
    ScheduleObject,
)
from rollout_operator.model.units import Confidential
from rollout_operator.oci.client import RegistryAccess
from rollout_operator.oci.exchange import (
    Keyring,
    RegistryError,
    ReleaseNotFound,
    Route,
    decode_pull_secret,
)
from rollout_operator.planning.bake import takes_check
from rollout_operator.planning.flux import name_manager
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT
from rollout_operator.telemetry.logs import log

_MakeInformer = Callable[[Collection[AnyWatched]], Informer[AnyWatched]]

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
    resources: Sequence[Resource], client: Reader, make_informer: _MakeInformer, namespace: str = ""
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


def build_wide_checks(client: Reader, make_informer: _MakeInformer) -> WideChecks:
    """Return the HealthChecks of all namespaces, followed by this client."""
    return WideChecks(
        follow_kind([HEALTH_CHECKS], client, make_informer),
        follow_kind([NAMESPACES], client, make_informer),
    )


_NO_CLOUD: Final = ("", "generic")
# The newer name, and the name of earlier releases of Flux.
_CA: Final = ("ca.crt", "caFile")
_CERTIFICATE: Final = ("tls.crt", "certFile")
_KEY: Final = ("tls.key", "keyFile")

# For so long a pass waits for an answer that is not there yet.
PATIENCE: Final = timedelta(seconds=5)
# Of one Rollout: what its policy selects, what it is pinned to, and what these were before.
MOST_TAGS: Final = 4


class _Secret(Confidential, msgspec.Struct):
    data: dict[str, str] | None = None


_SECRET: Final = msgspec.json.Decoder(_Secret)


async def read_access(reader: Reader, repository: ImageRepository) -> RegistryAccess:
    """Return how to read the registry of an ImageRepository.

    Raises InvalidInput where a person must change something, and what `Reader.fetch` raises.
    """
    return RegistryAccess(
        keyring=await _read_keyring(reader, repository),
        is_insecure=repository.is_insecure,
        route=Route(
            trust=await _read_trust(reader, repository),
            proxy=await _read_proxy(reader, repository),
        ),
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


async def _read_trust(reader: Reader, repository: ImageRepository) -> ssl.SSLContext | None:
    if repository.certificates is None:
        return None
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
    return context


def _find(data: Mapping[str, bytes], names: Iterable[str]) -> bytes | None:
    return next((data[name] for name in names if name in data), None)


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have a client certificate shown to servers that require it.

    The library reads it from a file: from a file in memory, and that no other process sees.
    """
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
        has_host = url.scheme in {"http", "https"} and bool(url.hostname)
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
        data = _SECRET.decode(body).data or {}
        return {key: base64.b64decode(value) for key, value in data.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error):
        # The cause would quote what it read.
        raise InvalidInput(f"{where}: its data cannot be read") from None


def _name(repository: ImageRepository) -> str:
    return f"ImageRepository {repository.head.key}"


class LookUpKey(msgspec.Struct, frozen=True):
    """The subject of a look-up: a tag of the images of one ImageRepository, for one Rollout."""

    rollout: str
    tag: str


class _LookUpState(msgspec.Struct, kw_only=True):
    repository: ImageRepository
    interval: timedelta
    digest: str | None
    """As the image policy has it: another digest is another image."""
    answered: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    metadata: ReleaseMetadata | None = None
    is_known: bool = False
    """Whether the registry answered, be it that there is no such tag."""
    due_at: timedelta | None = None
    """When it is looked up again; None for never, as long as it is the same image."""


class Registries(Protocol):
    """Reads of registries; the implementation is `oci.client.RegistryClient`."""

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        """Return what an image says of itself. Raises InvalidInput and RegistryError."""
        ...


class ReleaseLookUps:
    """Look-ups for the Rollouts of one namespace."""

    def __init__(
        self,
        registries: Registries,
        secrets: Reader,
        clock: Clock,
        wake: Callable[[str, timedelta], None],
    ) -> None:
        """`wake` has a Rollout reconciled after so long: there may be new answers."""
        self._registries = registries
        self._secrets = secrets
        self._clock = clock
        self._wake = wake
        self.queue: WorkQueue[LookUpKey] = WorkQueue()
        self._states: dict[str, OrderedDict[str, _LookUpState]] = {}
        self._problems: dict[str, dict[str, tuple[str, int]]] = {}
        """By Rollout and tag: what was in the way last, and how often in a row."""

    async def fetch(
        self,
        key: LookUpKey,
        repository: ImageRepository,
        interval: timedelta,
        digest: str | None = None,
    ) -> tuple[bool, ReleaseMetadata | None]:
        """Return whether the registry answered, and what it said; None where it has no such tag.

        Waits a moment for the first answer.
        """
        state = self._find(key)
        if state is None or (state.repository.image, state.digest) != (repository.image, digest):
            state = _LookUpState(repository=repository, interval=interval, digest=digest)
            self._remember(key, state)
            self.queue.add(key)
        elif state.due_at is not None and self._clock.elapsed() >= state.due_at:
            state.repository, state.interval, state.due_at = repository, interval, None
            self.queue.add(key)
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await state.answered.wait()
        except TimeoutError:
            # The next caller waits no more: the answer wakes the Rollout.
            state.answered.set()
        return state.is_known, state.metadata

    def forget(self, rollout: str) -> None:
        """Forget a Rollout that is gone."""
        self._states.pop(rollout, None)
        self._problems.pop(rollout, None)

    def report_problem(self, key: LookUpKey, error: Exception) -> None:
        """Log why a release cannot be looked up; again only once that changes, or seldom."""
        emit = log.warn if self._is_news(key, str(error)) else log.debug
        emit("Release not looked up", rollout=key.rollout, tag=key.tag, err=error)

    async def look_up(self, key: LookUpKey) -> Result:
        """Read a registry once."""
        state = self._find(key)
        if state is None:
            return Result()
        image = ImageReference(state.repository.image, tag=key.tag)
        try:
            access = await read_access(self._secrets, state.repository)
            state.metadata = await self._registries.fetch_release(image, access)
            state.is_known = True
            self._problems.get(key.rollout, {}).pop(key.tag, None)
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
        names = {"rollout": key.rollout, "tag": key.tag}
        emit = log.warn if self._is_news(key, str(error)) else log.debug
        emit("Release not looked up", **names, again_in=wait, err=error)

    def _is_news(self, key: LookUpKey, problem: str) -> bool:
        """Return whether a problem is worth a warning: when it is new, then ever more rarely."""
        problems = self._problems.setdefault(key.rollout, {})
        before, times = problems.get(key.tag, ("", 0))
        times = times + 1 if problem == before else 1
        problems[key.tag] = problem, times
        if len(problems) > MOST_TAGS:
            del problems[next(iter(problems))]
        return times.bit_count() == 1

    def _find(self, key: LookUpKey) -> _LookUpState | None:
        tags = self._states.get(key.rollout)
        return None if tags is None else tags.get(key.tag)

    def _remember(self, key: LookUpKey, state: _LookUpState) -> None:
        tags = self._states.setdefault(key.rollout, OrderedDict())
        tags.pop(key.tag, None)
        tags[key.tag] = state
        while len(tags) > MOST_TAGS:
            tags.popitem(last=False)
