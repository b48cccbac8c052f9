"""JSON of a RolloutGate: one that cannot be read does not pass."""

import json
from typing import Any

import pytest

from rollout_operator.model.decode.releases import decode_gate
from rollout_operator.model.names import DecodeError
from tests.model.decode.releases.trees import as_json

OWNER = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "controller": True}
REF = {"rolloutRef": {"name": "app"}}


@pytest.mark.parametrize(
    ("spec", "is_passing", "allowed"),
    [
        ({}, True, None),
        ({"passing": None, "allowedVersions": None}, True, None),
        ({"passing": True, "allowedVersions": []}, True, ()),
        ({"passing": False, "allowedVersions": ["1", "2"]}, False, ("1", "2")),
    ],
)
def test_what_a_gate_says(
    spec: dict[str, Any], is_passing: bool, allowed: tuple[str, ...] | None
) -> None:
    """REL-17."""
    gate = decode_gate(as_json({**REF, **spec}))

    assert (gate.rollout, gate.is_passing, gate.allowed_versions) == ("app", is_passing, allowed)
    assert gate.problem == ""


def test_a_gate_that_cannot_be_read_does_not_pass() -> None:
    """REL-17: object, field and value."""
    gate = decode_gate(as_json({**REF, "passing": "yes"}))

    assert not gate.is_passing
    assert (
        gate.problem == 'RolloutGate prod/app: spec.passing: expected bool | null, got str: "yes"'
    )


@pytest.mark.parametrize("spec", [None, {}, {"rolloutRef": "app"}])
def test_a_gate_of_no_rollout_is_no_gate(spec: Any) -> None:
    """REL-17."""
    with pytest.raises(DecodeError, match=r"^RolloutGate prod/app: .*"):
        decode_gate(as_json(spec))


def test_where_a_gate_comes_from() -> None:
    """REL-20: of its labels those of schedules alone."""
    raw = json.loads(
        as_json(
            REF,
            labels={"gate.kuberik.com/schedule-name": "nights", "app": "web"},
            annotations={"gate.kuberik.com/pretty-name": "Nights"},
        )
    )
    raw["metadata"]["ownerReferences"] = [OWNER]
    origin = decode_gate(json.dumps(raw).encode()).origin

    assert origin.labels == {"gate.kuberik.com/schedule-name": "nights"}
    assert (origin.pretty_name, origin.description) == ("Nights", None)
    assert origin.controller is not None
    assert origin.controller.uid == "u"
