"""Bring one Rollout nearer to its wanted release, and report what happens to it.

A pass writes one status before anything else: a deployment is on record before an object of Flux
gets its tag, so that no process ever deploys twice or forgets what it began. Only a trial, which
stores nothing, comes before that. `planning.releases` decides what is due, and what is worth an
Event, a log line and a count; a pass with nothing to do writes nothing.

A decision is made by one snapshot of the caches. An image policy of another namespace, and the
ImageRepository of a policy, are read live.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Protocol, TypeVar, cast

import msgspec

from rollout_operator.controllers.worker import NewestObjects
from rollout_operator.kube.api import ROLLOUTS, Applier, JsonObject, Patcher, Reader, Resource
from rollout_operator.kube.kinds import WatchedKind
from rollout_operator.model.budget import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    DecodeError,
    Denied,
    InvalidInput,
    NotFound,
    Refused,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.objects import Unreadable, WatchedObject, list_decoded
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import format_rfc3339
from rollout_operator.planning.wording import camel_case, join_names
from rollout_operator.releases.metrics import ReleaseCounters
from rollout_operator.releases.model.decode_flux import (
    DECODERS,
    decode_image_policy,
    decode_image_repository,
)
from rollout_operator.releases.model.plan import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    ApplyTag,
    Correction,
    FluxObject,
    FluxReference,
    FluxTarget,
    FluxWrite,
    FluxWriteCode,
    HealthCheck,
    ImagePolicy,
    ImageRepository,
    PatchMethod,
    PolicyReading,
    ReleaseEvent,
    ReleasePlan,
    ReleaseSnapshot,
    RemoveIntents,
    RequestReconcile,
)
from rollout_operator.releases.model.releases import (
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseMetadata,
    ReleaseRollout,
    ReleaseStatus,
    parse_repository,
)
from rollout_operator.releases.planning import candidates
from rollout_operator.releases.planning.bake import selects_namespaces
from rollout_operator.releases.planning.candidates import needs_metadata
from rollout_operator.releases.planning.flux import list_targets, plan_due_writes
from rollout_operator.releases.planning.releases import list_drifted, plan_release, remember
from rollout_operator.releases.schedules import FollowedSchedules
from rollout_operator.releases.sources import (
    LookUpKey,
    ObjectController,
    ReleaseCaches,
    ReleaseLookUps,
    WideChecks,
    list_tags,
    tag_rollout,
    tag_source,
)
from rollout_operator.telemetry.logs import log

# Flux reconciles an object as soon as this changes.
_REQUESTED_AT: Final = "reconcile.fluxcd.io/requestedAt"


class _FluxClient(Reader, Patcher, Applier, Protocol): ...


ListFlux = Callable[[str, Sequence[str]], Iterable[FluxObject]]
"""Lists the objects of a kind that mention any of these tags."""


def gather_flux(rollout: str, list_flux: ListFlux) -> tuple[FluxObject, ...]:
    """Return what a Rollout writes, wrote or waits for: OCIRepositories first, each by name."""
    tags = tag_rollout(rollout)
    written = sorted(list_flux(OCI_REPOSITORY, tags), key=_get_name)
    sources = [tag_source(repository.reference) for repository in written]
    return (*written, *sorted(list_flux(KUSTOMIZATION, (*tags, *sources)), key=_get_name))


def gather_targets(
    rollout: ReleaseRollout | RefusedRelease, list_flux: ListFlux
) -> tuple[FluxTarget, ...]:
    """Return the places of the current tag of a Rollout."""
    current, name = rollout.status.current, rollout.head.name
    tag = None if current is None else current.version.tag
    return list_targets(name, tag, gather_flux(name, list_flux))


def index_flux(objects: Iterable[FluxObject]) -> ListFlux:
    tagged = [(flux, frozenset(list_tags(flux))) for flux in objects]
    return lambda kind, tags: (
        flux for flux, own in tagged if flux.kind == kind and not own.isdisjoint(tags)
    )


def _get_name(flux: FluxObject) -> str:
    return flux.head.name


class FluxObjects:
    """Objects of Flux in one namespace; own writes count until the caches show them."""

    def __init__(
        self,
        client: _FluxClient,
        namespace: str,
        repositories: WatchedKind,
        kustomizations: WatchedKind,
    ) -> None:
        self._client, self._namespace = client, namespace
        self._kinds: Mapping[str, WatchedKind] = {
            OCI_REPOSITORY: repositories,
            KUSTOMIZATION: kustomizations,
        }
        self._newest = {
            kind: NewestObjects(followed.store.get, namespace, client, DECODERS[kind])
            for kind, followed in self._kinds.items()
        }
        self._doubtful: set[tuple[str, str]] = set()

    def get_flux(self, rollout: str) -> tuple[FluxObject, ...]:
        return gather_flux(rollout, self.list_newest)

    def list_newest(self, kind: str, tags: Sequence[str]) -> tuple[FluxObject, ...]:
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
        """Have the API server try a write, which it does not store. Raises as `Applier.apply`."""
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
        patch: JsonObject = {"metadata": {"annotations": {_REQUESTED_AT: format_rfc3339(now)}}}
        resource = self._get_resource(target.kind)
        await self._client.patch(resource, self._namespace, target.name, patch)

    def _get_resource(self, kind: str) -> Resource:
        resource = self._kinds[kind].resource
        if resource is None:
            raise NotFound(f"cannot write {kind}: the cluster does not have this kind any more")
        return resource


_Kept = TypeVar("_Kept")

NO_POLICIES: Final = "the cluster has no image policies: Flux is not installed, or not all of it"
_NO_TARGETS: Final = "the cluster has neither OCIRepositories nor Kustomizations to write a tag to"
NO_OTHERS: Final = "other namespaces are left alone by -releases.no-cross-namespace-refs"


class _Unwritten(msgspec.Struct, frozen=True):
    """Why an object of Flux could not be written; empty where all were."""

    problem: str = ""
    is_unknown: bool = False
    """Whether it may be written all the same."""


_WRITTEN: Final = _Unwritten()


class _Unobserved(Exception):
    """A decision needs an object that cannot be read; `reason` is that of `Ready`."""

    def __init__(self, problem: str, reason: str = "") -> None:
        super().__init__(problem)
        self.reason = reason


class ReleaseObserver(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    caches: ReleaseCaches
    flux: FluxObjects
    look_ups: ReleaseLookUps | None
    """None if no registries are read."""
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
        return self.caches.find_lack() or self.schedules.find_lack()

    async def observe(
        self, rollout: ReleaseRollout | RefusedRelease, unwritten: _Unwritten = _WRITTEN
    ) -> ReleaseSnapshot:
        """Return the snapshot of now. Raises what `Reader.fetch` raises, and DecodeError.

        `unwritten` is why an object of Flux could not be written last time.
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
            if selects_namespaces(rollout):
                if problem := self.wide.find_problem():
                    raise _Unobserved(problem, candidates.CHECKS_UNKNOWN)
                is_wide = True
            policy = await self._read_policy(rollout)
            reading = describe_policy(policy)
            if self.look_ups is not None:
                metadata = await self._look_up(rollout, policy, self.look_ups)
        except _Unobserved as error:
            reading = PolicyReading(problem=str(error), reason=error.reason)
        # From here on nothing is awaited: all of it is of one moment.
        targets, now = gather_targets(rollout, self.flux.list_newest), self.now()
        gates = list_decoded(self.caches.gates.store.list_tagged(rollout.head.name), ReleaseGate)
        own_checks = () if rollout.spec.checks is None else self.caches.checks.store.list_all()
        checks = list_decoded(own_checks, HealthCheck)
        absent = [kind.kind for kind in self.caches.list_written() if kind.is_absent]
        if not reading.problem and (lack := explain_absence(absent, targets)):
            reading = PolicyReading(problem=lack, reason=candidates.NO_FLUX)
        return ReleaseSnapshot(
            rollout=rollout,
            now=now,
            policy=reading,
            metadata=metadata,
            gates=gates,
            schedule_holds=self.schedules.list_holds(rollout, gates, now),
            checks=self.wide.list_checks() if is_wide else checks,
            namespaces=self.wide.map_labels() if is_wide else {},
            targets=targets,
            write_problem=unwritten.problem,
            may_be_written=unwritten.is_unknown,
            verifies_wanted=self.verifies_wanted,
            compat=self.compat,
        )

    def _check_kinds(self) -> None:
        caches = self.caches
        reasons = {
            caches.gates: candidates.GATES_UNKNOWN,
            caches.checks: candidates.CHECKS_UNKNOWN,
            **dict.fromkeys((caches.policies, *caches.list_written()), ""),
        }
        for kind, reason in reasons.items():
            if kind.is_forbidden:
                raise _Unobserved(str(kind.named_lack), reason)
        if caches.policies.is_absent:
            raise _Unobserved(NO_POLICIES, candidates.NO_FLUX)

    async def _read_policy(self, rollout: ReleaseRollout) -> ImagePolicy:
        spec = rollout.spec
        place = FluxReference(
            kind="ImagePolicy",
            namespace=spec.policy_namespace or self.namespace,
            name=spec.policy_name,
        )
        return await self._read(place, self.caches.policies, decode_image_policy)

    async def _read(
        self, place: FluxReference, kind: WatchedKind, decode: Callable[[JsonBytes], _Kept]
    ) -> _Kept:
        """Return an object from the cache, or from another namespace by a live read."""
        text = f"{place.kind} {place.namespace}/{place.name}"
        if not place.name:
            raise _Unobserved(f"{place.kind}: no name is given")
        if place.namespace == self.namespace:
            stored = kind.store.get(place.namespace, place.name)
            if isinstance(stored, Unreadable):
                raise _Unobserved(stored.error)
            if stored is None:
                raise _Unobserved(f"{text}: there is none")
            return cast(_Kept, stored.decoded)
        if self.keeps_to_namespace:
            raise _Unobserved(f"{text}: {NO_OTHERS}")
        if kind.resource is None:
            raise _Unobserved(f"{text}: the cluster does not have this kind")
        try:
            return decode(await self.reader.fetch(kind.resource, place.namespace, place.name))
        except NotFound as error:
            raise _Unobserved(f"{text}: there is none") from error
        except (Denied, DecodeError) as error:
            raise _Unobserved(str(error)) from error

    async def _look_up(
        self, rollout: ReleaseRollout, policy: ImagePolicy, look_ups: ReleaseLookUps
    ) -> Mapping[str, ReleaseMetadata | None]:
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
        except _Unobserved as error:
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


def explain_absence(absent: Sequence[str], targets: Collection[FluxTarget]) -> str:
    """Return why no object can get a tag, empty where one can.

    `absent` are kinds of such objects that the cluster does not have.
    """
    if len(absent) > 1:
        return _NO_TARGETS
    if not absent or targets:
        return ""
    return f"the cluster has no kind {absent[0]}, and no object of another kind is annotated for it"


def _check_access(policy: ImagePolicy, repository: ImageRepository, own: str) -> None:
    """Raise _Unobserved where a policy may not use an ImageRepository of another namespace.

    Flux obeys its `spec.accessFrom`, and selects a tag of the image for no other policy. Otherwise
    any client that may write a policy could have a registry read with another's pull secret.
    """
    if repository.head.namespace == own:
        return
    try:
        image = None if policy.latest is None else parse_repository(policy.latest.image)
    except InvalidInput:
        image = None
    if image != repository.image:
        place = f"ImageRepository {repository.head.key}"
        raise _Unobserved(f"{place}: Flux has selected no tag of its image for {policy.head.key}")


def describe_policy(policy: ImagePolicy) -> PolicyReading:
    latest = policy.latest
    return PolicyReading(
        latest=None if latest is None else latest.tag,
        digest=None if latest is None else latest.digest,
        order=policy.order,
    )


_VALUES: Final = frozenset(
    {FluxWriteCode.VALUE_SET, FluxWriteCode.VALUE_MOVED, FluxWriteCode.VALUE_TAKEN}
)
_OVER_OTHERS: Final = frozenset({FluxWriteCode.VALUE_TAKEN, FluxWriteCode.CHOICE_CLEARED})

# Every Rollout is reconciled this often when nothing happens.
RESYNC: Final = timedelta(minutes=1)


class ReleaseReports:
    def __init__(self, record: Callable[[EventRecord], None], counters: ReleaseCounters) -> None:
        self._record, self._counters = record, counters
        self._problems: dict[str, frozenset[str]] = {}

    def on_plan(self, watched: WatchedObject, events: Iterable[ReleaseEvent]) -> None:
        """Report a plan once the status has it."""
        for event in events:
            self._report(watched, event)

    def on_status(self, name: str, before: ReleaseStatus, after: ReleaseStatus) -> None:
        self._counters.record(name, before, after)

    def on_write(self, watched: WatchedObject, write: FluxWrite, *, is_drift: bool) -> None:
        """Report a write that corrected drift, or replaced the choice of another writer."""
        if is_drift and write.code in _VALUES:
            event = ReleaseEvent(reason="DriftCorrected", note=write.text, is_routine=True)
            self._report(watched, event)
        elif write.code in _OVER_OTHERS:
            event = ReleaseEvent(reason=camel_case(write.code), note=write.text, is_routine=True)
            self._record_event(watched, event)

    def on_problems(self, watched: WatchedObject, problems: Iterable[str]) -> None:
        """Report annotations of Flux's objects that cannot be obeyed, each once."""
        before, now = self._problems.get(watched.name, frozenset()), frozenset(problems)
        for text in sorted(now - before):
            event = ReleaseEvent(reason="InvalidAnnotation", note=text, severity=Severity.WARN)
            self._report(watched, event)
        self._problems[watched.name] = now

    def forget(self, name: str) -> None:
        self._problems.pop(name, None)
        self._counters.forget(name)

    def _report(self, watched: WatchedObject, event: ReleaseEvent) -> None:
        emit = log.at(event.severity)
        emit("Rollout reports", rollout=watched.name, reason=event.reason, why=event.note)
        self._record_event(watched, event)

    def _record_event(self, watched: WatchedObject, event: ReleaseEvent) -> None:
        about = Regarding(EventKind.RELEASE, watched.namespace, watched.name, watched.uid)
        self._record(event.record(about, EventAction.RELEASE))


@dataclass(slots=True, kw_only=True)
class ReleaseController(ObjectController):
    title = "Rollout"
    resync = RESYNC

    observer: ReleaseObserver
    flux: FluxObjects
    reports: ReleaseReports
    _unwritten: dict[str, _Unwritten] = field(default_factory=dict, init=False)
    _corrections: dict[str, tuple[Correction, ...]] = field(default_factory=dict, init=False)

    async def _decide(self, watched: WatchedObject) -> timedelta | None:
        rollout = watched.decoded
        if not isinstance(rollout, ReleaseRollout | RefusedRelease) or rollout.head.is_terminating:
            return None
        name = watched.name
        snapshot, plan = await self._plan(rollout)
        refused: Mapping[str, str] = {}
        has_turn = bool(plan.tag)
        if plan.tag and isinstance(rollout, ReleaseRollout):
            # A trial and the turn of a write take seconds, in which gates and schedules may close:
            # the plan is made again after both.
            refused = {plan.tag: await self._try_writes(rollout, plan)}
            await self.client.wait_turn_to_patch(ROLLOUTS, watched.namespace, name)
            snapshot, plan = await self._plan(rollout, refused)
            if plan.tag not in {"", *refused}:
                return timedelta(0)
        if self.newest.get(name) is not watched:
            return timedelta(0)  # it has changed meanwhile
        if plan.status != rollout.status:
            watched = await self.statuses.write(watched, plan.status, has_turn=has_turn)
        self.reports.on_status(name, rollout.status, plan.status)
        self.reports.on_plan(watched, plan.events)
        failed: Collection[tuple[str, str]] = ()
        if isinstance(rollout, ReleaseRollout):
            failed = await self._carry_out(watched, rollout, plan)
        self._corrections[name] = remember(snapshot.corrections, plan, snapshot.now, failed)
        again = min(plan.requeue_after or RESYNC, RESYNC)
        if isinstance(rollout, ReleaseRollout):
            # An image policy of another namespace is not followed: it is read each time.
            again = min(again, rollout.spec.update_interval)
        # A missing object wakes this Rollout when it comes; a refused write is repeated.
        unwritten = self._unwritten.get(name, _WRITTEN)
        if problem := "".join(refused.values()) or unwritten.problem:
            return min(self.attempts.record_failure(("tags", name), problem), again)
        self.attempts.record_success(("tags", name))
        return again

    async def _plan(
        self,
        rollout: ReleaseRollout | RefusedRelease,
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[ReleaseSnapshot, ReleasePlan]:
        """Return snapshot and plan; `refused` has why Flux does not take a tag."""
        name = rollout.head.name
        snapshot = await self.observer.observe(rollout, self._unwritten.get(name, _WRITTEN))
        corrections = self._corrections.get(name, ())
        snapshot = msgspec.structs.replace(snapshot, corrections=corrections, refused=refused)
        return snapshot, plan_release(snapshot)

    async def _carry_out(
        self, watched: WatchedObject, rollout: ReleaseRollout, plan: ReleasePlan
    ) -> Collection[tuple[str, str]]:
        """Return kind and name of the objects that could not be written."""
        due = plan_due_writes(rollout, plan, self.flux.get_flux(watched.name))
        self.reports.on_problems(watched, due.problems)
        failed = await self._write_tags(watched, due.writes, frozenset(list_drifted(plan)))
        for action in plan.actions:
            match action:
                case RemoveIntents():
                    await self._remove(watched, action)
                case RequestReconcile(target=target):
                    await self._request(watched.name, target)
                case ApplyTag():
                    pass  # it is among the writes
        return failed

    async def _try_writes(self, rollout: ReleaseRollout, plan: ReleasePlan) -> str:
        """Return why an object would not take a new tag, empty where all would.

        Raises ApiError where nothing was sent, or an object has changed meanwhile.
        """
        flux = self.flux
        for write in plan_due_writes(rollout, plan, flux.get_flux(rollout.head.name)).writes:
            try:
                await flux.try_write(write)
            except (Refused, Denied, UnknownOutcome, Unreachable) as error:
                log.warn(
                    "Object of Flux would not be written", rollout=rollout.head.name, err=error
                )
                return str(error)
        return ""

    async def _write_tags(
        self,
        watched: WatchedObject,
        writes: Iterable[FluxWrite],
        drifted: frozenset[tuple[str, str]],
    ) -> Collection[tuple[str, str]]:
        """Carry out due writes, and return kind and name of the objects that could not be written.

        `drifted` objects had another tag than they should: one of them that cannot be written does
        not stop the others, while any other stops the deployment.
        """
        problems: dict[tuple[str, str], str] = {}
        is_unknown = False
        for write in writes:
            place = (write.kind, write.head.name)
            # A later write to the same object relies on the earlier one.
            if place in problems:
                continue
            if not drifted.issuperset(problems):
                break
            try:
                await self.flux.write(write)
            except (ApiError, DecodeError) as error:
                problems[place] = str(error)
                # After a conflict, a rotated token and the like, the same tag is tried again.
                is_refused = isinstance(error, Refused | Denied) and error.status != 401
                is_unknown = is_unknown or not is_refused
                log.warn("Object of Flux not written", rollout=watched.name, err=error)
            else:
                self.reports.on_write(watched, write, is_drift=place in drifted)
        if problems:
            text = join_names([*problems.values()])
            self._unwritten[watched.name] = _Unwritten(text, is_unknown)
        else:
            self._unwritten.pop(watched.name, None)
        return problems

    async def _request(self, name: str, target: FluxTarget) -> None:
        """Have Flux reconcile now; where that fails, it does so at its own interval."""
        try:
            await self.flux.request(target, self.observer.now())
        except ApiError as error:
            log.warn("Flux does not hurry", rollout=name, target=target.name, err=error)

    async def _remove(self, watched: WatchedObject, action: RemoveIntents) -> None:
        """Remove annotations that had their effect, in this very version of the Rollout.

        The API server compares the values of a JSON patch as they are written, and its JSON escapes
        other characters than ours.
        """
        head: JsonObject = {"uid": watched.uid, "resourceVersion": watched.resource_version}
        gone: JsonObject = {intent.annotation: None for intent in action.intents}
        patch: JsonObject = {"metadata": {**head, "annotations": gone}}
        try:
            body = await self.client.patch(ROLLOUTS, watched.namespace, watched.name, patch)
        except ApiError:
            self.newest.doubt(watched.name)
            raise
        self.newest.record(body)

    def _forget(self, name: str) -> None:
        self._corrections.pop(name, None)
        self._unwritten.pop(name, None)
        self.reports.forget(name)
        self.attempts.record_success(("tags", name))
        if self.observer.look_ups is not None:
            self.observer.look_ups.forget(name)
