"""`apply-crds`: which files it takes, and what becomes of the definitions (DEP-80)."""

import asyncio
from pathlib import Path

import pytest

from rollout_operator.cli.admin import read_definitions
from rollout_operator.cli.main import main
from rollout_operator.kube.api import DEFINITIONS, ZONE_BUDGETS, JsonObject
from rollout_operator.model.names import ConfigError
from tests.cli.kubeconfig import write_kubeconfig
from tests.code_rules import ROOT
from tests.kube.fake_api import FakeApi, refuse, reply

CRDS = ROOT / "manifests" / "crds"
KIND = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}"
NAMES = {
    "multiazrollouts.rollout.grafana.com",
    "replicatemplates.rollout-operator.grafana.com",
    "zoneawarepoddisruptionbudgets.rollout-operator.grafana.com",
}


def name_of(definition: JsonObject) -> str:
    metadata = definition["metadata"]
    assert isinstance(metadata, dict)
    return f"{metadata['name']}"


def test_the_shipped_definitions_are_read() -> None:
    assert {*map(name_of, read_definitions(CRDS))} == NAMES


@pytest.mark.parametrize("name", ["a.yml", "a.yaml"])
def test_files_end_as_kubectl_takes_them(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"{KIND}\nspec: {{group: {ZONE_BUDGETS.group}}}\n")
    (tmp_path / f"kustomization{Path(name).suffix}").write_text("resources: []\n")
    assert [*map(name_of, read_definitions(tmp_path))] == ["a"]


@pytest.mark.parametrize("content", [b"\xff\xfea", b"a: \x80", "é".encode("latin-1")])
def test_a_file_that_is_no_text_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.yaml: the input is not text in UTF-8"):
        read_definitions(tmp_path)


@pytest.mark.parametrize(
    ("name", "error"),
    [("nope", "nope: No such file or directory"), ("a.yaml", "a.yaml: Not a directory")],
)
def test_what_is_no_folder_is_told(name: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Pod")
    with pytest.raises(ConfigError, match=error):
        read_definitions(tmp_path / name)


async def test_definitions_are_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DEP-80: what is there is changed and what is missing is created, whoever made it."""
    bodies = read_definitions(CRDS)
    async with FakeApi() as api:
        for name in NAMES:
            api.on("PATCH", DEFINITIONS.path("", name), reply({}))
        assert await _run(api, tmp_path) == 0
        sent = api.requests
    assert [each.path for each in sent] == [DEFINITIONS.path("", name_of(one)) for one in bodies]
    assert [each.json for each in sent] == bodies
    assert all(each.query["force"] == "true" for each in sent)
    assert capsys.readouterr().out.splitlines() == [
        f"CustomResourceDefinition {name_of(one)}: applied" for one in bodies
    ]


async def test_a_refusal_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DEP-80: the Job fails, and with it the upgrade, before anything else has changed."""
    async with FakeApi() as api:
        for name in NAMES:
            message = f'customresourcedefinitions "{name}" is forbidden: User "u" cannot patch'
            api.on("PATCH", DEFINITIONS.path("", name), refuse(403, "Forbidden", message))
        assert await _run(api, tmp_path) == 1
    assert "customresourcedefinitions" in capsys.readouterr().err


async def _run(api: FakeApi, at: Path) -> int:
    """Return the exit code of the command, run beside the server as a process would be."""
    words = [
        "admin",
        "apply-crds",
        str(CRDS),
        f"-kubeconfig={write_kubeconfig(at / 'config', api.url)}",
    ]
    return await asyncio.to_thread(main, words)
