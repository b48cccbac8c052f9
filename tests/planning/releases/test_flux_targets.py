"""Where a tag belongs, what is waited for there, and which writes a plan makes due."""

import msgspec

from rollout_operator.model.release_plan import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    ApplyTag,
    FluxObject,
    FluxProgress,
    FluxReference,
    FluxTarget,
    FluxWriteCode,
    ReleasePlan,
)
from rollout_operator.model.releases import ReleaseStatus
from rollout_operator.planning.flux import list_targets, plan_due_writes
from tests.planning.releases.builders import entry, head, rollout

SOURCE = FluxObject(
    kind="OCIRepository",
    head=head("app"),
    api_version="source.toolkit.fluxcd.io/v1",
    rollouts={"tag": "app"},
    values={"tag": "1"},
    progress=FluxProgress(observed_generation=1, is_ready=True, revision="1@sha256:0"),
)
APPLIED = FluxObject(
    kind="Kustomization",
    head=head("web"),
    api_version="kustomize.toolkit.fluxcd.io/v1",
    source=FluxReference(kind="OCIRepository", namespace="prod", name="app"),
    progress=FluxProgress(observed_generation=1, is_ready=True, revision="0@sha256:0"),
)
PLACE = FluxTarget(kind=OCI_REPOSITORY, name="app", tag="1")


def test_annotated_objects_carry_the_tag() -> None:
    """Each variable is a place of its own; what is being deleted, or another Rollout's, is none."""
    variables = msgspec.structs.replace(
        APPLIED, rollouts={"b": "app", "a": "app", "c": "other"}, values={"a": "1"}
    )
    going = msgspec.structs.replace(
        SOURCE, head=msgspec.structs.replace(head("old"), is_terminating=True)
    )
    found = list_targets("app", None, [SOURCE, going, variables])
    assert [(one.kind, one.name, one.variable, one.tag) for one in found] == [
        ("OCIRepository", "app", "", "1"),
        ("Kustomization", "web", "a", "1"),
        ("Kustomization", "web", "b", None),
    ]


def test_what_applies_a_managed_artifact_is_waited_for() -> None:
    """RELB-16: also where it has no tag of its own."""
    assert list_targets("app", "1", [SOURCE, APPLIED]) == (
        PLACE,
        FluxTarget(
            kind=KUSTOMIZATION,
            name="web",
            tag="1",
            waiting_for="it has applied 0@sha256:0, not 1@sha256:0",
        ),
    )


def test_a_source_that_has_not_fetched_the_tag_is_waited_for() -> None:
    (found, *_) = list_targets("app", "2", [SOURCE])
    assert found.waiting_for == "it has fetched 1@sha256:0, not 2"


def _plan(*applied: FluxTarget, tag: str = "2") -> ReleasePlan:
    actions = tuple(ApplyTag(target=one, tag=tag) for one in applied)
    return ReleasePlan(status=ReleaseStatus(history=(entry(tag),)), actions=actions)


def test_only_tags_that_a_plan_applies_are_written() -> None:
    due = plan_due_writes(rollout(), _plan(PLACE), [SOURCE])
    assert [one.code for one in due.writes] == [FluxWriteCode.VALUE_MOVED]
    assert plan_due_writes(rollout(), _plan(), [SOURCE]).writes == ()


def test_what_would_go_before_the_tag_is_cleared_without_a_request() -> None:
    """RELB-14."""
    shadowed = msgspec.structs.replace(SOURCE, values={"tag": "2", "digest": "sha256:0"})
    due = plan_due_writes(rollout(), _plan(), [shadowed])
    assert [one.code for one in due.writes] == [FluxWriteCode.CHOICE_CLEARED]
    assert plan_due_writes(rollout(is_suspended=True), _plan(), [shadowed]).writes == ()


def test_before_the_first_deployment_nothing_is_written() -> None:
    plan = ReleasePlan(status=ReleaseStatus())
    assert plan_due_writes(rollout(), plan, [SOURCE]).writes == ()
