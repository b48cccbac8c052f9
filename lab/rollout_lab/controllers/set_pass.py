"""One pass over a StatefulSet: which pods are created and deleted now, and what its status says.

As in the real controller (OnDelete and RollingUpdate, ordered and parallel). When a pass is made,
and when its status is written, is decided in `statefulsets`.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from rollout_lab.controllers.members import Member, is_parallel, new_pod, ordinals_of, read_member
from rollout_lab.controllers.revisions import template_of
from rollout_lab.controllers.set_status import CountedStatus
from rollout_lab.controllers.set_writes import SetWrites, WriteFailed
from rollout_lab.model.fields import child, is_terminating, name_of, number, text
from rollout_operator.kube.api import JsonObject

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
