"""Objects of Flux: what announces releases, and what is written when a release is deployed.

Only what decides is kept of them. They belong to others: nothing but the tag of an OCIRepository
and single variables of a Kustomization is ever written.

A HealthCheck: what it looks at and found, and what objects say of themselves, by kstatus.

What one decision on a Rollout is made of, and what comes out of it.

The objects of releases that were read once, for commands that people type.

What `doctor` checks and `status` describes is all of this shape.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.budget import ObjectEvent
from rollout_operator.model.objects import AnyWatched, Unreadable, list_decoded
from rollout_operator.model.releases import (
    OURS,
    ConsumedIntent,
    Instant,
    LabelledNamespace,
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseHead,
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
    """The repository by name; empty where the policy does not say it."""
    digest: str | None = None


class FluxReference(msgspec.Struct, frozen=True, kw_only=True):
    """Another object, by kind, namespace and name."""

    kind: str
    namespace: str
    name: str


class ImagePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What announces releases. Whether it is ready does not matter (REL-32)."""

    head: ReleaseHead
    repository: FluxReference
    latest: AnnouncedTag | None = None
    """None while no tag is selected."""
    order: TagOrder | None = None


class ImageRepository(msgspec.Struct, frozen=True, kw_only=True):
    """Where the images of a policy are, and how the registry is called."""

    head: ReleaseHead
    image: Repository
    pull_secret: str | None = None
    certificates: str | None = None
    """The Secret with the certificates for the registry."""
    proxy: str | None = None
    """The Secret with the address of a proxy."""
    provider: str = ""
    """The cloud that has the credentials; empty and `generic` are none."""
    is_insecure: bool = False


class FluxProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a controller of Flux has come with an object."""

    is_suspended: bool = False
    observed_generation: int = 0
    is_ready: bool = False
    message: str = ""
    """Of the condition `Ready`."""
    failed_generation: int = 0
    """Which generation it failed with: that is not observed until it succeeds."""
    revision: str = ""
    """What an OCIRepository fetched or a Kustomization applied last; empty for nothing."""


class AnnotationProblem(msgspec.Struct, frozen=True, kw_only=True):
    """An annotation that cannot be obeyed."""

    rollout: str
    """The Rollout that it names, or seems to."""
    text: str


class FluxObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object of Flux that may carry a tag: an OCIRepository, or a Kustomization with variables.

    Its fields are `tag`, `digest` and `semver` of `spec.ref`, or variables.
    """

    kind: str
    head: ReleaseHead
    api_version: str
    source: FluxReference | None = None
    """What a Kustomization applies."""
    rollouts: Mapping[str, str] = {}
    """By field, the Rollout that writes it: `tag`, or any variable."""
    values: Mapping[str, str] = {}
    """By field, what stands there; of variables those alone that any Rollout writes or wrote."""
    writers: Writers = {}
    progress: FluxProgress = FluxProgress()
    problems: tuple[AnnotationProblem, ...] = ()

    @property
    def reference(self) -> FluxReference:
        """Return what another object refers to it by."""
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
    """How an object is written."""

    APPLY = "application/apply-patch+yaml"
    """Server-side apply: of the fields that the manager holds, what is left out is let go."""
    MERGE = "application/merge-patch+json"


class FluxWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One write to one object."""

    kind: str
    head: ReleaseHead
    manager: str
    method: PatchMethod
    body: Mapping[str, object]
    """Names the UID, so that it reaches no object of the same name, and creates none."""
    is_forced: bool
    """Whether fields are taken from other managers."""
    code: FluxWriteCode
    text: str
    """Names object, fields, values and the writers whose values go."""


class FluxWrites(msgspec.Struct, frozen=True, kw_only=True):
    """What one Rollout has to write, in this order; nothing where all is as it should be."""

    writes: tuple[FluxWrite, ...] = ()
    problems: tuple[str, ...] = ()
    """Annotations of the same objects that cannot be obeyed."""


@unique
class ObjectStatus(StrEnum):
    """Whether an object is what its spec wants."""

    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    TERMINATING = "Terminating"
    UNKNOWN = "Unknown"


class StatusVerdict(msgspec.Struct, frozen=True):
    """What it is at, and why."""

    status: ObjectStatus
    text: str = ""


@unique
class HealthStatus(StrEnum):
    """What a HealthCheck found. Empty before the first time. Never renamed."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    PENDING = "Pending"


@unique
class CheckClass(StrEnum):
    """Classes of HealthChecks whose status this operator writes. Never renamed."""

    KUSTOMIZATION = "kustomization"
    ROLLOUT_GROUP = "rollout-group"
    MULTI_AZ_ROLLOUT = "multi-az-rollout"


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What one evaluation of an object found."""

    status: HealthStatus
    text: str = ""
    failed_at: datetime | None = None
    """When the newest failure happened, as far as anything says so."""


class HealthCheckStatus(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"
):
    """`status` of a HealthCheck. Other controllers may write it as well."""

    status: str = ""
    last_error_time: Instant | None = None
    """When the newest failure that was seen happened."""
    last_change_time: Instant | None = None
    """When `status` changed last."""
    message: str | None = None


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A HealthCheck, as it was read."""

    head: ReleaseHead
    labels: Mapping[str, str] = {}
    check_class: str = ""
    """By what its status is written; empty for anything outside."""
    kustomization: str | None = None
    """What its annotation names: `name` or `namespace/name`; so the next two."""
    rollout_group: str | None = None
    policy: str | None = None
    interval: timedelta = timedelta(seconds=30)
    """From one evaluation to the next."""
    failure_grace: timedelta = timedelta(minutes=2)
    """How long Flux may fail to apply a Kustomization until that is a failure."""
    status: HealthCheckStatus = HealthCheckStatus()


class FluxTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One place of an object of Flux that an annotation gives to the Rollout."""

    kind: str
    name: str
    variable: str = ""
    """Of a Kustomization: what is substituted."""
    tag: str | None = None
    """What stands there now."""
    waiting_for: str = ""
    """What Flux has yet to do until the tag runs; empty where it is through."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """An object of Flux that had another tag than it should, and got the right tag."""

    kind: str
    name: str
    at: datetime


class PolicyReading(msgspec.Struct, frozen=True, kw_only=True):
    """What the image policy of a Rollout says."""

    latest: str | None = None
    """The tag that it selects. None while it selects none."""
    digest: str | None = None
    order: TagOrder | None = None
    problem: str = ""
    """Why it cannot be read."""
    reason: str = ""
    """The reason of `Ready` for that; empty for `RolloutFailed`."""


class ReleaseSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that one decision works on."""

    rollout: ReleaseRollout | RefusedRelease
    now: datetime
    policy: PolicyReading = PolicyReading()
    metadata: Mapping[str, ReleaseMetadata | None] = {}
    """By tag. None where the registry has no such tag; absent where it did not answer yet."""
    gates: tuple[ReleaseGate, ...] = ()
    """All that are known, of all Rollouts."""
    schedule_holds: tuple[str, ...] = ()
    """What schedules say against new versions, and no gate does."""
    checks: tuple[HealthCheck, ...] = ()
    """All that are known."""
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces."""
    targets: tuple[FluxTarget, ...] = ()
    write_problem: str = ""
    """Why a target could not be written, until it could."""
    refused: Mapping[str, str] = {}
    """By tag, why objects of Flux would not take it, as far as that was tried."""
    corrections: tuple[Correction, ...] = ()
    """Those that this process has made lately, for this Rollout."""
    verifies_wanted: bool = False
    """Whether a pin of a tag that the registry does not have is held."""
    compat: ReleaseCompat = OURS


class ApplyTag(msgspec.Struct, frozen=True, kw_only=True):
    """Write a tag into an object of Flux."""

    target: FluxTarget
    tag: str
    is_drift: bool = False
    """Whether the object had it before, or came after the deployment."""


class RemoveIntents(msgspec.Struct, frozen=True, kw_only=True):
    """Remove annotations that had their effect, as far as their values are still these."""

    intents: tuple[ConsumedIntent, ...]


class RequestReconcile(msgspec.Struct, frozen=True, kw_only=True):
    """Have Flux reconcile an object now."""

    target: FluxTarget


ReleaseAction = ApplyTag | RemoveIntents | RequestReconcile


class ReleaseEvent(ObjectEvent, frozen=True, kw_only=True):
    """Something that happened to a Rollout; each release has a routine one, or each correction."""


class ReleasePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done. The status is written first: it records what the actions carry out."""

    status: ReleaseStatus
    actions: tuple[ReleaseAction, ...] = ()
    events: tuple[ReleaseEvent, ...] = ()
    tag: str = ""
    """What is deployed anew; empty for nothing."""
    requeue_after: timedelta | None = None
    """When time alone changes something. None until anything else does."""
    problem: str = ""
    """Why the pass failed, and is to be tried again with growing pauses."""


class ReleaseObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one namespace or several, and of the cluster, each kind as it was listed."""

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
    """Those of any kind that are in none of the others."""
    absent: tuple[str, ...] = ()
    """Kinds that the cluster does not have."""

    def list_obeyed(self) -> tuple[ReleaseRollout, ...]:
        """Return the Rollouts that can be obeyed."""
        return tuple(each for each in self.rollouts if isinstance(each, ReleaseRollout))

    def list_unreadable(self, *kinds: str) -> tuple[Unreadable, ...]:
        """Return the objects of these kinds that cannot be read."""
        return tuple(each for each in self.unreadable if each.kind in kinds)


def gather_releases(objects: Iterable[AnyWatched], absent: Iterable[str] = ()) -> ReleaseObjects:
    """Return objects of any kinds by what they are."""
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
