"""One pass over a StatefulSet: which pods are created and deleted now, and what its status says.

As in the real controller (OnDelete and RollingUpdate, ordered and parallel). When a pass is made,
and when its status is written, is decided in `statefulsets`.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.sandbox.fields import child, is_terminating, name_of, number, text
from rollout_operator.sandbox.members import (
    identity_matches,
    is_available,
    is_parallel,
    is_running_and_ready,
    is_unavailable,
    new_pod,
    ordinals_of,
    parse_name,
    phase_of,
    revision_of,
)
from rollout_operator.sandbox.request import not_modelled
from rollout_operator.sandbox.revisions import template_of
from rollout_operator.sandbox.setstatus import SetStatus
from rollout_operator.sandbox.setwrites import SetWrites, WriteFailed

# So many calls at a time, as long as none fails: 1, 2, 4, ...
_LARGEST_BATCH: Final = 500


class _Stop(Exception):
    """Nothing more happens in this pass: something must be waited for."""


@dataclass(slots=True, kw_only=True)
class Pass:
    """One pass: what it works on, and what it has found. `status` holds after `run`."""

    sts: JsonObject
    pods: Sequence[JsonObject]
    current: JsonObject
    """The revision that the status names, or the update revision where it names none."""
    update: JsonObject
    status: SetStatus
    writes: SetWrites
    now: datetime
    chance: random.Random
    """Calls of one batch go out together: nobody knows which comes first."""

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

    def _sort(self) -> tuple[list[JsonObject], list[JsonObject]]:
        """Return the pods that are wanted, absent ones as they will be, and those that are not."""
        wanted = ordinals_of(self.sts)
        found: dict[int, JsonObject] = {}
        condemned: list[tuple[int, JsonObject]] = []
        for pod in self.pods:
            ordinal = parse_name(pod)[1]
            if ordinal in wanted:
                found[ordinal] = pod
            elif ordinal >= 0:
                condemned.append((ordinal, pod))
        replicas = [found.get(ordinal) or self._new_pod(ordinal) for ordinal in wanted]
        condemned.sort(key=lambda one: -one[0])
        return replicas, [pod for _, pod in condemned]

    def _new_pod(self, ordinal: int) -> JsonObject:
        below = ordinals_of(self.sts).start + self._count_current()
        revision = self.current if self._is_rolling and ordinal < below else self.update
        return new_pod(self.sts, template_of(revision), name_of(revision), ordinal)

    def _count_current(self) -> int:
        """Return how many pods, from the lowest on, are made of the current revision."""
        strategy = child(self.sts, "spec", "updateStrategy")
        if strategy.get("rollingUpdate") is None:
            # A strategy of which only the type is given: the API fills in no partition.
            return number(self.sts, "status", "currentReplicas")
        return self._partition

    @property
    def _is_rolling(self) -> bool:
        return text(self.sts, "spec", "updateStrategy", "type") == "RollingUpdate"

    @property
    def _partition(self) -> int:
        return number(self.sts, "spec", "updateStrategy", "rollingUpdate", "partition")

    @property
    def _min_ready(self) -> int:
        return number(self.sts, "spec", "minReadySeconds")

    def _count(self, pods: Sequence[JsonObject]) -> None:
        self.status.count(pods, self._min_ready, self.now)

    def _first_unavailable(
        self, replicas: Sequence[JsonObject], condemned: Sequence[JsonObject]
    ) -> str:
        """Return the name of the lowest unavailable pod, wanted ones first."""
        for pod in (*replicas, *reversed(condemned)):
            if is_unavailable(pod, self._min_ready, self.now):
                return name_of(pod)
        return ""

    def _run_all(self, pods: Sequence[JsonObject], step: Callable[[JsonObject], None]) -> None:
        """Take the step for each pod: in order until one must wait, or all in growing batches.

        Raises the first failure; a batch is finished before.
        """
        if not is_parallel(self.sts):
            for pod in pods:
                step(pod)
            return
        done, size = 0, 1
        while done < len(pods):
            batch = list(pods[done : done + size])
            self.chance.shuffle(batch)
            failures = [failure for pod in batch if (failure := self._try(step, pod))]
            if failures:
                raise failures[0]
            done, size = done + len(batch), min(2 * size, _LARGEST_BATCH)

    @staticmethod
    def _try(step: Callable[[JsonObject], None], pod: JsonObject) -> WriteFailed | None:
        try:
            step(pod)
        except WriteFailed as failure:
            return failure
        except _Stop:
            pass  # where pods come and go together, none waits for another
        return None

    def _tend(self, pod: JsonObject) -> None:
        """Bring a wanted pod nearer; _Stop where those above must wait for it."""
        if phase_of(pod) in ("Failed", "Succeeded"):
            if not is_terminating(pod):
                self.writes.delete_pod(pod)
            raise _Stop
        if phase_of(pod) == "":
            self.writes.create_pod(pod)
            raise _Stop
        is_up = is_running_and_ready(pod) and is_available(pod, self._min_ready, self.now)
        if not is_parallel(self.sts) and (is_terminating(pod) or not is_up):
            raise _Stop
        if not identity_matches(self.sts, pod):
            self.writes.give_identity(pod)

    def _condemn(self, pod: JsonObject, first_unavailable: str) -> None:
        """Delete a pod that is not wanted; in order, only while all others are up."""
        if is_terminating(pod):
            raise _Stop
        is_up = is_running_and_ready(pod) and is_available(pod, self._min_ready, self.now)
        if not is_parallel(self.sts) and not is_up and name_of(pod) != first_unavailable:
            raise _Stop
        self.writes.delete_pod(pod)
        raise _Stop

    def _roll(self, replicas: Sequence[JsonObject]) -> WriteFailed | None:
        """Under RollingUpdate, replace the highest outdated pod once all above it are up."""
        if not self._is_rolling:
            return None
        if "maxUnavailable" in child(self.sts, "spec", "updateStrategy", "rollingUpdate"):
            not_modelled(f"maxUnavailable of statefulset {name_of(self.sts)}")
        for pod in reversed(replicas[self._partition :]):
            outdated = revision_of(pod) != self.status.update_revision
            if outdated and not is_terminating(pod):
                try:
                    self.writes.delete_pod(pod)
                except WriteFailed as failed:
                    return failed
                self.status.current -= 1
                return None
            if is_unavailable(pod, self._min_ready, self.now):
                return None
        return None
