"""`adopt` reads dumps and manifests, prints, and ends with a code that says what is held."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.cli.main import main
from rollout_operator.model.names import ExitCode

Json = dict[str, Any]
STATUS: Json = {
    "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3,
    "currentRevision": "one", "updateRevision": "one",
}  # fmt: skip
APP = {"app": "ingester"}


def plain(name: str, namespace: str = "prod", **status: object) -> Json:
    zone = ZoneSpec(name=name, group=None, strategy="RollingUpdate", pod_labels=APP, labels=APP)
    tree: Json = statefulset(zone, namespace)
    return {**tree, "status": {**STATUS, **status}}


ZONES = [plain(f"ingester-zone-{zone}") for zone in "abc"]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return tmp_path / "dump.yaml"


def run_adopt(dump: Path, *words: str, objects: list[Json] | None = None) -> int:
    dump.write_text(yaml.safe_dump_all(ZONES if objects is None else objects))
    return main(["adopt", "-f", str(dump), *words])


def test_text_for_people(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_adopt(dump) == ExitCode.DONE
    out = capsys.readouterr().out
    assert out.startswith("# namespace prod: nothing is written by this command\n")
    assert out.count("\nkubectl patch statefulset ingester-zone-") == 3


def test_json_for_scripts(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_adopt(dump, "-o=json") == ExitCode.DONE
    printed = json.loads(capsys.readouterr().out)
    assert printed["schemaVersion"] == 1
    assert printed["groups"][0]["name"] == "ingester"
    assert printed["groups"][0]["sets"][0]["zoneSource"] == "NameSuffix"


def test_manifests_of_git_without_namespace_uid_and_status(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What kustomize prints: commands then name no namespace."""
    objects: list[Json] = []
    for one in ZONES:
        head = {key: it for key, it in one["metadata"].items() if key != "namespace"}
        objects.append({**one, "metadata": head, "status": {}})

    assert run_adopt(dump, objects=objects) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "that no rollout is underway is not shown" in out
    assert "--namespace" not in out


def test_a_group_that_is_held_ends_with_4(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [*ZONES[1:], plain("ingester-zone-a", updateRevision="two", updatedReplicas=0)]

    assert run_adopt(dump, objects=objects) == ExitCode.NEEDS_A_PERSON
    assert "0 of 3 pods updated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-l", "app=ingester,name=ingester-zone-a"], "single_zone"),
        (["-l", "app=ingester"], "group ingester"),
        (["ingester-zone-a", "-group=db", "ingester-zone-b"], "group db  2 zones, 6 pods"),
    ],
)
def test_what_chooses(
    dump: Path, words: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_adopt(dump, *words)
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["-o=xml"], 2, "-output must be one of text, yaml, json"),
        (["-l", "app"], 2, '-selector: "app" is not key=value'),
        (["-l", "app!=x"], 2, "is not key=value"),
        (["-l", "app=x"], 1, "no StatefulSet has the labels app=x"),
        (["-context=x"], 2, "-f reads no cluster: leave out -context"),
        (["nothing"], 1, "there is no StatefulSet nothing"),
        (["-n=other"], 1, "there is no StatefulSet in namespace other"),
    ],
)
def test_mistakes_are_one_line(
    dump: Path, words: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_adopt(dump, *words) == code
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1


def test_kinds_are_distinguished_as_by_simulate(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kinds of other groups have the same names, and without a group an object is of no kind."""
    unknown = {key: value for key, value in ZONES[0].items() if key != "apiVersion"}
    foreign = {**unknown, "apiVersion": "apps.kruise.io/v1beta1"}
    for objects, why in (
        ([unknown], "an object of kind StatefulSet without apiVersion"),
        ([foreign], "there is no StatefulSet"),
        ([unknown, *ZONES], "an object of kind StatefulSet without apiVersion"),
    ):
        assert run_adopt(dump, objects=objects) == ExitCode.FAILED
        assert why in capsys.readouterr().err
        assert main(["simulate", "-f", str(dump)]) != ExitCode.DONE
        assert why in capsys.readouterr().err
    assert run_adopt(dump, objects=[foreign, *ZONES]) == ExitCode.DONE


def test_a_folder_is_read_as_well(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump.write_text(yaml.safe_dump_all(ZONES))
    assert main(["adopt", "-f", str(dump.parent)]) == ExitCode.DONE
    dump.write_text("a: [")
    assert main(["adopt", "-f", str(dump.parent)]) == ExitCode.FAILED
    assert f"{dump}: the input is not YAML" in capsys.readouterr().err


def test_two_namespaces_take_a_choice(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [*ZONES, plain("ingester-zone-a", "test")]

    assert run_adopt(dump, objects=objects) == ExitCode.FAILED
    assert "prod and test: choose one with -n" in capsys.readouterr().err
    assert run_adopt(dump, "-n=prod", objects=objects) == ExitCode.DONE
    assert run_adopt(dump, objects=[*ZONES, ZONES[0]]) == ExitCode.FAILED
    assert "more than once" in capsys.readouterr().err
