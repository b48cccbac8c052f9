"""Installations with one thing wrong about releases of `kuberik.com`."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from rollout_operator.model.budget import StatusCondition
from rollout_operator.model.diagnosis import FindingCode, Installation
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import LabelSelector, Unreadable
from rollout_operator.model.release_plan import (
    IMAGE_REPOSITORY,
    KUSTOMIZATION,
    OCI_REPOSITORY,
    AnnouncedTag,
    FluxObject,
    FluxReference,
    HealthCheck,
    ImagePolicy,
    ReleaseObjects,
)
from rollout_operator.model.releases import (
    CLUSTER_SCHEDULE,
    SCHEDULE,
    CheckSelector,
    RefusedRelease,
    ReleaseGate,
    ReleaseHead,
    ReleaseRollout,
    ReleaseSchedule,
    ReleaseSpec,
    ScheduleObject,
    ScheduleStatus,
)
from rollout_operator.planning.schedules import INVALID
from tests.planning.diagnosis.installations import NAMESPACE, NOW, OPERATOR, WORDS, Case, good

WEB: Final = {"tier": "web"}
ON: Final = "-releases.enabled"
ALL: Final = LabelSelector()


def head(name: str, namespace: str = NAMESPACE) -> ReleaseHead:
    return ReleaseHead(name=name, namespace=namespace, uid=Uid(name), resource_version="1")


def spec(**changes: Any) -> ReleaseSpec:
    selected = CheckSelector(selector=LabelSelector(labels=WEB))
    return replace(ReleaseSpec(policy_name="app", checks=selected), **changes)


def rollout(name: str = "app", **changes: Any) -> ReleaseRollout:
    return ReleaseRollout(head=head(name), spec=spec(**changes), labels=WEB)


def policy(latest: AnnouncedTag | None) -> ImagePolicy:
    repository = FluxReference(kind=IMAGE_REPOSITORY, namespace=NAMESPACE, name="app")
    return ImagePolicy(head=head("app"), repository=repository, latest=latest)


def source(rollout: str = "app") -> FluxObject:
    return FluxObject(
        kind=OCI_REPOSITORY, head=head("app"), api_version="v1", rollouts={"tag": rollout}
    )


def kustomization(rollouts: Mapping[str, str]) -> FluxObject:
    applied = FluxReference(kind=OCI_REPOSITORY, namespace=NAMESPACE, name="app")
    return FluxObject(
        kind=KUSTOMIZATION,
        head=head("app"),
        api_version="v1",
        source=applied,
        rollouts=rollouts,
    )


def unreadable(kind: str) -> Unreadable:
    return Unreadable(
        kind=kind,
        namespace=NAMESPACE,
        name="app",
        uid=Uid("app"),
        resource_version="1",
        error="spec: no object",
    )


def schedule(
    kind: str = SCHEDULE, selector: LabelSelector = ALL, problem: str = ""
) -> ScheduleObject:
    own = NAMESPACE if kind == SCHEDULE else ""
    plan = None if problem else ReleaseSchedule(rules=())
    return ScheduleObject(
        kind=kind, head=head("nights", own), schedule=plan, rollouts=selector, problem=problem
    )


def refused_schedule() -> ScheduleObject:
    text = 'spec.timezone: no time zone is "Mars"'
    ready = StatusCondition(type="Ready", status="False", reason=INVALID, message=text)
    return replace(schedule(), status=ScheduleStatus(conditions=(ready,)))


RELEASES: Final = ReleaseObjects(
    rollouts=(rollout(),),
    gates=(ReleaseGate(head=head("freeze"), rollout="app"),),
    checks=(HealthCheck(head=head("web"), labels=WEB),),
    schedules=(schedule(), schedule(CLUSTER_SCHEDULE, LabelSelector(labels={"no": "one"}))),
    policies=(policy(AnnouncedTag(tag="1.0.0")),),
    flux=(source(),),
)


def making(*kuberik: str, **changes: Any) -> Installation:
    """Return an installation whose operator makes releases, with one thing changed of them."""
    operator = replace(OPERATOR, arguments=(*WORDS, ON))
    return good(operators=(operator,), releases=replace(RELEASES, **changes), kuberik=kuberik)


SOUND_RELEASES: Final[Mapping[str, Installation]] = {
    "releases": making(),
    "releases that kuberik's controller makes": good(
        releases=RELEASES, kuberik=("kuberik-system/rollout-controller",)
    ),
    "the same before this operator is installed": Installation(
        namespace=NAMESPACE,
        now=NOW,
        namespace_labels={},
        releases=RELEASES,
        kuberik=("kuberik-system/rollout-controller",),
    ),
    "kinds that no object needs": good(releases=ReleaseObjects(absent=("Rollout", "ImagePolicy"))),
    "a variable in place of an OCIRepository": making(flux=(kustomization({"version": "app"}),)),
    "Flux without OCIRepositories": making(
        absent=("OCIRepository",), flux=(kustomization({"version": "app"}),)
    ),
    "an image policy of another namespace": making(
        rollouts=(rollout(policy_namespace="other"),), policies=()
    ),
    "a pin before anything is announced": making(
        rollouts=(rollout(wanted_version="1.0.0"),), policies=(policy(None),)
    ),
    "health of other namespaces": making(
        rollouts=(
            rollout(
                checks=CheckSelector(selector=LabelSelector(labels=WEB), namespaces=LabelSelector())
            ),
        ),
        checks=(),
    ),
    "no health": making(rollouts=(rollout(checks=None),)),
}
SPOILT_RELEASES: Final = (
    Case(
        "releases without their kinds",
        making(rollouts=(), gates=(), flux=(), schedules=(), absent=("Rollout", "RolloutGate")),
        FindingCode.RELEASE_KIND_MISSING,
        "kuberik.com",
        "does not know Rollout and RolloutGate",
    ),
    Case(
        "releases that no operator makes",
        good(releases=RELEASES),
        FindingCode.RELEASES_NOT_MADE,
        "Deployment rollout-operator",
        "app is ignored",
    ),
    Case(
        "kuberik's controller beside it",
        making("kuberik-system/rollout-controller"),
        FindingCode.RELEASES_MADE_TWICE,
        "Deployment rollout-operator",
        "Deployment kuberik-system/rollout-controller runs kuberik's controller",
    ),
    Case(
        "no image policies",
        making(policies=(), absent=("ImagePolicy", "ImageRepository")),
        FindingCode.FLUX_KIND_MISSING,
        "Flux",
        "does not know ImagePolicy and ImageRepository",
    ),
    Case(
        "nothing to write to",
        making(flux=(), absent=("OCIRepository", "Kustomization")),
        FindingCode.FLUX_KIND_MISSING,
        "Flux",
        "does not know OCIRepository and Kustomization",
    ),
    Case(
        "a Rollout with a bad field",
        making(rollouts=(RefusedRelease(head=head("app"), problem="spec.x: 1", labels=WEB),)),
        FindingCode.RELEASE_REFUSED,
        "Rollout app",
        "spec.x: 1",
    ),
    Case(
        "a Rollout that cannot be read, though a gate and a schedule are for it",
        making(rollouts=(), unreadable=(unreadable("Rollout"),)),
        FindingCode.RELEASE_REFUSED,
        "Rollout app",
        "spec: no object",
    ),
    Case(
        "an image policy that cannot be read",
        making(policies=(), unreadable=(unreadable("ImagePolicy"),)),
        FindingCode.RELEASE_OBJECT_UNREADABLE,
        "ImagePolicy app",
        "spec: no object",
    ),
    Case(
        "an object of Flux that cannot be read",
        making(flux=(), unreadable=(unreadable("OCIRepository"),)),
        FindingCode.RELEASE_OBJECT_UNREADABLE,
        "OCIRepository app",
        "spec: no object",
    ),
    Case(
        "a HealthCheck that cannot be read",
        making(checks=(), unreadable=(unreadable("HealthCheck"),)),
        FindingCode.RELEASE_OBJECT_UNREADABLE,
        "HealthCheck app",
        "spec: no object",
    ),
    Case(
        "a Rollout without its image policy",
        making(policies=()),
        FindingCode.IMAGE_POLICY_MISSING,
        "Rollout app",
        "there is no ImagePolicy app",
    ),
    Case(
        "an image policy without an image",
        making(policies=(policy(None),)),
        FindingCode.IMAGE_POLICY_EMPTY,
        "Rollout app",
        "ImagePolicy app selects no tag",
    ),
    Case(
        "a Rollout that writes nothing",
        making(flux=(kustomization({}),)),
        FindingCode.RELEASE_WRITES_NOTHING,
        "Rollout app",
        "no OCIRepository and no Kustomization names it",
    ),
    Case(
        "a Rollout whose HealthChecks have other labels",
        making(checks=(HealthCheck(head=head("web")),)),
        FindingCode.RELEASE_UNCHECKED,
        "Rollout app",
        "selects none",
    ),
    Case(
        "a gate of nothing",
        making(gates=(ReleaseGate(head=head("freeze"), rollout="ap"),)),
        FindingCode.ROLLOUT_UNKNOWN,
        "RolloutGate freeze",
        'there is no Rollout "ap"',
    ),
    Case(
        "an annotation that names nothing",
        making(
            flux=(
                source(),
                kustomization({"a": "ap", "b": "ap"}),
            )
        ),
        FindingCode.ROLLOUT_UNKNOWN,
        "Kustomization app",
        'there is no Rollout "ap"',
    ),
    Case(
        "an invalid schedule",
        making(schedules=(schedule(problem="spec.timezone: Mars"),)),
        FindingCode.SCHEDULE_INVALID,
        "RolloutSchedule nights",
        "spec.timezone: Mars",
    ),
    Case(
        "a schedule whose time zone only the operator finds unknown",
        making(schedules=(refused_schedule(),)),
        FindingCode.SCHEDULE_INVALID,
        "RolloutSchedule nights",
        'no time zone is "Mars"',
    ),
    Case(
        "a schedule that selects nothing",
        making(schedules=(schedule(selector=LabelSelector(labels={"no": "one"})),)),
        FindingCode.SCHEDULE_SELECTS_NOTHING,
        "RolloutSchedule nights",
        "selects no Rollout",
    ),
)
