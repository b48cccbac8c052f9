"""The StatefulSet controller: which set is looked at when, and what one reconcile leads to.

A key is worked on by one step at a time: claim, pass, then, as a step of its own, the status and
the end. A failed reconcile comes again with a growing pause.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from rollout_lab.controllers.members import (
    POD_INDEX_LABEL,
    POD_NAME_LABEL,
    STATEFULSET,
    Member,
    find_equal,
    in_order,
    is_parallel,
    list_forgotten,
    new_pod,
    new_revision,
    next_number,
    ordinals_of,
    owner_reference,
    parse_name,
    read_member,
    ready_since,
    selects,
    template_of,
)
from rollout_lab.model.fields import (
    child,
    controller_of,
    is_terminating,
    moment_of,
    name_of,
    namespace_of,
    number,
    text,
    uid_of,
)
from rollout_lab.model.history import Commit
from rollout_lab.model.request import STRATEGIC_PATCH, ApiAnswer, ApiRequest, ApiServer, Verb
from rollout_lab.schemas.kinds import CONTROLLER_REVISIONS
from rollout_lab.schemas.metadata import labels_of
from rollout_lab.virtual_loop.pace import Range, StepTimes, Timers, draw
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Resource


class CountedStatus(msgspec.Struct, kw_only=True):
    """What one pass over a set finds."""

    observed_generation: int
    current_revision: str
    update_revision: str
    collisions: int
    replicas: int = 0
    ready: int = 0
    available: int = 0
    current: int = 0
    updated: int = 0

    def count(self, pods: Iterable[Member], min_ready: int, now: datetime) -> None:
        """Count pods anew; those not created yet have no phase and count for nothing."""
        self.replicas = self.ready = self.available = self.current = self.updated = 0
        for pod in pods:
            is_created = pod.phase != ""
            self.replicas += is_created
            if pod.is_running_and_ready:
                self.ready += 1
                self.available += pod.is_available(min_ready, now)
            if is_created and not pod.is_terminating:
                self.current += pod.revision == self.current_revision
                self.updated += pod.revision == self.update_revision

    def complete_update(self, sts: JsonObject, *, completes_on_delete: bool) -> None:
        """Let the current revision follow where an update is through.

        Before 1.37 never under OnDelete: there it stays until another client writes it.
        """
        wanted = number(sts, "spec", "replicas", default=1)
        is_rolling = text(sts, "spec", "updateStrategy", "type") == "RollingUpdate"
        follows = is_rolling or completes_on_delete
        if follows and self.updated == self.ready == self.replicas == wanted:
            self.current = self.updated
            self.current_revision = self.update_revision

    def differs(self, sts: JsonObject) -> bool:
        """Return whether it must be written: an older generation alone is no reason."""
        old = child(sts, "status")
        return self.observed_generation > number(old, "observedGeneration") or (
            self.replicas != number(old, "replicas")
            or self.current != number(old, "currentReplicas")
            or self.ready != number(old, "readyReplicas")
            or self.updated != number(old, "updatedReplicas")
            or self.current_revision != text(old, "currentRevision")
            or self.available != number(old, "availableReplicas")
            or self.update_revision != text(old, "updateRevision")
        )

    def render(self) -> JsonObject:
        """Return it as the API carries it: some counts are left out where they are 0."""
        left_out: JsonObject = {
            "observedGeneration": self.observed_generation,
            "readyReplicas": self.ready,
            "currentReplicas": self.current,
            "updatedReplicas": self.updated,
            "currentRevision": self.current_revision,
            "updateRevision": self.update_revision,
        }
        return {
            "replicas": self.replicas,
            "availableReplicas": self.available,
            "collisionCount": self.collisions,
            **{key: value for key, value in left_out.items() if value},
        }


CONTROLLER: Final = "statefulset-controller"


class WriteFailed(Exception):
    """The API server did not do it: the set is reconciled again later."""

    def __init__(self, answer: ApiAnswer) -> None:
        super().__init__(f"{answer.status} {answer.reason}: {answer.message}")
        self.answer = answer


class SetWrites(msgspec.Struct):
    """Writes for one set. All raise WriteFailed for what the API server refuses."""

    api: ApiServer
    sts: JsonObject
    newest: dict[str, int]
    """The version of its newest write of each kind, by plural: what its cache must have seen."""

    def create_pod(self, pod: JsonObject) -> None:
        self._record(PODS, self._call("create", PODS, name_of(pod), body=pod))

    def delete_pod(self, name: str) -> None:
        """DELETE the pod of that name, whichever it is by now; none is fine."""
        try:
            self._call("delete", PODS, name)
        except WriteFailed as failed:
            if failed.answer.status != 404:
                raise

    def give_identity(self, pod: JsonObject) -> None:
        """PUT a member back under the labels by which it is known."""
        head = child(pod, "metadata")
        labels: JsonObject = {
            **child(head, "labels"),
            POD_NAME_LABEL: name_of(pod),
            POD_INDEX_LABEL: str(parse_name(pod)[1]),
        }
        body: JsonObject = {**pod, "metadata": {**head, "labels": labels}}
        self._record(PODS, self._call("update", PODS, name_of(pod), body=body))

    def adopt(self, resource: Resource, orphan: JsonObject) -> JsonObject | None:
        """PATCH the set in as controller of an orphan; return it, None where it is gone.

        Not done where the set is on its way out, or another set, in the store itself.
        """
        fresh = self.api.get(STATEFULSETS, namespace_of(self.sts), name_of(self.sts))
        if fresh is None or uid_of(fresh) != uid_of(self.sts):
            raise WriteFailed(_local("the set is gone"))
        if text(fresh, "metadata", "deletionTimestamp"):
            raise WriteFailed(_local("the set has just been deleted"))
        return self._patch_owner(resource, orphan, owner_reference(self.sts))

    def release(self, pod: JsonObject) -> None:
        """PATCH the set out as controller of a pod."""
        self._patch_owner(PODS, pod, {"$patch": "delete", "uid": uid_of(self.sts)})

    def create_revision(self, number_of_it: int, collisions: int) -> tuple[JsonObject, int]:
        """POST a revision of the set's template and return it with the count of collisions.

        A name that is taken by other data counts as a collision, and another hash is tried.
        """
        while True:
            revision = new_revision(self.sts, number_of_it, collisions)
            try:
                body = self._call("create", CONTROLLER_REVISIONS, name_of(revision), body=revision)
            except WriteFailed as failed:
                if failed.answer.reason != "AlreadyExists":
                    raise
                taken = self.api.get(
                    CONTROLLER_REVISIONS, namespace_of(self.sts), name_of(revision)
                )
                if taken is None:
                    raise
                if taken.get("data") == revision["data"]:
                    return taken, collisions
                collisions += 1
            else:
                return body, collisions

    def renumber_revision(self, revision: JsonObject, number_of_it: int) -> JsonObject:
        """PUT a revision with another number and return it."""
        if number(revision, "revision") == number_of_it:
            return revision
        body: JsonObject = {**revision, "revision": number_of_it}
        return self._call("update", CONTROLLER_REVISIONS, name_of(revision), body=body)

    def delete_revision(self, revision: JsonObject) -> None:
        self._call("delete", CONTROLLER_REVISIONS, name_of(revision))

    def replace_status(self, sts: JsonObject, status: JsonObject) -> None:
        """PUT the status of the set, as it was read."""
        body: JsonObject = {**sts, "status": status}
        name = name_of(sts)
        answer = self._call("update", STATEFULSETS, name, subresource="status", body=body)
        self._record(STATEFULSETS, answer)

    def _patch_owner(
        self, resource: Resource, obj: JsonObject, reference: JsonObject
    ) -> JsonObject | None:
        body: JsonObject = {"metadata": {"ownerReferences": [reference], "uid": uid_of(obj)}}
        try:
            patched = self._call("patch", resource, name_of(obj), body=body)
        except WriteFailed as failed:
            if failed.answer.status != 404:
                raise
            return None
        return patched

    def _call(
        self,
        verb: Verb,
        resource: Resource,
        name: str,
        *,
        subresource: str = "",
        body: JsonObject | None = None,
    ) -> JsonObject:
        answer = self.api.call_now(
            ApiRequest(
                verb=verb,
                resource=resource,
                namespace=namespace_of(self.sts),
                name="" if verb == "create" else name,
                subresource=subresource,
                body=body,
                content_type=STRATEGIC_PATCH if verb == "patch" else "application/json",
                user=CONTROLLER,
            )
        )
        if not answer.is_ok:
            raise WriteFailed(answer)
        return answer.body

    def _record(self, resource: Resource, written: JsonObject) -> None:
        version = int(text(written, "metadata", "resourceVersion") or 0)
        self.newest[resource.plural] = max(self.newest.get(resource.plural, 0), version)


def _local(why: str) -> ApiAnswer:
    return ApiAnswer(status=409, body={"reason": "Conflict", "message": why})


# So many calls at a time, as long as none fails: 1, 2, 4, ...
_LARGEST_BATCH: Final = 500


class _Stop(Exception):
    """Nothing more happens in this pass: something must be waited for."""


@dataclass(slots=True, kw_only=True)
class Pass:
    """One pass: what it works on, and what it has found. `status` holds after `run`."""

    sts: JsonObject
    pods: Sequence[Member]
    current: JsonObject
    """The revision that the status names, or the update revision where it names none."""
    update: JsonObject
    status: CountedStatus
    writes: SetWrites
    now: datetime
    rng: random.Random
    """Calls of one batch go out together: any of them may come first."""
    _is_parallel: bool = field(init=False)
    _is_rolling: bool = field(init=False)
    _min_ready: int = field(init=False)

    def __post_init__(self) -> None:
        self._is_parallel = is_parallel(self.sts)
        self._is_rolling = text(self.sts, "spec", "updateStrategy", "type") == "RollingUpdate"
        self._min_ready = number(self.sts, "spec", "minReadySeconds")

    def run(self) -> WriteFailed | None:
        """Carry out what can be done now; return the first failure."""
        replicas, condemned = self._sort()
        self._count(self.pods)
        if is_terminating(self.sts):
            return None
        failure: WriteFailed | None = None
        try:
            self._run_all(replicas, self._tend)
            first = self._first_unavailable(replicas, condemned)
            self._run_all(condemned, lambda pod: self._condemn(pod, first))
        except _Stop:
            self._count([*replicas, *condemned])
            return None
        except WriteFailed as failed:
            failure = failed
        self._count([*replicas, *condemned])
        return failure or self._roll(replicas)

    def _sort(self) -> tuple[list[Member], list[Member]]:
        """Return the pods that are wanted, absent pods as they will be, and those that are not."""
        wanted = ordinals_of(self.sts)
        found = {pod.ordinal: pod for pod in self.pods if pod.ordinal in wanted}
        replicas = [found.get(ordinal) or self._new_pod(ordinal) for ordinal in wanted]
        condemned = [pod for pod in self.pods if pod.ordinal >= 0 and pod.ordinal not in wanted]
        condemned.sort(key=lambda pod: -pod.ordinal)
        return replicas, condemned

    def _new_pod(self, ordinal: int) -> Member:
        below = ordinals_of(self.sts).start + self._count_current()
        revision = self.current if self._is_rolling and ordinal < below else self.update
        pod = new_pod(self.sts, template_of(revision), name_of(revision), ordinal)
        return read_member(pod)

    def _count_current(self) -> int:
        """Return how many pods, from the lowest on, are made of the current revision."""
        strategy = child(self.sts, "spec", "updateStrategy")
        if strategy.get("rollingUpdate") is None:
            # A strategy of which only the type is given: the API fills in no partition.
            return number(self.sts, "status", "currentReplicas")
        return self._partition

    @property
    def _partition(self) -> int:
        return number(self.sts, "spec", "updateStrategy", "rollingUpdate", "partition")

    def _count(self, pods: Sequence[Member]) -> None:
        self.status.count(pods, self._min_ready, self.now)

    def _first_unavailable(self, replicas: Sequence[Member], condemned: Sequence[Member]) -> str:
        """Return the name of the lowest unavailable pod, wanted pods first."""
        for pod in (*replicas, *reversed(condemned)):
            if pod.is_unavailable(self._min_ready, self.now):
                return pod.name
        return ""

    def _is_up(self, pod: Member) -> bool:
        return pod.is_running_and_ready and pod.is_available(self._min_ready, self.now)

    def _run_all(self, pods: Sequence[Member], step: Callable[[Member], None]) -> None:
        """Take the step for each pod: in order until one must wait, or all in growing batches.

        Raises the first failure; a batch is finished before.
        """
        if not self._is_parallel:
            for pod in pods:
                step(pod)
            return
        done, size = 0, 1
        while done < len(pods):
            batch = list(pods[done : done + size])
            self.rng.shuffle(batch)
            failures = [failure for pod in batch if (failure := self._try(step, pod))]
            if failures:
                raise failures[0]
            done, size = done + len(batch), min(2 * size, _LARGEST_BATCH)

    @staticmethod
    def _try(step: Callable[[Member], None], pod: Member) -> WriteFailed | None:
        try:
            step(pod)
        except WriteFailed as failure:
            return failure
        except _Stop:
            pass  # where pods come and go together, none waits for another
        return None

    def _tend(self, pod: Member) -> None:
        """Bring a wanted pod nearer; _Stop where those above must wait for it."""
        if pod.phase in ("Failed", "Succeeded"):
            if not pod.is_terminating:
                self.writes.delete_pod(pod.name)
            raise _Stop
        if pod.phase == "":
            self.writes.create_pod(pod.pod)
            raise _Stop
        if not self._is_parallel and (pod.is_terminating or not self._is_up(pod)):
            raise _Stop
        if not pod.has_identity(name_of(self.sts)):
            self.writes.give_identity(pod.pod)

    def _condemn(self, pod: Member, first_unavailable: str) -> None:
        """Delete a pod that is not wanted; in order, only while all others are up."""
        if pod.is_terminating:
            raise _Stop
        if not self._is_parallel and not self._is_up(pod) and pod.name != first_unavailable:
            raise _Stop
        self.writes.delete_pod(pod.name)
        raise _Stop

    def _roll(self, replicas: Sequence[Member]) -> WriteFailed | None:
        """Under RollingUpdate, replace outdated pods from the highest down, as many as may go.

        In parallel those that are down already go first, however many are down. So since 1.37.
        """
        if not self._is_rolling:
            return None
        down = [pod for pod in replicas if pod.is_unavailable(self._min_ready, self.now)]
        room = max(self._max_unavailable(len(replicas)) - len(down), 0)
        outdated = [
            pod
            for pod in reversed(replicas[self._partition :])
            if pod.revision != self.status.update_revision and not pod.is_terminating
        ]
        if self._is_parallel:
            free = [pod for pod in outdated if pod in down]
            going = [*free, *[pod for pod in outdated if pod not in down][:room]]
        else:
            going = outdated[:room]
        for pod in going:
            try:
                self.writes.delete_pod(pod.name)
            except WriteFailed as failed:
                return failed
            self.status.current -= 1
        return None

    def _max_unavailable(self, replicas: int) -> int:
        rules = child(self.sts, "spec", "updateStrategy", "rollingUpdate")
        match rules.get("maxUnavailable"):
            case int(number):
                return number
            case str(share):
                return max(replicas * int(share.removesuffix("%")) // 100, 1)
        return 1


Key = tuple[str, str]
"""Namespace and name."""

_WATCHED: Final = (STATEFULSETS.plural, PODS.plural, CONTROLLER_REVISIONS.plural)
_T = TypeVar("_T")
_Owned = dict[str, dict[Key, _T]]


class ControllerCache:
    """The controller's cache. `on_change` is told of each commit when it has got there."""

    def __init__(self, *, timers: Timers, rng: random.Random, lag: Range) -> None:
        self.on_change: Callable[[Commit], None] = lambda _commit: None
        self.sets: dict[Key, JsonObject] = {}
        self._pods: _Owned[Member] = {}
        self._revisions: _Owned[JsonObject] = {}
        self._newest: dict[str, int] = {}
        self._timers = timers
        self._rng = rng
        self._lag = lag
        self._late: dict[str, deque[Commit]] = {plural: deque() for plural in _WATCHED}

    def bring(self, commit: Commit) -> None:
        """Take a commit in, now or after a while."""
        late = self._late.get(commit.resource.plural)
        if late is None:
            return
        if self._lag[1] == timedelta(0):
            self.take(commit)
            return
        late.append(commit)
        # Each step takes the oldest that waits: none overtakes another of its kind.
        step = draw(self._rng, self._lag)
        self._timers.after(step, lambda: self.take(late.popleft()))

    def take(self, commit: Commit) -> None:
        """Take a commit in now; of kinds that are not watched nothing is kept."""
        plural = commit.resource.plural
        if plural not in _WATCHED:
            return
        self._newest[plural] = commit.revision
        key = (commit.namespace, commit.name)
        if plural == STATEFULSETS.plural:
            if commit.after is None:
                self.sets.pop(key, None)
            else:
                self.sets[key] = commit.after
        elif plural == PODS.plural:
            member = None if commit.after is None else read_member(commit.after)
            _move(self._pods, key, commit, member)
        else:
            _move(self._revisions, key, commit, commit.after)
        self.on_change(commit)

    def has_seen(self, plural: str, revision: int) -> bool:
        """Return whether a write of that kind has got here."""
        return self._newest.get(plural, 0) >= revision

    def pods(self, owner: str, namespace: str) -> list[Member]:
        """Return the pods that a UID controls; those without a controller for an empty UID."""
        return _list(self._pods, owner, namespace)

    def revisions(self, owner: str, namespace: str) -> list[JsonObject]:
        """Return the revisions that a UID controls; those without a controller for an empty UID."""
        return _list(self._revisions, owner, namespace)

    def sets_of(self, namespace: str) -> Iterator[JsonObject]:
        return (sts for key, sts in self.sets.items() if key[0] == namespace)


def _list(owned: _Owned[_T], owner: str, namespace: str) -> list[_T]:
    found = owned.get(owner)
    return [obj for key, obj in found.items() if key[0] == namespace] if found else []


def _move(owned: _Owned[_T], key: Key, commit: Commit, t: _T | None) -> None:
    """Put an object, None where it is gone, below its owner."""
    if commit.before is not None:
        before = text(controller_of(commit.before), "uid")
        owned.get(before, {}).pop(key, None)
        if not owned.get(before):
            owned.pop(before, None)
    if commit.after is not None and t is not None:
        owned.setdefault(text(controller_of(commit.after), "uid"), {})[key] = t


# As client-go's queues wait after failures, and as its updates are tried again on conflict.
_FIRST_PAUSE: Final = timedelta(milliseconds=5)
_LONGEST_PAUSE: Final = timedelta(seconds=1000)
_CONFLICT_PAUSE: Final = timedelta(milliseconds=10)
_STATUS_ATTEMPTS: Final = 5


class _SetReconcile(msgspec.Struct, kw_only=True):
    """One reconcile of a set, from its claim to its status."""

    key: Key
    sts: JsonObject
    writes: SetWrites
    set_pass: Pass
    revisions: Sequence[JsonObject]
    failure: WriteFailed | None
    attempts: int = 0


class StatefulSets:
    """Brings all sets of a world nearer to what they want. Told of commits by `see`."""

    def __init__(
        self,
        api: ApiServer,
        *,
        timers: Timers,
        rng: random.Random,
        pace: StepTimes,
        completes_on_delete: bool,
    ) -> None:
        self._completes_on_delete = completes_on_delete
        self._api = api
        self._timers = timers
        self._rng = rng
        self._pace = pace
        self._lag = timedelta(0)
        self._cache = ControllerCache(timers=timers, rng=rng, lag=pace.controller_cache)
        self._cache.on_change = self._notice
        self._queued: dict[Key, int] = {}
        self._working: dict[Key, bool] = {}
        """Keys in work, and whether they changed meanwhile."""
        self._failures: dict[Key, int] = {}
        self._written: dict[Key, dict[str, int]] = {}

    def lag(self, span: timedelta) -> None:
        """Look so much later than usual from now on; zero ends that at once."""
        self._lag = span
        for key in list(self._queued):
            self._timers.cancel(self._queued.pop(key))
            self._wake(key)

    def see(self, commit: Commit) -> None:
        """Record a commit, which gets into the cache at its pace."""
        self._cache.bring(commit)

    def load(self, commit: Commit) -> None:
        """Take in at once what was there before the controller began."""
        self._cache.take(commit)

    # What wakes it

    def _notice(self, commit: Commit) -> None:
        if commit.resource.plural == STATEFULSETS.plural:
            self._wake((commit.namespace, commit.name))
        elif commit.resource.plural == PODS.plural:
            self._notice_pod(commit)

    def _notice_pod(self, commit: Commit) -> None:
        before, after = commit.before, commit.after
        owner = controller_of(after or before or {})
        old_owner = controller_of(before or {})
        if old_owner and old_owner != owner:
            self._wake_owner(commit.namespace, old_owner)
        if owner:
            sts = self._wake_owner(commit.namespace, owner)
            if sts is not None and after is not None:
                self._await_availability(sts, before, after)
        elif after is not None:
            for sts in self._cache.sets_of(commit.namespace):
                if selects(sts, labels_of(after)):
                    self._wake((commit.namespace, name_of(sts)))

    def _await_availability(
        self, sts: JsonObject, before: JsonObject | None, after: JsonObject
    ) -> None:
        min_ready = number(sts, "spec", "minReadySeconds")
        was_ready = before is not None and ready_since(before) is not None
        if min_ready > 0 and not was_ready and ready_since(after) is not None:
            key = (text(sts, "metadata", "namespace"), name_of(sts))
            self._wake_after(key, timedelta(seconds=min_ready))

    def _wake_owner(self, namespace: str, owner: JsonObject) -> JsonObject | None:
        key = (namespace, text(owner, "name"))
        sts = self._cache.sets.get(key) if owner.get("kind") == STATEFULSET else None
        if sts is None or uid_of(sts) != owner.get("uid"):
            return None
        self._wake(key)
        return sts

    def _wake_after(self, key: Key, span: timedelta) -> None:
        self._timers.after(span, lambda: self._wake(key))

    def _wake(self, key: Key) -> None:
        if key in self._working:
            self._working[key] = True
        elif key not in self._queued:
            span = self._lag + draw(self._rng, self._pace.controller)
            self._queued[key] = self._timers.after(span, lambda: self._reconcile(key))

    # One reconcile

    def _reconcile(self, key: Key) -> None:
        del self._queued[key]
        self._working[key] = False
        if not self._has_seen_own_writes(key):
            self._fail(key)
            return
        sts = self._cache.sets.get(key)
        if sts is None:
            self._failures.pop(key, None)
            self._end(key)
            return
        writes = SetWrites(self._api, sts, self._written.setdefault(key, {}))
        try:
            reconcile = self._begin(key, sts, writes)
        except WriteFailed:
            self._fail(key)
            return
        reconcile.failure = reconcile.set_pass.run()
        reconcile.set_pass.status.complete_update(
            sts, completes_on_delete=self._completes_on_delete
        )
        if reconcile.set_pass.status.differs(sts):
            span = draw(self._rng, self._pace.status)
            self._timers.after(span, lambda: self._write_status(reconcile))
        else:
            self._finish(reconcile)

    def _has_seen_own_writes(self, key: Key) -> bool:
        """Return whether the cache holds all that an earlier look has written (since v1.36)."""
        written = self._written.get(key, {})
        if not all(self._cache.has_seen(*each) for each in written.items()):
            return False
        self._written.pop(key, None)
        return True

    def _begin(self, key: Key, sts: JsonObject, writes: SetWrites) -> _SetReconcile:
        """Claim pods and revisions, and find the revisions that count. Raises WriteFailed."""
        for orphan in self._cache.revisions("", key[0]):
            if selects(sts, labels_of(orphan)):
                writes.adopt(CONTROLLER_REVISIONS, orphan)
        pods = self._claim_pods(sts, writes)
        revisions = in_order(self._list_revisions(sts))
        collisions = number(sts, "status", "collisionCount")
        update, collisions = self._ensure_update(sts, writes, revisions, collisions)
        named = text(sts, "status", "currentRevision")
        current = next((revision for revision in revisions if name_of(revision) == named), update)
        set_pass = Pass(
            sts=sts,
            pods=pods,
            current=current,
            update=update,
            status=CountedStatus(
                observed_generation=number(sts, "metadata", "generation"),
                current_revision=name_of(current),
                update_revision=name_of(update),
                collisions=collisions,
            ),
            writes=writes,
            now=self._api.now(),
            rng=self._rng,
        )
        return _SetReconcile(
            key=key, sts=sts, writes=writes, set_pass=set_pass, revisions=revisions, failure=None
        )

    def _claim_pods(self, sts: JsonObject, writes: SetWrites) -> list[Member]:
        """Return the set's pods: its own that still match, and orphans that do now."""
        namespace = text(sts, "metadata", "namespace")
        mine = []
        for pod in self._cache.pods(uid_of(sts), namespace):
            if _is_member(sts, pod):
                mine.append(pod)
            elif not is_terminating(sts):
                writes.release(pod.pod)
        for pod in self._cache.pods("", namespace):
            may_adopt = not is_terminating(sts) and not pod.is_terminating
            if may_adopt and _is_member(sts, pod) and writes.adopt(PODS, pod.pod) is not None:
                mine.append(pod)
        return mine

    def _list_revisions(self, sts: JsonObject) -> list[JsonObject]:
        namespace = text(sts, "metadata", "namespace")
        owned = self._cache.revisions(uid_of(sts), namespace)
        free = self._cache.revisions("", namespace)
        return [pod for pod in (*owned, *free) if selects(sts, labels_of(pod))]

    @staticmethod
    def _ensure_update(
        sts: JsonObject, writes: SetWrites, revisions: Sequence[JsonObject], collisions: int
    ) -> tuple[JsonObject, int]:
        """Return the revision of the set's template, made or renumbered where it must be."""
        equal = find_equal(revisions, sts)
        if equal is None:
            return writes.create_revision(next_number(revisions), collisions)
        if equal is revisions[-1]:
            return equal, collisions
        return writes.renumber_revision(equal, next_number(revisions)), collisions

    # Its end

    def _write_status(self, reconcile: _SetReconcile) -> None:
        """Write the status over whatever is newest by then, as the real controller does."""
        reconcile.attempts += 1
        try:
            reconcile.writes.replace_status(reconcile.sts, reconcile.set_pass.status.render())
        except WriteFailed as failed:
            is_conflict = failed.answer.reason == "Conflict"
            if is_conflict and reconcile.attempts < _STATUS_ATTEMPTS:
                reconcile.sts = self._cache.sets.get(reconcile.key, reconcile.sts)
                self._timers.after(_CONFLICT_PAUSE, lambda: self._write_status(reconcile))
                return
            reconcile.failure = reconcile.failure or failed
        self._finish(reconcile)

    def _finish(self, reconcile: _SetReconcile) -> None:
        try:
            self._forget_revisions(reconcile)
        except WriteFailed as failed:
            reconcile.failure = reconcile.failure or failed
        if reconcile.failure is not None:
            self._fail(reconcile.key)
            return
        self._failures.pop(reconcile.key, None)
        self._check_availability(reconcile)
        self._end(reconcile.key)

    @staticmethod
    def _forget_revisions(reconcile: _SetReconcile) -> None:
        set_pass = reconcile.set_pass
        live = [name_of(set_pass.current), name_of(set_pass.update)]
        live += [pod.revision for pod in set_pass.pods]
        for revision in list_forgotten(set_pass.sts, reconcile.revisions, live):
            reconcile.writes.delete_revision(revision)

    def _check_availability(self, reconcile: _SetReconcile) -> None:
        """Look again when the next ready pod will have been so for long enough."""
        set_pass = reconcile.set_pass
        min_ready = number(set_pass.sts, "spec", "minReadySeconds")
        if min_ready > 0 and set_pass.status.ready != set_pass.status.available:
            waits = list(_list_waits(set_pass.pods, timedelta(seconds=min_ready), set_pass.now))
            self._wake_after(reconcile.key, min(waits, default=timedelta(seconds=min_ready)))

    def _fail(self, key: Key) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # 2 to the 18th of the first pause is beyond the longest: no larger number is needed.
        self._wake_after(key, min(_FIRST_PAUSE * 2 ** min(failures, 18), _LONGEST_PAUSE))
        self._end(key)

    def _end(self, key: Key) -> None:
        if self._working.pop(key):
            self._wake(key)


def _is_member(sts: JsonObject, pod: Member) -> bool:
    return pod.parent == name_of(sts) and selects(sts, pod.labels)


def _list_waits(pods: Sequence[Member], min_ready: timedelta, now: datetime) -> Sequence[timedelta]:
    """Return how long each ready pod still has to wait until it is available."""
    stamps = [pod.ready_since for pod in pods if pod.ready_since]
    waits = [moment_of(since) + min_ready - now for since in stamps]
    return [wait for wait in waits if wait > timedelta(0)]
