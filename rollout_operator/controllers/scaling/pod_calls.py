"""Talk to pods about delayed downscales, and remember what was said.

One conversation per StatefulSet at a time, many sets at once: a slow pod delays nothing but the
downscale of its own set. What is to be said is decided in `planning.scaling.delays`; here it is
said, and whoever waits for the answers is woken. Nothing is remembered beyond this process: pods
know.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.controllers.worker import Result
from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.names import Uid
from rollout_operator.model.scaling import Talk, TalkToPods, Word
from rollout_operator.pods.client import PodError
from rollout_operator.telemetry.logs import log

# How soon a pod is asked again that gave no time: most often it is about to start.
FAILED: Final = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=1))


class DelayCalls(Protocol):
    """The part of `pods.client.PodClient` that is needed."""

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]: ...

    async def ask_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, Word]: ...


class Talks:
    """All conversations, by UID of the set, and their outcome by UID of the pod."""

    def __init__(
        self,
        calls: DelayCalls,
        *,
        now: Callable[[], datetime],
        on_heard: Callable[[Uid], None],
        late_calls: timedelta,
    ) -> None:
        """`now` tells the API server's time; `on_heard` is told the set that has answered.

        So long after its caller has given up a call may still reach a pod: `late_calls`.
        """
        self._late_calls = late_calls
        self._calls = calls
        self._now = now
        self._on_heard = on_heard
        self._due: dict[Uid, TalkToPods] = {}
        self._talks: dict[Uid, dict[Uid, Talk]] = {}
        # The pods of sets with conversations that were not ready at the last look.
        self._unready: dict[Uid, frozenset[Uid]] = {}
        self.queue: WorkQueue[Uid] = WorkQueue()

    def known(self, sets: Iterable[Uid]) -> Mapping[Uid, Talk]:
        """Return what passed between us and the pods of these sets."""
        return {uid: talk for one in sets for uid, talk in self._talks.get(one, {}).items()}

    def keep(self, set_uid: Uid, pods: Mapping[Uid, bool]) -> None:
        """Take the pods that a set has now, and whether each is ready.

        Others are forgotten; one that has become ready may have a better word than it had.
        """
        talks = self._talks.get(set_uid)
        if talks is None:
            return
        before = self._unready.get(set_uid, frozenset())
        self._unready[set_uid] = frozenset(uid for uid, is_ready in pods.items() if not is_ready)
        recovered = before.intersection(talks) - self._unready[set_uid]
        self._talks[set_uid] = {
            uid: _reopen(talk) if uid in recovered else talk
            for uid, talk in talks.items()
            if uid in pods
        }

    def forget(self, set_uid: Uid) -> None:
        """Forget a set that is gone, or has no delay any more."""
        self._talks.pop(set_uid, None)
        self._unready.pop(set_uid, None)

    def begin(self, talk: TalkToPods) -> None:
        """Talk to the pods of a set, unless that is under way.

        Then nothing is added: who plans again when it is over knows better what is due.
        """
        if talk.zone.uid not in self._due:
            self._due[talk.zone.uid] = talk
            self.queue.add(talk.zone.uid)

    async def reconcile(self, set_uid: Uid) -> Result:
        """Say what is due to the pods of one set."""
        talk = self._due.get(set_uid)
        if talk is None:
            return Result()
        try:
            await self._cancel(talk)
            await self._ask(talk)
        finally:
            del self._due[set_uid]
        self._on_heard(set_uid)
        return Result()

    async def _cancel(self, talk: TalkToPods) -> None:
        failed = await self._calls.cancel_all(talk.cancel) if talk.cancel else {}
        now, talks = self._now(), self._talks.setdefault(talk.zone.uid, {})
        for pod in talk.cancel:
            error, known = failed.get(pod.uid), talks.get(pod.uid, Talk())
            if error is None:
                talks[pod.uid] = Talk(
                    word=self._find_late(known, now),
                    cancelled_at=now,
                    unanswered_at=known.unanswered_at,
                )
                continue
            log.debug("Pod did not confirm that it stays", zone=talk.zone.name, err=error)
            unanswered_at = now if error.may_arrive else known.unanswered_at
            talks[pod.uid] = replace(
                known, tried_at=now, tries=known.tries + 1, unanswered_at=unanswered_at
            )

    def _find_late(self, known: Talk, now: datetime) -> Word | None:
        """Return the word of a POST that may arrive after the DELETE that follows it (LI-05)."""
        word = known.word
        if word is None or not word.is_lost or abs(now - word.asked_at) > self._late_calls:
            return None
        return word

    async def _ask(self, talk: TalkToPods) -> None:
        words = await self._calls.ask_all(talk.ask) if talk.ask else {}
        # All of one conversation are as old as its end: the plan that follows takes them together.
        now, talks = self._now(), self._talks.setdefault(talk.zone.uid, {})
        for pod in talk.ask:
            failures, wait, known = 0, None, talks.get(pod.uid, Talk())
            if words[pod.uid].since is None:
                failures = known.failures + 1
                wait = FAILED.bound(failures)
            word = replace(words[pod.uid], asked_at=now, lasts=wait)
            talks[pod.uid] = Talk(word=word, failures=failures, unanswered_at=known.unanswered_at)
            if word.problem:
                log.debug("Pod gave no time", zone=talk.zone.name, pod=pod.pod, why=word.problem)


def _reopen(talk: Talk) -> Talk:
    """Have a pod asked at once that gave no time when it was asked last."""
    if talk.word is None or talk.word.since is not None:
        return talk
    return replace(talk, word=replace(talk.word, lasts=timedelta(0)), failures=0)
