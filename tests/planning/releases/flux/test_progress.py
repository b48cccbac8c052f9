"""What Flux has yet to fetch and to apply before a bake may start."""

from typing import Any, Final

import pytest

from rollout_operator.model.releases.flux import (
    FluxProgress,
    FluxReference,
    Kustomization,
    OciRepository,
)
from rollout_operator.planning.releases.flux.progress import list_flux_waits
from tests.planning.releases.builders import head

NEW: Final = "2@sha256:b"
OLD: Final = "1@sha256:a"


def progress(revision: str = NEW, **more: Any) -> FluxProgress:
    return FluxProgress(
        **{"observed_generation": 3, "is_ready": True, "revision": revision, **more}
    )


def oci(revision: str = NEW, rollout: str = "web", **more: Any) -> OciRepository:
    """Return an OCIRepository `app` that fetched a revision."""
    return OciRepository(
        head=head("app", generation=3),
        api_version="source.toolkit.fluxcd.io/v1",
        rollout=rollout,
        progress=progress(revision, **more),
    )


def applied(
    revision: str = NEW, source: str = "app", rollout: str = "", **more: Any
) -> Kustomization:
    """Return a Kustomization that applied a revision of a source."""
    return Kustomization(
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
def test_what_a_bake_waits_for(
    items: list[OciRepository | Kustomization], expected: list[str]
) -> None:
    waits = list_flux_waits(
        "web",
        "2",
        [one for one in items if isinstance(one, OciRepository)],
        [one for one in items if isinstance(one, Kustomization)],
    )

    assert [f"{one.kind} prod/{one.name}: {one.text}" for one in waits] == expected
    assert [one.is_suspended for one in waits] == ["suspended" in one for one in expected]
