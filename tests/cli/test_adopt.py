"""`adopt` reads dumps and manifests, prints, and ends with a code that says what is held."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.cli.main import main
from rollout_operator.model.names import ExitCode
from tests.stories import check_tables

Json = dict[str, Any]
Captured = pytest.CaptureFixture[str]
STATUS: Json = {
    "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3,
    "currentRevision": "one", "updateRevision": "one",
}  # fmt: skip
APP = {"app": "ingester"}


def read_sets(text: str) -> list[Json]:
    """Return the sets of `ab c-underway`: zones a and b, and c with something else."""
    return [
        build(zone, how)
        for word in text.split()
        for zones, _, how in (word.partition("-"),)
        for zone in zones
    ]


def build(zone: str, how: str) -> Json:
    spec = ZoneSpec(
        name=f"ingester-zone-{zone}",
        group=None,
        strategy="RollingUpdate",
        pod_labels=APP,
        labels=APP,
    )
    tree: Json = {**statefulset(spec, "test" if how == "test" else "prod"), "status": STATUS}
    match how:
        case "underway":
            tree["status"] = {**STATUS, "updateRevision": "two", "updatedReplicas": 0}
        case "manifest":
            head = tree["metadata"]
            tree["metadata"] = {key: head[key] for key in head if key != "namespace"}
            tree["status"] = {}
        case "unknown":
            del tree["apiVersion"]
        case "foreign":
            tree["apiVersion"] = "apps.kruise.io/v1beta1"
    return tree


def show_adoption(case: str, tmp_path: Path, capsys: Captured) -> str:
    sets, _, words = case.partition(" >")
    dump = tmp_path / "dump.yaml"
    dump.write_text(yaml.safe_dump_all(read_sets(sets)))
    code = main(["adopt", "-f", str(dump), *shlex.split(words)])
    shown = capsys.readouterr()
    assert shown.err.count("\n") == bool(shown.err)
    said = shown.err.replace(f"{tmp_path}/", "").removeprefix("rollout-operator: ").rstrip()
    if "unknown" in sets or sets == "a-foreign":
        main(["simulate", "-f", str(dump)])
        assert shown.err.partition(": ")[2].strip() in capsys.readouterr().err
    return "; ".join([f"{code:d}", digest(shown.out) if shown.out else said])


test_case = check_tables(__file__, adopt=show_adoption)


def digest(out: str) -> str:
    if out.startswith("{"):
        plan = json.loads(out)
        sets = [one["zoneSource"] for group in plan["groups"] for one in group["sets"]]
        return f"version {plan['schemaVersion']}, {plan['groups'][0]['name']} by {sets[0]}"
    lines = out.splitlines()
    patches = [line for line in lines if line.startswith("kubectl patch statefulset")]
    said = [line for line in lines if "group " in line or "error " in line or "underway" in line]
    spaces = "with namespace" if any("--namespace" in line for line in patches) else "no namespace"
    kind = "component" if "kind: Component" in out else f"{len(patches)} patches, {spaces}"
    return " / ".join([lines[0], *said, kind])


def test_a_folder_is_read_as_well(tmp_path: Path, capsys: Captured) -> None:
    dump = tmp_path / "dump.yaml"
    dump.write_text(yaml.safe_dump_all(read_sets("abc")))
    assert main(["adopt", "-f", str(tmp_path)]) == ExitCode.DONE
    dump.write_text("a: [")
    assert main(["adopt", "-f", str(tmp_path)]) == ExitCode.FAILED
    assert f"{dump}: the input is not YAML" in capsys.readouterr().err
