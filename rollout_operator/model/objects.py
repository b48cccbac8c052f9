"""Slim views of API objects: the fields that decide, and no more.

Views are frozen. Two views that differ only in `resource_version` decide alike: see `decides`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG, GroupName, Revision, Uid


class StatefulSet(msgspec.Struct, frozen=True, kw_only=True):
    """One zone of a group, as the API server shows it."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    generation: int = 0
    is_terminating: bool = False
    labels: Mapping[str, str] = {}
    """Only the keys in `names.STATEFULSET_LABELS`."""
    annotations: Mapping[str, str] = {}
    """Only the keys in `names.STATEFULSET_ANNOTATIONS`."""
    selector: Mapping[str, str] = {}
    """`spec.selector.matchLabels`: immutable, carried by every pod of the set."""
    strategy: str = "RollingUpdate"
    replicas: int = 1
    """`spec.replicas`; the API's own default where it is absent."""
    first_ordinal: int = 0
    is_ordered: bool = True
    """Whether an absent pod is created only once all pods below it are ready, as by default."""
    min_ready_seconds: int = 0
    observed_generation: int = 0
    status_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    current_revision: Revision = Revision("")
    update_revision: Revision = Revision("")

    @property
    def group(self) -> GroupName | None:
        """Return the rollout group, None where the set belongs to none."""
        name = self.labels.get(GROUP_LABEL, self.labels.get(GROUP_LABEL_LONG))
        return None if name is None else GroupName(name)

    @property
    def ordinals(self) -> range:
        """Return the ordinals that `spec` asks for."""
        return range(self.first_ordinal, self.first_ordinal + self.replicas)


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as far as rollouts look at it."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    owner_uid: Uid | None = None
    """UID of the controlling owner reference, whatever its kind."""
    revision: Revision | None = None
    phase: str = ""
    is_terminating: bool = False
    is_ready: bool = False
    """Phase Running, not terminating, condition Ready, every container ready and running."""
    ready_since: datetime | None = None
    """Last transition of the Ready condition, where `is_ready`."""
    was_ready: bool = False
    """Whether it is not ready now and its own status shows that it has been before."""
    trouble: str = ""
    """Why the pod is not ready, in a few words, e.g. `CrashLoopBackOff`; empty where it is."""


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a list or watch that could not be decoded: known, but not what it says."""

    kind: str
    namespace: str
    name: str
    uid: Uid
    resource_version: str
    owner_uid: Uid | None = None
    labels: Mapping[str, str] = {}
    error: str
    """Names field and value."""

    @property
    def group(self) -> GroupName | None:
        """Return the rollout group that the labels name, None where they name none."""
        name = self.labels.get(GROUP_LABEL, self.labels.get(GROUP_LABEL_LONG))
        return None if name is None else GroupName(name)


Viewed = TypeVar("Viewed", StatefulSet | Unreadable, Pod | Unreadable)


def decides(old: Viewed, new: Viewed) -> bool:
    """Tell whether the step from old to new changes anything that a decision reads."""
    if type(old) is not type(new):
        return True
    return bool(replace(old, resource_version=new.resource_version) != new)
