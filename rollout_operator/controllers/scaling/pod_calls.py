"""Call pods about delayed downscales, and remember their answers.

One round of calls per StatefulSet at a time, many sets at once: a slow pod delays nothing but the
downscale of its own set. Which calls are due is decided in `planning.scaling.delays`; this module
sends them, and the answers wake the controller. Nothing is remembered beyond this process: pods
know.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from msgspec.structs import replace

from rollout_operator.aio.backoff import POD_CALLS
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.controllers.worker import Result
from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.names import Uid
from rollout_operator.model.scaling import CallPods, PodAnswer, PodCalls
from rollout_operator.pods.client import PodError
from rollout_operator.telemetry.logs import log


class DelayCalls(Protocol):
    """The part of `pods.client.PodClient` that is needed."""

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]: ...

    async def fetch_answers(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodAnswer]: ...


@dataclass(slots=True)
class PodCaller:
    """All calls, by UID of the set, and their answers, by UID of the pod."""

    calls: DelayCalls
    _: KW_ONLY
    now: Callable[[], datetime]
    """The API server's time."""
    on_answers: Callable[[Uid], None]
    """Called with the set."""
    late_calls: timedelta
    """So long after its caller has given up a call may still reach a pod."""
    _due: dict[Uid, CallPods] = field(default_factory=dict, init=False)
    _pod_calls: dict[Uid, dict[Uid, PodCalls]] = field(default_factory=dict, init=False)
    _unready: dict[Uid, frozenset[Uid]] = field(default_factory=dict, init=False)
    """The pods of sets with calls that were not ready at the last reconcile."""
    queue: WorkQueue[Uid] = field(default_factory=WorkQueue, init=False)

    def known(self, sets: Iterable[Uid]) -> Mapping[Uid, PodCalls]:
        """Return the calls to the pods of these sets, and their answers."""
        return {uid: calls for sts in sets for uid, calls in self._pod_calls.get(sts, {}).items()}

    def keep(self, set_uid: Uid, pods: Mapping[Uid, bool]) -> None:
        """Take the pods that a set has now, and whether each is ready.

        Other pods are forgotten; a pod that has become ready may answer better than before.
        """
        pod_calls = self._pod_calls.get(set_uid)
        if pod_calls is None:
            return
        before = self._unready.get(set_uid, frozenset())
        self._unready[set_uid] = frozenset(uid for uid, is_ready in pods.items() if not is_ready)
        recovered = before.intersection(pod_calls) - self._unready[set_uid]
        self._pod_calls[set_uid] = {
            uid: _reopen(calls) if uid in recovered else calls
            for uid, calls in pod_calls.items()
            if uid in pods
        }

    def forget(self, set_uid: Uid) -> None:
        """Forget a set that is gone, or has no delay any more."""
        self._pod_calls.pop(set_uid, None)
        self._unready.pop(set_uid, None)

    def begin(self, due: CallPods) -> None:
        """Call the pods of a set, unless that is under way.

        A call under way gets no further pods: the plan after it knows better what is due.
        """
        if due.zone.uid not in self._due:
            self._due[due.zone.uid] = due
            self.queue.add(due.zone.uid)

    async def reconcile(self, set_uid: Uid) -> Result:
        """Send the calls that are due to the pods of one set."""
        due = self._due.get(set_uid)
        if due is None:
            return Result()
        try:
            await self._cancel(due)
            await self._call_pods(due)
        finally:
            del self._due[set_uid]
        self.on_answers(set_uid)
        return Result()

    async def _cancel(self, due: CallPods) -> None:
        failed = await self.calls.cancel_all(due.cancel) if due.cancel else {}
        now, pod_calls = self.now(), self._pod_calls.setdefault(due.zone.uid, {})
        for pod in due.cancel:
            error, calls = failed.get(pod.uid), pod_calls.get(pod.uid, PodCalls())
            if error is None:
                pod_calls[pod.uid] = PodCalls(
                    answer=self._find_late(calls, now),
                    cancelled_at=now,
                    unanswered_at=calls.unanswered_at,
                )
                continue
            log.debug("Pod did not confirm that it stays", zone=due.zone.name, err=error)
            unanswered_at = now if error.may_arrive else calls.unanswered_at
            pod_calls[pod.uid] = replace(
                calls, tried_at=now, tries=calls.tries + 1, unanswered_at=unanswered_at
            )

    def _find_late(self, calls: PodCalls, now: datetime) -> PodAnswer | None:
        """Return the answer to a POST that may arrive after the DELETE that follows it (LI-05)."""
        answer = calls.answer
        if answer is None or not answer.is_lost or abs(now - answer.called_at) > self.late_calls:
            return None
        return answer

    async def _call_pods(self, due: CallPods) -> None:
        answers = await self.calls.fetch_answers(due.post) if due.post else {}
        # All of one round are as old as its end: the plan that follows takes them together.
        now, pod_calls = self.now(), self._pod_calls.setdefault(due.zone.uid, {})
        for pod in due.post:
            failures, wait, calls = 0, None, pod_calls.get(pod.uid, PodCalls())
            if answers[pod.uid].since is None:
                failures = calls.failures + 1
                wait = POD_CALLS.bound(failures)
            answer = replace(answers[pod.uid], called_at=now, lasts=wait)
            pod_calls[pod.uid] = PodCalls(
                answer=answer, failures=failures, unanswered_at=calls.unanswered_at
            )
            if answer.problem:
                log.debug("Pod gave no time", zone=due.zone.name, pod=pod.pod, why=answer.problem)


def _reopen(calls: PodCalls) -> PodCalls:
    """Have a pod called at once that gave no time at the last call."""
    if calls.answer is None or calls.answer.since is not None:
        return calls
    return replace(calls, answer=replace(calls.answer, lasts=timedelta(0)), failures=0)
