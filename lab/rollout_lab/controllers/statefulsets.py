"""The StatefulSet controller: which set is looked at when, and what one reconcile leads to.

A key is worked on by one step at a time: claim, pass, then, as a step of its own, the status and
the end. What a pass does with pods is decided in `set_pass`; a failed reconcile comes again with a
growing pause.
"""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_lab.controllers.controller_cache import ControllerCache, Key
from rollout_lab.controllers.members import STATEFULSET, Member, ready_since, selects
from rollout_lab.controllers.revisions import find_equal, in_order, list_forgotten, next_number
from rollout_lab.controllers.set_pass import Pass
from rollout_lab.controllers.set_status import CountedStatus
from rollout_lab.controllers.set_writes import SetWrites, WriteFailed
from rollout_lab.model.fields import (
    controller_of,
    is_terminating,
    moment_of,
    name_of,
    number,
    text,
    uid_of,
)
from rollout_lab.model.history import Commit
from rollout_lab.model.request import ApiServer
from rollout_lab.schemas.kinds import CONTROLLER_REVISIONS
from rollout_lab.schemas.labels import labels_of
from rollout_lab.virtual_loop.pace import StepTimes, Timers, draw
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject

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
