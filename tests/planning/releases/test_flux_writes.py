"""What a Rollout writes into objects of Flux, and as which field manager."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.model.release_plan import (
    AnnotationProblem,
    FluxObject,
    FluxReference,
    FluxWrite,
    FluxWrites,
    PatchMethod,
    Writers,
)
from rollout_operator.planning.flux import RELEASED, name_manager, plan_flux_writes
from tests.planning.releases.builders import head

OURS: Final = "rollout-controller/web"
THEIRS: Final = "rollout-controller/api"
PROBLEM: Final = AnnotationProblem(rollout="web", text="bad")


def oci(
    rollout: str | None = "web", writers: Writers | None = None, **reference: str
) -> FluxObject:
    """Return an OCIRepository with what stands in `spec.ref`."""
    return FluxObject(
        kind="OCIRepository",
        head=head("app"),
        api_version="source.toolkit.fluxcd.io/v1",
        rollouts={} if rollout is None else {"tag": rollout},
        values=reference,
        writers=writers or {},
    )


def variables(claims: str, writers: Writers | None = None, **values: str) -> FluxObject:
    """Return a Kustomization whose variables belong to Rollouts: `a=web b=api`."""
    return FluxObject(
        kind="Kustomization",
        head=head("app"),
        api_version="kustomize.toolkit.fluxcd.io/v1",
        source=FluxReference(kind="OCIRepository", namespace="prod", name="app"),
        rollouts=dict(one.split("=") for one in claims.split()),
        values=values,
        writers=writers or {},
    )


def plan(*objects: FluxObject, rollout: str = "web") -> FluxWrites:
    """Plan that all of a Rollout becomes the tag 2."""
    return plan_flux_writes(rollout, "2", objects)


def show(write: FluxWrite) -> str:
    """Return code, manager without its prefix, and what it writes."""
    spec: Any = write.body.get("spec", {})
    inner = spec.get("ref", spec.get("postBuild", {}).get("substitute", {}))
    values = " ".join(f"{key}={value}" for key, value in inner.items())
    return f"{write.code} {write.manager.removeprefix('rollout-controller')} {values}".rstrip()


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param(
            [variables("version=web", version="1", other="x")],
            ["value_moved /web version=2"],
            id="RT-29 one variable, and no other",
        ),
        pytest.param([oci(tag="1")], ["value_moved /web tag=2"], id="RT-30 a tag"),
        pytest.param([oci("api", tag="1")], [], id="RT-31 of another Rollout"),
        pytest.param([oci(None, tag="1"), variables("", a="1")], [], id="REL-60 of no Rollout"),
        pytest.param([oci(tag="2"), variables("a=web", a="2")], [], id="REL-60 nothing to do"),
        pytest.param([oci()], ["value_set /web tag=2"], id="REL-60 no reference so far"),
        pytest.param([variables("a=web")], ["value_set /web a=2"], id="REL-61 no variable so far"),
        pytest.param(
            [variables("a=web b=web", a="1", b="2")],
            ["value_moved /web a=2 b=2"],
            id="RELB-13 two variables in one write, also the one that is right",
        ),
        pytest.param(
            [variables("a=web b=api", {"b": (THEIRS,)}, a="1", b="1")],
            ["value_moved /web a=2"],
            id="RELB-13 two Rollouts on one object",
        ),
        pytest.param(
            [oci(tag="1", writers={"tag": ("rollout-controller",)})],
            ["value_moved /web tag=2"],
            id="REL-60 kuberik's controller wrote it",
        ),
        pytest.param(
            [oci(tag="1", writers={"tag": (OURS, "kubectl-edit")})],
            ["value_taken /web tag=2"],
            id="RELB-12 another writer",
        ),
        pytest.param(
            [oci(tag="2", digest="sha256:a", semver="1.x")],
            ["choice_cleared /web digest=None semver=None"],
            id="RELB-14 the tag would not count",
        ),
        pytest.param(
            [oci(tag="1", digest="sha256:a")],
            ["value_moved /web tag=2", "choice_cleared /web digest=None"],
            id="RELB-14 the old tag never counts in between",
        ),
        pytest.param([oci(None, digest="sha256:a")], [], id="RELB-14 a digest of no Rollout stays"),
        pytest.param(
            [variables("b=web", {"a": (OURS,), "b": (OURS,)}, a="1", b="2")],
            ["value_kept -released a=1", "value_released /web b=2"],
            id="RELB-13 an annotation that was removed lets go of its variable alone",
        ),
        pytest.param(
            [variables("b=web", {"a": (OURS,), "c": (RELEASED,)}, a="1", b="1", c="0")],
            ["value_kept -released a=1 c=0", "value_moved /web b=2"],
            id="RELB-13 what was let go of before stays as well",
        ),
        pytest.param(
            [oci(None, tag="1", writers={"tag": (OURS, "kubectl")})],
            ["value_released /web"],
            id="RELB-13 what another holds needs no manager of ours",
        ),
        pytest.param(
            [oci("api", tag="2", writers={"tag": (OURS, THEIRS)})],
            ["value_released /web"],
            id="RELB-13 it belongs to another Rollout now",
        ),
    ],
)
def test_what_is_written(objects: list[FluxObject], expected: list[str]) -> None:
    assert [show(write) for write in plan(*objects).writes] == expected


def test_the_whole_of_a_write() -> None:
    """REL-60, RELB-13: the UID keeps it from objects of the same name, and from creating one."""
    (write,) = plan(oci(tag="1", writers={"tag": ("kubectl-edit",)})).writes

    assert write.body == {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "OCIRepository",
        "metadata": {"name": "app", "namespace": "prod", "uid": "uid-app"},
        "spec": {"ref": {"tag": "2"}},
    }
    assert (write.method, write.is_forced) == (PatchMethod.APPLY, True)
    assert write.text == "OCIRepository prod/app: spec.ref: tag 1 -> 2; written by kubectl-edit"


@pytest.mark.parametrize(
    ("item", "text"),
    [
        pytest.param(
            oci(semver="1.x"),
            "OCIRepository prod/app: spec.ref: tag empty -> 2",
            id="REL-60 no tag",
        ),
        pytest.param(
            variables("a=web", {"a": (THEIRS,)}, a="1"),
            "Kustomization prod/app: spec.postBuild.substitute: a 1 -> 2; written by "
            "rollout-controller/api",
            id="RELB-13 another Rollout wrote it",
        ),
        pytest.param(
            variables("", {"a": (OURS,)}, a="1"),
            "Kustomization prod/app: spec.postBuild.substitute: a 1 stays: the Rollout lets go "
            "of it",
            id="RELB-13 kept",
        ),
    ],
)
def test_what_is_said(item: FluxObject, text: str) -> None:
    assert plan(item).writes[0].text == text


def test_a_clearing_says_what_would_have_counted() -> None:
    """RELB-14."""
    (write,) = plan(oci(tag="2", digest="sha256:a")).writes

    assert write.body == {"metadata": {"uid": "uid-app"}, "spec": {"ref": {"digest": None}}}
    assert (write.method, write.is_forced) == (PatchMethod.MERGE, False)
    assert write.text == (
        "OCIRepository prod/app: spec.ref: digest sha256:a cleared: it would go before the tag"
    )


def test_what_is_kept_is_not_forced() -> None:
    """RELB-13: where another client wrote another value meanwhile, that one counts."""
    kept, released = plan(variables("", {"a": (OURS,)}, a="1")).writes

    assert (kept.is_forced, released.is_forced) == (False, True)


def test_nothing_is_written_to_what_is_being_deleted() -> None:
    """REL-60."""
    item = oci(tag="1")
    gone = msgspec.structs.replace(item.head, is_terminating=True)

    assert plan(msgspec.structs.replace(item, head=gone)) == FluxWrites()


def test_only_annotations_of_a_rollout_wake_it() -> None:
    """REL-61."""
    item = msgspec.structs.replace(variables("a=web", a="2"), problems=(PROBLEM,))

    assert plan(item) == FluxWrites(problems=("bad",))
    assert plan(item, rollout="api") == FluxWrites()


def test_managers_of_rollouts_are_apart() -> None:
    """RELB-13: the API server takes 128 characters, and a Rollout may have 253."""
    long = ["a" * 250 + end for end in "xy"]
    names = [name_manager(one) for one in ("web", *long)]

    assert names[0] == "rollout-controller/web"
    assert [len(one) for one in names[1:]] == [128, 128]
    assert len({*names, RELEASED}) == 4


def _carry_out(values: dict[str, str], writers: dict[str, set[str]], write: FluxWrite) -> None:
    """Do what the API server does with a server-side apply to a map."""
    spec: Any = write.body.get("spec", {})
    wanted: Mapping[str, str] = spec.get("postBuild", {}).get("substitute", {})
    for name, value in wanted.items():
        if values.get(name) != value:
            assert write.is_forced or name not in writers
            writers[name] = set()
        values[name] = value
        writers.setdefault(name, set()).add(write.manager)
    for name in [one for one in writers if one not in wanted]:
        writers[name] -= {write.manager}
        if not writers[name]:
            del writers[name], values[name]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param("a=web b=web", id="RELB-13 it is at rest"),
        pytest.param("a=web", id="RELB-13 an annotation goes"),
        pytest.param("a=api b=web", id="RELB-13 a variable changes hands"),
        pytest.param("", id="RELB-13 all go"),
    ],
)
def test_no_value_ever_goes_and_plans_come_to_rest(after: str) -> None:
    """RELB-13 and RELB-15: also where each plan is cut off after its first write."""
    values, writers = {"a": "1", "b": "1", "c": "0"}, {name: {"kustomize"} for name in "abc"}
    for claims in ("a=web b=web", after):
        for _ in range(10):
            for rollout in ("web", "api"):
                managers = {name: tuple(sorted(found)) for name, found in writers.items()}
                item = variables(claims, managers, **values)
                for write in plan(item, rollout=rollout).writes[:1]:
                    _carry_out(values, writers, write)
                assert values.keys() == {"a", "b", "c"}

    assert values == {"a": "2", "b": "2", "c": "0"}
    claims_after = dict(one.split("=") for one in after.split())
    # What has the right value already is not taken over: it would be a write for nothing.
    for name, holding in writers.items():
        owner = name_manager(claims_after.get(name, ""))
        assert holding <= {owner, RELEASED, "kustomize"}
