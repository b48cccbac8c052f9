"""A simulation for machines."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.document import SimulationDocument, render_json
from rollout_lab.simulate.flags import read_settings
from rollout_lab.zones import ZoneSpec

from rollout_operator.model.description import Phase
from tests.code_rules import ROOT
from tests.lab.simulate.dumps import Json, grow, to_yaml
from tests.lab.simulate.schema import render_simulation_schema
from tests.virtual_time import EPOCH

SCHEMA = ROOT / "docs" / "simulate.schema.json"


def _printed(objects: Sequence[Json], *changes: str, flags: str = "") -> Any:
    words = [word for change in changes for word in ("-change", change)]
    settings = read_settings(["-f", "-", "-o", "json", *flags.split(), *words])
    return json.loads(render_json(simulate(settings, to_yaml(objects), EPOCH)))


def test_all_that_people_read_is_there() -> None:
    zones = [ZoneSpec(name="zone-a"), ZoneSpec(name="zone-b", replicas=1)]

    printed = _printed(
        grow(*zones), "new template zone-a", flags="-ready-after 30s -terminates-after 5s"
    )

    assert printed["namespace"] == "prod"
    assert printed["groups"] == {"ingester": ["zone-a", "zone-b"]}
    assert printed["begins"].endswith("Z")
    assert (printed["readyAfter"], printed["terminatesAfter"]) == ({"ingester": 30.0}, 5.0)
    assert printed["deletes"] == ["zone-a-0", "zone-a-1", "zone-a-2"]
    assert printed["mostDown"] == {"zone-a": 1, "zone-b": 0}
    assert (printed["downTogether"], printed["refusals"], printed["isCutOff"]) == ([], [], False)
    assert 3 * 35 < printed["seconds"] < 3 * 36
    assert printed["ends"] == {"ingester": ["4 pods of 2 zones: all ready at the update revision"]}


def test_steps_are_in_order_and_name_the_pod() -> None:
    steps = _printed(grow(), "new template zone-b")["steps"]

    times = [step["at"] for step in steps]
    assert times == sorted(times)
    assert steps[0]["text"] == "new template zone-b"
    assert {"who": "zone-b", "what": "zone-b-0", "text": "ready"}.items() <= next(
        step.items() for step in steps if step["text"] == "ready"
    )


def test_zones_that_are_down_together_and_refusals_are_listed_whole() -> None:
    zones = [
        ZoneSpec(name="zone-a", labels={"grafana.com/no-downscale": "true"}),
        ZoneSpec(name="zone-b"),
    ]

    printed = _printed(grow(*zones, failed=["zone-a-0", "zone-b-1"]), "scale zone-a to 1")

    (overlap,) = printed["downTogether"]
    assert overlap["zones"] == ["zone-a", "zone-b"]
    assert overlap["isOpen"]
    assert overlap["at"] == 0
    (refusal,) = printed["refusals"]
    assert "from 3 to 1 replicas is not allowed" in refusal


def test_the_schema_stands_in_the_documents_and_describes_what_is_printed() -> None:
    """Decoded by the type that the schema is made of, it is the same again."""
    assert SCHEMA.read_bytes() == render_simulation_schema(), (
        "write it anew: python -m tests.pictures simulation"
    )

    printed = _printed(grow(), "bad template", "delete pod zone-b-0 at 1m")

    document = msgspec.convert(printed, SimulationDocument)
    assert json.loads(msgspec.json.encode(document)) == printed
    assert (document.schema_version, document.exit_code) == (1, 5)
    assert document.changes == ["bad template", "delete pod zone-b-0 at 1m"]
    assert document.end.groups[0].phase is Phase.WAITING
    assert [(one.pod, one.by) for one in document.crossings] == [("zone-b-0", "you")]
