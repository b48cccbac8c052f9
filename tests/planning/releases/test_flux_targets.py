"""Where a tag belongs, what is waited for there, and which writes a plan makes due."""

from typing import Any, Final

import msgspec
import pytest

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
from rollout_operator.planning.flux import list_targets, map_flux_waits, plan_due_writes
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

NEW: Final = "2@sha256:b"
OLD: Final = "1@sha256:a"


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


def progress(revision: str = NEW, **more: Any) -> FluxProgress:
    return FluxProgress(
        **{"observed_generation": 3, "is_ready": True, "revision": revision, **more}
    )


def oci(revision: str = NEW, rollout: str = "web", **more: Any) -> FluxObject:
    """Return an OCIRepository `app` that fetched a revision."""
    return FluxObject(
        kind="OCIRepository",
        head=head("app", generation=3),
        api_version="source.toolkit.fluxcd.io/v1",
        rollouts={"tag": rollout},
        progress=progress(revision, **more),
    )


def applied(revision: str = NEW, source: str = "app", rollout: str = "", **more: Any) -> FluxObject:
    """Return a Kustomization that applied a revision of a source."""
    return FluxObject(
        kind="Kustomization",
        head=head("app", generation=3),
        api_version="kustomize.toolkit.fluxcd.io/v1",
        source=FluxReference(kind="OCIRepository", namespace="prod", name=source),
        rollouts={"version": rollout} if rollout else {},
        progress=progress(revision, **more),
    )


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([], [], id="RELB-16 nothing is annotated"),
        pytest.param([oci(), applied()], [], id="RELB-16 it runs"),
        pytest.param([oci("2/abc")], [], id="RELB-16 as earlier versions of Flux have it"),
        pytest.param(
            [oci(OLD)],
            ["OCIRepository prod/app: it has fetched 1@sha256:a, not 2"],
            id="RELB-16 the artifact of before",
        ),
        pytest.param(
            [oci("20@sha256:c")],
            ["OCIRepository prod/app: it has fetched 20@sha256:c, not 2"],
            id="RELB-16 a tag that begins with the same",
        ),
        pytest.param(
            [oci("")], ["OCIRepository prod/app: it has fetched nothing, not 2"],
            id="RELB-16 no artifact",
        ),
        pytest.param(
            [oci(observed_generation=2)],
            ["OCIRepository prod/app: generation 3 is not observed yet, only 2"],
            id="RELB-16 the write is not observed",
        ),
        pytest.param(
            [oci(observed_generation=2, is_ready=False, message="no such tag")],
            ["OCIRepository prod/app: generation 3 is not observed yet, only 2"],
            id="RELB-16 another generation failed",
        ),
        pytest.param(
            [oci(observed_generation=2, is_ready=False, message="x", failed_generation=3)],
            ["OCIRepository prod/app: it is not ready: x"],
            id="RELB-16 this generation fails, and is not observed until it does not",
        ),
        pytest.param(
            [oci(is_ready=False, message="no such tag")],
            ["OCIRepository prod/app: it is not ready: no such tag"],
            id="RELB-16 not ready",
        ),
        pytest.param(
            [oci(OLD, is_suspended=True)],
            ["OCIRepository prod/app: it has fetched 1@sha256:a, not 2; it is suspended"],
            id="RELB-16 suspended, which is reported",
        ),
        pytest.param([oci(is_suspended=True)], [], id="RELB-16 suspended after it was through"),
        pytest.param([oci(OLD, "api"), applied(OLD)], [], id="RELB-16 of another Rollout"),
        pytest.param(
            [oci(), applied(OLD)],
            ["Kustomization prod/app: it has applied 1@sha256:a, not 2@sha256:b"],
            id="RELB-16 fetched and not applied",
        ),
        pytest.param(
            [oci(), applied("")],
            ["Kustomization prod/app: it has applied nothing, not 2@sha256:b"],
            id="RELB-16 never applied",
        ),
        pytest.param(
            [applied("main@sha1:c", "git", "web", is_ready=False)],
            ["Kustomization prod/app: it is not ready"],
            id="RELB-16 a variable, whatever the source",
        ),
        pytest.param(
            [applied("main@sha1:c", "git", "web")], [], id="RELB-16 a variable that is applied"
        ),
        pytest.param(
            [oci(), applied(OLD, "other"), applied(OLD, "other", "api")],
            [],
            id="RELB-16 Kustomizations of others",
        ),
    ],
)  # fmt: skip
def test_what_a_bake_waits_for(items: list[FluxObject], expected: list[str]) -> None:
    waits = map_flux_waits("web", "2", items)

    assert [f"{kind} prod/{name}: {text}" for (kind, name), text in waits.items()] == expected
