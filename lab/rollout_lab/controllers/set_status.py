"""The status of a StatefulSet, counted from its pods as the real controller counts them. Pure."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from rollout_lab.controllers.members import Member
from rollout_lab.model.fields import child, number, text
from rollout_operator.kube.api import JsonObject


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
