"""Un-prepare pods that stay: where they were prepared, and with as many calls as it takes.

Which pods are due is decided in `controller` and in the reviews, and remembered in
`guards.downscales.reservations`; this module carries it out. Calls are made under the lock of the
set, so that none overtakes the calls of a review to the same pods.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.aio.backoff import CANCELLATIONS
from rollout_operator.aio.clock import Clock
from rollout_operator.guards.downscales.backlog import BacklogEntry, CancelCalls, DueCancel
from rollout_operator.guards.downscales.reservations import Downscales
from rollout_operator.guards.locks import Locks, calls_lock
from rollout_operator.kube.cache.store import is_older
from rollout_operator.model.downscale import Endpoint, Target
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.planning.downscales.endpoint import NoTarget, plan_endpoint, plan_target
from rollout_operator.planning.downscales.reservation import choose_staying, is_wanted, spares
from rollout_operator.pods.client import AT_MOST_PER_REVIEW
from rollout_operator.telemetry.logs import log

# Nothing is missed by events alone; this is for what events do not show.
RESYNC: Final = timedelta(seconds=30)
# Timers may be early by a little.
CATCH_UP: Final = timedelta(milliseconds=200)
# The cache does not show yet what was just read live.
LAGGING: Final = timedelta(seconds=1)
# A pod that a cache does not show may be missing there only because a watch was cut; and a
# downscale that stood for so long with its pods gone no longer counts as reverted.
GONE_AFTER: Final = timedelta(seconds=60)

# So many causes of a pod are logged as warnings: more are variations of the same.
MOST_CAUSES: Final = 8


class UnprepareCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the calls that are due to pods."""

    downscales: Downscales
    locks: Locks
    calls: CancelCalls
    clock: Clock
    cluster_domain: str

    async def send(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """Un-prepare pods of a set; return when to reconcile again."""
        downscales = self.downscales
        if not downscales.backlog.map_due_cancels(sts.uid):
            return RESYNC
        if is_older(sts.resource_version, than=downscales.backlog.get_version(sts.uid)):
            return LAGGING  # of the downscale before, it may not show that it happened
        async with self.locks.hold(calls_lock(sts.uid)):
            # A pod that was due before we had the lock may have been reserved anew meanwhile.
            backlog = self._map_free(sts)
            staying = choose_staying(
                sts, pods, {due_cancel.uid: backlog[due_cancel].pod for due_cancel in backlog}
            )
            self._forget_gone(sts, pods, backlog)
            now = self.clock.elapsed()
            places = {uid: place for place, uid in enumerate(staying)}
            due = [
                due_cancel
                for due_cancel in backlog
                if due_cancel.uid in staying and backlog[due_cancel].due <= now
            ]
            due.sort(key=lambda due_cancel: places[due_cancel.uid])
            # Not all at once: reviews of the set wait for the lock.
            await self._call_all(sts, due[:AT_MOST_PER_REVIEW], staying)
        # Pods that come have events; those that have gone are forgotten in time.
        now = self.clock.elapsed()
        waits = [now + RESYNC]
        for cancel, entry in self._map_free(sts).items():
            if cancel.uid in staying:
                waits.append(entry.due)
            elif entry.over is not None:
                waits.append(entry.over + GONE_AFTER)
        return max(min(waits) - now, CATCH_UP)

    def _map_free(self, sts: StatefulSet) -> dict[DueCancel, BacklogEntry]:
        """Return the calls that are due to pods that no downscale may still take away (SI-12).

        Other pods wait for the outcome of their downscale, wherever they were called.
        """
        backlog, reservation = (
            self.downscales.backlog.map_due_cancels(sts.uid),
            self.downscales.get(sts.uid),
        )
        if reservation is None:
            return backlog
        return {
            cancel: entry
            for cancel, entry in backlog.items()
            if spares(reservation.key, sts, entry.pod)
        }

    def _forget_gone(
        self, sts: StatefulSet, pods: Sequence[Pod], backlog: Mapping[DueCancel, BacklogEntry]
    ) -> None:
        """Forget the calls to pods that have gone and do not come back."""
        memory, now = self.downscales.backlog, self.clock.elapsed()
        present = {pod.name for pod in pods}
        for cancel, entry in backlog.items():
            wanted = is_wanted(sts, entry.pod)
            if wanted or entry.pod in present:
                memory.see(sts.uid, cancel, is_wanted=wanted)
            elif entry.over is None:
                memory.miss(sts.uid, cancel)
            elif entry.over + GONE_AFTER <= now:
                memory.settle(sts.uid, [cancel])

    async def _call_all(
        self, sts: StatefulSet, due: Sequence[DueCancel], staying: Mapping[Uid, Pod]
    ) -> None:
        for target in dict.fromkeys(due_cancel.target for due_cancel in due):
            here = {
                due_cancel: staying[due_cancel.uid]
                for due_cancel in due
                if due_cancel.target == target
            }
            await self._call(sts, target, here)

    async def _call(
        self, sts: StatefulSet, target: Target | None, here: Mapping[DueCancel, Pod]
    ) -> None:
        """Call these pods at one place, and remember those that could not be reached."""
        pods = list({pod.uid: pod for pod in here.values()}.values())
        endpoints, failed = _plan_endpoints(sts, target, pods, self.cluster_domain)
        unanswered = self.downscales.unanswered
        errors = await unanswered.cancel_all(self.calls, sts.uid, endpoints) if endpoints else {}
        failed |= {uid: str(error) for uid, error in errors.items()}
        reached = [due_cancel for due_cancel, pod in here.items() if pod.uid not in failed]
        self.downscales.backlog.record_un_prepared(sts.uid, reached)
        if reached:
            names = sorted({here[due_cancel].name for due_cancel in reached})
            log.info("Told pods that they stay", zone=sts.name, pods=names)
        for cancel, pod in here.items():
            if pod.uid in failed:
                self._postpone(sts, cancel, failed[pod.uid])

    def _postpone(self, sts: StatefulSet, due_cancel: DueCancel, why: str) -> None:
        """Try later, whatever changes: pods change all the time, and each change is reconciled."""
        entry = self.downscales.backlog.map_due_cancels(sts.uid).get(due_cancel)
        if entry is None:
            return
        wait = CANCELLATIONS.bound(entry.failures + 1)
        # Once for each pod and cause: it may stay so for days.
        is_news = why not in entry.causes and len(entry.causes) < MOST_CAUSES
        write_log = log.warn if is_news else log.debug
        write_log(
            "Pod cannot be told that it stays", zone=sts.name, pod=entry.pod, again_in=wait, err=why
        )
        self.downscales.backlog.postpone(sts.uid, due_cancel, wait, why)


def _plan_endpoints(
    sts: StatefulSet, called_at: Target | None, pods: Sequence[Pod], cluster_domain: str
) -> tuple[list[Endpoint], dict[Uid, str]]:
    """Return where pods are called, and why other pods cannot be.

    They are called where they were prepared, whatever the set says by now; where that is not known,
    where the set says it.
    """
    target = called_at or plan_target(sts.annotations, sts.service_name)
    if isinstance(target, NoTarget):
        return [], dict.fromkeys((pod.uid for pod in pods), target.sentence)
    planned = {pod.uid: plan_endpoint(pod, target, cluster_domain) for pod in pods}
    endpoints = [endpoint for endpoint in planned.values() if isinstance(endpoint, Endpoint)]
    return endpoints, {
        uid: endpoint for uid, endpoint in planned.items() if isinstance(endpoint, str)
    }
