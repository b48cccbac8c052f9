"""Objects of Flux, HealthChecks, and the input and outcome of a decision on a Rollout.

Only what decides is kept. Flux objects belong to others: only the tag of an OCIRepository and
single variables of a Kustomization are ever written.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model import names
from rollout_operator.model.budget import ObjectEvent
from rollout_operator.model.objects import AnyWatched, Unreadable, WatchedHead, list_decoded
from rollout_operator.releases.model.releases import (
    OURS,
    ConsumedIntent,
    Instant,
    LabelledNamespace,
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseMetadata,
    ReleaseRollout,
    ReleaseStatus,
    Repository,
    ScheduleObject,
    TagOrder,
)

IMAGE_POLICY: Final = "ImagePolicy"
IMAGE_REPOSITORY: Final = "ImageRepository"
OCI_REPOSITORY: Final = "OCIRepository"
KUSTOMIZATION: Final = "Kustomization"
OF_FLUX: Final = (IMAGE_POLICY, IMAGE_REPOSITORY, OCI_REPOSITORY, KUSTOMIZATION)
TAG: Final = "tag"
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    OCI_REPOSITORY: ("spec", "ref"),
    KUSTOMIZATION: ("spec", "postBuild", "substitute"),
}
"""By kind, where the fields stand that may carry a tag."""

Writers = Mapping[str, tuple[str, ...]]
"""By field, its field managers."""


class AnnouncedTag(msgspec.Struct, frozen=True, kw_only=True):
    """The tag that an image policy selects now."""

    tag: str
    image: str = ""
    """The repository; empty if the policy does not say."""
    digest: str | None = None


class FluxReference(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    namespace: str
    name: str


class ImagePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Announces releases, ready or not (REL-32)."""

    head: WatchedHead
    repository: FluxReference
    latest: AnnouncedTag | None = None
    order: TagOrder | None = None


class ImageRepository(msgspec.Struct, frozen=True, kw_only=True):
    """Where the images of a policy are, and how the registry is called."""

    head: WatchedHead
    image: Repository
    pull_secret: str | None = None
    certificates: str | None = None
    """Secret with certificates for the registry."""
    proxy: str | None = None
    """Secret with the address of a proxy."""
    provider: str = ""
    """The cloud that has the credentials; empty or `generic` for none."""
    is_insecure: bool = False


class FluxProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far Flux has come with an object."""

    is_suspended: bool = False
    observed_generation: int = 0
    is_ready: bool = False
    message: str = ""
    """Of the condition `Ready`."""
    failed_generation: int = 0
    """The generation that failed; it is not observed until it succeeds."""
    revision: str = ""
    """Fetched by an OCIRepository or applied by a Kustomization last."""


class AnnotationProblem(msgspec.Struct, frozen=True, kw_only=True):
    """An annotation that cannot be obeyed."""

    rollout: str
    """The Rollout that it seems to name."""
    text: str


class FluxObject(msgspec.Struct, frozen=True, kw_only=True):
    """An OCIRepository, or a Kustomization with variables, that may carry a tag.

    Its fields are `tag`, `digest` and `semver` of `spec.ref`, or variables.
    """

    kind: str
    head: WatchedHead
    api_version: str
    source: FluxReference | None = None
    """What a Kustomization applies."""
    rollouts: Mapping[str, str] = {}
    """By field, the Rollout that writes it."""
    values: Mapping[str, str] = {}
    """By field; only variables that a Rollout writes or wrote."""
    writers: Writers = {}
    progress: FluxProgress = FluxProgress()
    problems: tuple[AnnotationProblem, ...] = ()

    @property
    def reference(self) -> FluxReference:
        return FluxReference(kind=self.kind, namespace=self.head.namespace, name=self.head.name)


@unique
class FluxWriteCode(StrEnum):
    """Why an object of Flux is written."""

    VALUE_SET = "value_set"
    """There was no value."""
    VALUE_MOVED = "value_moved"
    """The Rollout wrote the value that was there, or a writer that left no name."""
    VALUE_TAKEN = "value_taken"
    """Another writer wrote the value that was there."""
    CHOICE_CLEARED = "choice_cleared"
    """The tag would not count beside it (RELB-14)."""
    VALUE_KEPT = "value_kept"
    """Before the Rollout lets go of a value that only it holds: the API server would remove it."""
    VALUE_RELEASED = "value_released"
    """No annotation gives it to the Rollout any more."""


@unique
class PatchMethod(StrEnum):
    APPLY = "application/apply-patch+yaml"
    """Server-side apply: of the fields that the manager holds, what is left out is let go."""
    MERGE = "application/merge-patch+json"


class FluxWrite(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    head: WatchedHead
    manager: str
    method: PatchMethod
    body: Mapping[str, object]
    """Has the UID, so that it creates nothing and reaches no other object of the name."""
    is_forced: bool
    """Whether fields are taken from other managers."""
    code: FluxWriteCode
    text: str
    """Names object, fields, values and the managers that lose them."""


class FluxWrites(msgspec.Struct, frozen=True, kw_only=True):
    """What one Rollout must write, in order."""

    writes: tuple[FluxWrite, ...] = ()
    problems: tuple[str, ...] = ()
    """Annotations of these objects that cannot be obeyed."""


@unique
class ObjectStatus(StrEnum):
    """By kstatus."""

    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    TERMINATING = "Terminating"
    UNKNOWN = "Unknown"


class StatusVerdict(msgspec.Struct, frozen=True):
    status: ObjectStatus
    text: str = ""


@unique
class HealthStatus(StrEnum):
    """Empty before the first evaluation. Never renamed."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    PENDING = "Pending"


@unique
class CheckClass(StrEnum):
    """Classes of HealthChecks that this operator evaluates. Never renamed."""

    KUSTOMIZATION = "kustomization"
    ROLLOUT_GROUP = "rollout-group"
    MULTI_AZ_ROLLOUT = "multi-az-rollout"


CHECKED: Final[Mapping[CheckClass, str]] = {
    CheckClass.KUSTOMIZATION: names.CHECKED_KUSTOMIZATION,
    CheckClass.ROLLOUT_GROUP: names.CHECKED_GROUP,
    CheckClass.MULTI_AZ_ROLLOUT: names.CHECKED_POLICY,
}
"""By class, the annotation that names the object."""


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True):
    status: HealthStatus
    text: str = ""
    failed_at: datetime | None = None
    """When the newest failure happened, if known."""


class HealthCheckStatus(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"
):
    """Other controllers may write it as well."""

    status: str = ""
    last_error_time: Instant | None = None
    """When the newest failure happened."""
    last_change_time: Instant | None = None
    """When `status` changed."""
    message: str | None = None


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    head: WatchedHead
    labels: Mapping[str, str] = {}
    check_class: str = ""
    """What writes its status; empty for anything outside."""
    named: Mapping[str, str] = {}
    """By class, the `name` or `namespace/name` of an object from its annotation."""
    interval: timedelta = timedelta(seconds=30)
    """Between evaluations."""
    failure_grace: timedelta = timedelta(minutes=2)
    """How long Flux may fail to apply a Kustomization."""
    status: HealthCheckStatus = HealthCheckStatus()


class FluxTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a Flux object that an annotation gives to the Rollout."""

    kind: str
    name: str
    variable: str = ""
    """Of a Kustomization."""
    tag: str | None = None
    """The current value, or the digest or range that goes before it."""
    waiting_for: str = ""
    """What Flux must still do before the tag runs."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """A Flux object that had another tag than it should, and was corrected."""

    kind: str
    name: str
    at: datetime


class PolicyReading(msgspec.Struct, frozen=True, kw_only=True):
    """What the image policy of a Rollout says."""

    latest: str | None = None
    digest: str | None = None
    order: TagOrder | None = None
    problem: str = ""
    """Why it cannot be read."""
    reason: str = ""
    """Of `Ready` for that; empty for `RolloutFailed`."""


class ReleaseSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The input of one decision."""

    rollout: ReleaseRollout | RefusedRelease
    now: datetime
    policy: PolicyReading = PolicyReading()
    metadata: Mapping[str, ReleaseMetadata | None] = {}
    """By tag. None if the registry has no such tag; absent if it has not answered yet."""
    gates: tuple[ReleaseGate, ...] = ()
    """Of all Rollouts."""
    schedule_holds: tuple[str, ...] = ()
    """What schedules hold back without a gate."""
    checks: tuple[HealthCheck, ...] = ()
    """All that are known."""
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces."""
    targets: tuple[FluxTarget, ...] = ()
    write_problem: str = ""
    """Why a target could not be written."""
    may_be_written: bool = False
    """Whether that write may still be carried out: its outcome is unknown."""
    refused: Mapping[str, str] = {}
    """By tag, why Flux objects would not take it."""
    corrections: tuple[Correction, ...] = ()
    """Recent ones of this process, for this Rollout."""
    verifies_wanted: bool = False
    """Whether a pinned tag must exist in the registry."""
    compat: ReleaseCompat = OURS


class ApplyTag(msgspec.Struct, frozen=True, kw_only=True):
    target: FluxTarget
    tag: str
    is_drift: bool = False
    """Whether the object had it before, or came after the deployment."""


class RemoveIntents(msgspec.Struct, frozen=True, kw_only=True):
    """Remove annotations that had their effect, if they still have these values."""

    intents: tuple[ConsumedIntent, ...]


class RequestReconcile(msgspec.Struct, frozen=True, kw_only=True):
    """Have Flux reconcile an object now."""

    target: FluxTarget


ReleaseAction = ApplyTag | RemoveIntents | RequestReconcile


class ReleaseEvent(ObjectEvent, frozen=True, kw_only=True):
    """A routine one comes with each release or correction."""


class ReleasePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The status is written first: it records what the actions carry out."""

    status: ReleaseStatus
    actions: tuple[ReleaseAction, ...] = ()
    events: tuple[ReleaseEvent, ...] = ()
    tag: str = ""
    """Newly deployed."""
    requeue_after: timedelta | None = None
    """When something changes by time alone."""
    problem: str = ""
    """Why the pass failed, to be retried with back-off."""


class ReleaseObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one or several namespaces and of the cluster, by kind."""

    rollouts: tuple[ReleaseRollout | RefusedRelease, ...] = ()
    gates: tuple[ReleaseGate, ...] = ()
    schedules: tuple[ScheduleObject, ...] = ()
    checks: tuple[HealthCheck, ...] = ()
    policies: tuple[ImagePolicy, ...] = ()
    repositories: tuple[ImageRepository, ...] = ()
    flux: tuple[FluxObject, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces."""
    unreadable: tuple[Unreadable, ...] = ()
    """Of any kind."""
    absent: tuple[str, ...] = ()
    """Kinds that the cluster does not have."""

    def list_obeyed(self) -> tuple[ReleaseRollout, ...]:
        return tuple(each for each in self.rollouts if isinstance(each, ReleaseRollout))

    def list_unreadable(self, *kinds: str) -> tuple[Unreadable, ...]:
        return tuple(each for each in self.unreadable if each.kind in kinds)


def gather_releases(objects: Iterable[AnyWatched], absent: Iterable[str] = ()) -> ReleaseObjects:
    """Sort objects by kind."""
    read = tuple(objects)
    namespaces = list_decoded(read, LabelledNamespace)
    return ReleaseObjects(
        rollouts=list_decoded(read, ReleaseRollout, RefusedRelease),
        gates=list_decoded(read, ReleaseGate),
        schedules=list_decoded(read, ScheduleObject),
        checks=list_decoded(read, HealthCheck),
        policies=list_decoded(read, ImagePolicy),
        repositories=list_decoded(read, ImageRepository),
        flux=list_decoded(read, FluxObject),
        namespaces={each.head.name: each.labels for each in namespaces},
        unreadable=tuple(each for each in read if isinstance(each, Unreadable)),
        absent=tuple(absent),
    )
