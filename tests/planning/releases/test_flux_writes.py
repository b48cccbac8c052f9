"""What a Rollout writes into objects of Flux, and as which field manager."""

from collections.abc import Mapping
from typing import Any

import pytest

from rollout_operator.model.release_plan import FluxObject, FluxReference, FluxWrite, Writers
from rollout_operator.planning.flux import RELEASED, name_manager, plan_flux_writes
from tests.planning.releases.builders import head


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
                for write in plan_flux_writes(rollout, "2", [item]).writes[:1]:
                    _carry_out(values, writers, write)
                assert values.keys() == {"a", "b", "c"}

    assert values == {"a": "2", "b": "2", "c": "0"}
    claims_after = dict(one.split("=") for one in after.split())
    # What has the right value already is not taken over: it would be a write for nothing.
    for name, holding in writers.items():
        owner = name_manager(claims_after.get(name, ""))
        assert holding <= {owner, RELEASED, "kustomize"}
