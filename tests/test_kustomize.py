"""The renderer of the tests keeps to what kustomize does, and refuses what it does not know."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.code_rules import ROOT
from tests.kustomize import KustomizeError, Object, render
from tests.rendered import LEAST, NETWORK_PARAMETERS, WEBHOOKS, install

pytestmark = pytest.mark.thorough

FOLDERS = [
    ROOT / "manifests" / "base",
    ROOT / "manifests" / "shadow",
    *sorted(path.parent for path in ROOT.glob("manifests/overlays/*/kustomization.yaml")),
]
# Where there is one of the two, it runs too.
BUILD = next(
    (
        words
        for words in (["kubectl", "kustomize"], ["kustomize", "build"])
        if shutil.which(words[0])
    ),
    None,
)

MAP: Object = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "x-y.z"}}
ACCOUNT: Object = {"kind": "ServiceAccount", "metadata": {"name": "s", "namespace": "prod"}}


def folder(tmp_path: Path, objects: list[Object], **fields: Any) -> Path:
    """Return a folder with a kustomization of these fields over these objects."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    fields = {"kind": "Kustomization", "resources": ["objects.yaml"], **fields}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(fields))
    return tmp_path


def replacement(path: str, **options: object) -> Object:
    """Return the step that writes the account's namespace to a field of the ConfigMap."""
    return {
        "source": {"kind": "ServiceAccount", "name": "s", "fieldPath": "metadata.namespace"},
        "targets": [{"select": {"name": "a"}, "fieldPaths": [path], "options": options}],
    }


@pytest.mark.skipif(BUILD is None, reason="needs kubectl or kustomize")
@pytest.mark.parametrize("at", FOLDERS, ids=lambda at: at.name)
def test_kustomize_itself_renders_the_same(at: Path) -> None:
    assert BUILD is not None
    shown = subprocess.run([*BUILD, str(at)], capture_output=True, text=True, check=True).stdout

    assert sorted(yaml.safe_load_all(shown), key=str_key) == sorted(render(at), key=str_key)


@pytest.mark.skipif(BUILD is None, reason="needs kubectl or kustomize")
def test_kustomize_itself_renders_all_components_the_same(tmp_path: Path) -> None:
    assert BUILD is not None
    components = sorted(path.parent.name for path in ROOT.glob("manifests/components/*/*.yaml"))
    # The one that makes names of webhooks is in need of them.
    ordered = dict.fromkeys([WEBHOOKS, LEAST, *components])
    ours = install(tmp_path, *ordered, more=[NETWORK_PARAMETERS])
    shown = subprocess.run([*BUILD, str(tmp_path)], capture_output=True, text=True, check=True)

    assert sorted(yaml.safe_load_all(shown.stdout), key=str_key) == sorted(ours, key=str_key)


def str_key(one: Object) -> str:
    return f"{one['kind']}/{one['metadata'].get('namespace')}/{one['metadata']['name']}"


@pytest.mark.parametrize(
    ("path", "options", "written"),
    [
        pytest.param("data.b", {}, "prod", id="the whole field"),
        pytest.param("data.b", {"delimiter": "-", "index": 1}, "x-prod", id="the second part"),
        pytest.param("data.b", {"delimiter": "."}, "prod.z", id="the first part"),
    ],
)
def test_a_replacement_writes_a_field_or_a_part_of_it(
    tmp_path: Path, path: str, options: Object, written: str
) -> None:
    at = folder(tmp_path, [MAP, ACCOUNT], replacements=[replacement(path, **options)])

    assert render(at)[0]["data"]["b"] == written


def test_a_replacement_creates_only_where_it_has_to(tmp_path: Path) -> None:
    created = folder(
        tmp_path / "1", [MAP, ACCOUNT], replacements=[replacement("data.c", create=True)]
    )
    refused = folder(tmp_path / "2", [MAP, ACCOUNT], replacements=[replacement("data.c")])

    assert render(created)[0]["data"]["c"] == "prod"
    with pytest.raises(KustomizeError, match=r"a: no field data\.c"):
        render(refused)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"namePrefix": "x-"}, id="a field"),
        pytest.param({"kind": "List"}, id="a kind"),
        pytest.param({"images": [{"name": "x", "digest": "y"}]}, id="an option of images"),
        pytest.param({"patches": [{"path": "x.yaml"}]}, id="a patch in a file"),
        pytest.param({"replacements": [{"path": "x.yaml"}]}, id="a replacement in a file"),
        pytest.param({"resources": ["objects.yaml", "objects.yaml"]}, id="an object twice"),
    ],
)
def test_what_is_not_known_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(KustomizeError):
        render(folder(tmp_path, [MAP, ACCOUNT], **fields))
