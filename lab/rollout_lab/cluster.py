"""What a cluster does by itself around the API server: StatefulSet controller, scheduler, kubelets.

All of them are told of each commit, and act later, by timers of the running loop; each step is one
synchronous function. The seed decides when each comes.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.controllers.statefulsets import StatefulSets
from rollout_lab.model.fields import name_of, namespace_of, text
from rollout_lab.model.history import Commit
from rollout_lab.nodes.behaviour import DEFAULT, Choose
from rollout_lab.nodes.kubelet import Kubelets
from rollout_lab.nodes.pods import Place, PodEndpoints
from rollout_lab.schemas.kinds import CONTROLLER_REVISIONS, NODES
from rollout_lab.virtual_loop.pace import StepTimes, Timers
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Resource

DEFAULT_PACE: Final = StepTimes()


class Cluster:
    """Controllers and kubelets of one world; needs a running loop from `start` on."""

    def __init__(
        self,
        api: SimulatedApi,
        *,
        rng: random.Random,
        elapsed: Callable[[], timedelta],
        choose: Choose = DEFAULT,
        pace: StepTimes = DEFAULT_PACE,
        completes_on_delete: bool = False,
    ) -> None:
        """Have StatefulSets under OnDelete keep their current revision, as before 1.37, or not."""
        self._api = api
        self._elapsed = elapsed
        self._timers = Timers()
        self.endpoints = PodEndpoints(
            api.history, elapsed=elapsed, now=api.now, timers=self._timers
        )
        # A random source each: what kubelets draw does not change what controllers draw.
        self._kubelets = Kubelets(
            api,
            choose,
            timers=self._timers,
            rng=random.Random(rng.getrandbits(64)),
            pace=pace,
            endpoints=self.endpoints,
        )
        self._sets = StatefulSets(
            api,
            timers=self._timers,
            rng=random.Random(rng.getrandbits(64)),
            pace=pace,
            completes_on_delete=completes_on_delete,
        )
        self._is_running = False

    def start(self) -> None:
        """Begin with what is there, and follow what is committed from now on."""
        self._is_running = True
        for resource in (STATEFULSETS, CONTROLLER_REVISIONS, PODS):
            for obj in self._api.list(resource, ""):
                self._sets.load(self._as_found(resource, obj))
        for pod in self._api.list(PODS, ""):
            self._kubelets.admit(pod)
        self._api.on_commit(self._see)

    def stop(self) -> None:
        """Do nothing any more. It cannot be started again."""
        self._is_running = False
        self._timers.stop()

    def fail_pod(self, name: str) -> None:
        """Crash a pod; it stays so until `mend_pod`. Raises LookupError where none lives."""
        self._kubelets.fail(name)

    def mend_pod(self, name: str) -> None:
        """Make a pod ready again. Raises LookupError where none of that name lives."""
        self._kubelets.mend(name)

    def place_by(self, place: Place) -> None:
        """Have new pods get the nodes that `place` says, whatever Node objects there are."""
        self._kubelets.place = place

    def retry_unscheduled(self) -> None:
        """Try again for the pods that wait for a node."""
        self._kubelets.see_node()

    def lag_controller(self, span: timedelta) -> None:
        """Let the StatefulSet controller see each change so much later; zero ends that."""
        self._sets.lag(span)

    def _as_found(self, resource: Resource, obj: JsonObject) -> Commit:
        return Commit(
            at=self._elapsed(),
            revision=int(text(obj, "metadata", "resourceVersion")),
            actor="",
            resource=resource,
            namespace=namespace_of(obj),
            name=name_of(obj),
            before=None,
            after=obj,
        )

    def _see(self, commit: Commit) -> None:
        if self._is_running:
            self._sets.see(commit)
            if commit.resource.plural == PODS.plural:
                self._kubelets.see(commit)
            elif commit.resource.plural == NODES.plural:
                self._kubelets.see_node()
