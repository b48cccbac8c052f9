"""Drains as `kubectl drain` makes them: each pod is evicted until another one stands in its place.

Pods of this world are all on one node; a drain is of the pods that are named, or of whole zones.
Unlike kubectl it names the UID of the pod: pods of this world are ready within moments, and an
answer that was meant for a pod which has gone meanwhile would hit the one that came after it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec

from tests.world.api import PODS, Answer, Api, ApiError, Json
from tests.world.budgets import TRY_AGAIN, evict

# kubectl waits for 5 s, which only makes tests longer.
RETRY: Final = timedelta(milliseconds=200)
CREATED: Final = (200, 201)
# Replaced or gone since it was read: there is nothing left to do.
OVER: Final = (404, 409)
# What the API server itself says while no operator answers.
UNANSWERED: Final = "failed calling webhook"


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as it stood when the drain began."""

    name: str
    uid: str


@dataclass(slots=True)
class Drain:
    """Evicts pods side by side and keeps every answer."""

    api: Api
    namespace: str
    retry: timedelta = RETRY
    answers: list[tuple[str, Answer]] = field(default_factory=list)
    """Pod and answer, in order."""

    async def run(self, pods: Iterable[Victim], limit: timedelta) -> None:
        """Evict until each pod is gone. Raises TimeoutError that names those that are not."""
        left = {pod.name for pod in pods}
        victims = [pod for pod in pods if pod.name in left]

        async def evict_one(pod: Victim) -> None:
            await self._evict(pod)
            left.discard(pod.name)

        try:
            async with asyncio.timeout(limit.total_seconds()), asyncio.TaskGroup() as tasks:
                for pod in victims:
                    tasks.create_task(evict_one(pod), name=f"drain-{pod.name}")
        except TimeoutError as late:
            text = f"after {limit} not gone: {sorted(left)}\n{self.describe()}"
            raise TimeoutError(text) from late

    async def _evict(self, pod: Victim) -> None:
        while await self._stands(pod):
            answer = await evict(self.api, self.namespace, pod.name, uid=pod.uid)
            self.answers.append((pod.name, answer))
            await asyncio.sleep(self.retry.total_seconds())

    async def _stands(self, pod: Victim) -> bool:
        """Say whether the pod itself is still there; terminating, it is only waited for."""
        while True:
            try:
                found = await self.api.get(PODS, self.namespace, pod.name)
            except ApiError as error:
                if error.status == 404:
                    return False
                raise
            if found["metadata"]["uid"] != pod.uid:
                return False
            if "deletionTimestamp" not in found["metadata"]:
                return True
            await asyncio.sleep(self.retry.total_seconds())

    def refusals(self) -> list[tuple[str, Answer]]:
        """Return what was refused, for whatever reason."""
        return [(pod, answer) for pod, answer in self.answers if answer.status not in CREATED]

    def unexpected(self) -> list[str]:
        """Return answers after which a drain would give up.

        Not among them is what the API server says in the absence of an operator.
        """
        return [
            f"{pod}: {answer.status} {answer.message}"
            for pod, answer in self.refusals()
            if answer.status not in (TRY_AGAIN, *OVER) and UNANSWERED not in answer.message
        ]

    def describe(self) -> str:
        """Return how often each answer was given, the most frequent first."""
        counts = Counter((answer.status, answer.message) for _, answer in self.answers)
        return "\n".join(
            f"{many} x {status} {text}" for (status, text), many in counts.most_common(20)
        )


async def list_victims(api: Api, namespace: str, zones: Sequence[str]) -> list[Victim]:
    """Return the pods of these StatefulSets as they stand now, by ordinal and zone."""
    pods = await api.items(PODS, namespace)
    found = [pod for pod in pods if _zone(pod) in zones]
    found.sort(key=lambda pod: (_ordinal(pod), _zone(pod)))
    return [Victim(name=pod["metadata"]["name"], uid=pod["metadata"]["uid"]) for pod in found]


def _zone(pod: Json) -> str:
    return str(pod["metadata"]["name"]).rpartition("-")[0]


def _ordinal(pod: Json) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])
