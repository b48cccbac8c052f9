"""Commands that can be pasted, and a component that kustomize takes."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from rollout_operator.planning.adoption import render_component, render_text
from tests.kustomize import KustomizeError, render
from tests.planning.adoption.adoptable import plain, plan, three


def test_a_shell_that_reads_it_runs_the_patches_and_nothing_else() -> None:
    """Also of what is held, left alone and not read; steps are counted as they are there."""
    sets = [*three(), plain("held-a", generation=2), plain("held-b"), plain("alone")]
    text = render_text(plan(sets))
    script = "kubectl() { echo $1 $2 $3; }\n" + text
    ran = subprocess.run(
        ["sh", "-eu"], input=script, capture_output=True, text=True, check=True, timeout=10
    )

    patched = [f"patch statefulset ingester-zone-{zone}" for zone in "abc"]
    assert (ran.stdout.splitlines(), ran.stderr) == (patched, "")
    assert [line[:5] for line in text.splitlines() if line[2:3].isdigit()] == ["# 1. ", "# 2. "]


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"annotations": {"rollout-max-unavailable": "2"}},
        {"labels": {"grafana.com/rollout-group": "ingester"}},
        {"strategy": "OnDelete"},
        {"rolling_update": {"maxUnavailable": 2, "partition": 0}},
    ],
)
@pytest.mark.parametrize("patched", [1, 3])
def test_the_component_is_the_same_after_the_patches(
    patched: int, before: dict[str, object]
) -> None:
    """The commands come first: what Git needs is not lost by running them, or by a part of them."""
    sets = three(**before)
    found = plan(sets)
    after = [
        replace(
            sts,
            strategy="OnDelete",
            rolling_update=None,
            labels={**sts.labels, **_patched(one.patch, "labels")},
            annotations={**sts.annotations, **_patched(one.patch, "annotations")},
        )
        for sts, one in zip(sets, found.groups[0].sets, strict=True)
    ]

    component = render_component(found)
    assert len(yaml.safe_load(component)["patches"]) == 3
    assert render_component(plan([*after[:patched], *sets[patched:]])) == component


def _patched(patch: object, field: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(json.dumps(patch))["metadata"].get(field, {})
    return found


def test_what_a_file_says_of_zones_is_one_line() -> None:
    zone = "a\x1b[2J\nkubectl delete namespace prod"
    text = render_text(plan(three(node_selector={"topology.kubernetes.io/zone": zone})))

    assert "\x1b" not in text
    assert "\nkubectl delete" not in text


PREFIX, SUFFIX, MOVED = {"namePrefix": "prod-"}, {"nameSuffix": "-zone-a"}, {"namespace": "prod"}


@pytest.mark.controlplane  # for kubectl, which is built like it
@pytest.mark.parametrize(
    ("layers", "cluster", "fails"),
    [
        pytest.param([{}], "db-{}", "", id="as in the cluster"),
        pytest.param([MOVED], "db-{}", "", id="a namespace"),
        pytest.param([PREFIX], "prod-db-{}", "nothing selected", id="a prefix"),
        pytest.param([SUFFIX], "db-{}-zone-a", "nothing selected", id="a suffix"),
        pytest.param([PREFIX, {}], "prod-db-{}", "", id="a prefix below"),
        pytest.param([PREFIX, MOVED], "prod-db-{}", "", id="a prefix below a namespace"),
        pytest.param([PREFIX, SUFFIX], "prod-db-{}-zone-a", "nothing selected", id="both"),
        pytest.param([{}], "{}-db", "nothing selected", id="sets of other names"),
        pytest.param([{"resources": ["one.yaml"]}], "db-{}", "nothing selected", id="one is gone"),
        pytest.param([{"resources": ["all.yaml", "one.yaml"]}], "db-{}", "multiple matches",
                     id="a name in two namespaces"),
    ],
)  # fmt: skip
def test_a_component_that_does_not_match_fails_the_build(
    layers: list[dict[str, object]], cluster: str, fails: str, tmp_path: Path
) -> None:
    """kustomize passes in silence over a target that matches nothing: the next sync would take
    label and strategy away.
    """
    one, *rest = (_manifest(f"db-{zone}") for zone in "abc")
    adopted = [plain(cluster.format(zone), labels={}) for zone in "abc"]
    component = render_component(plan(adopted, *(sts.name for sts in adopted), group="db"))
    _write_folder(tmp_path / "adopted", yaml.safe_load(component))
    below: list[str] = ["all.yaml"]
    for number, layer in enumerate(layers):
        folder = tmp_path / f"{number}"
        last = {"components": ["../adopted"]} if layer is layers[-1] else {}
        _write_folder(folder, {"resources": below, **layer, **last})
        (folder / "all.yaml").write_text(yaml.safe_dump_all([one, *rest]))
        (folder / "one.yaml").write_text(yaml.safe_dump(_manifest("db-a", namespace="elsewhere")))
        below = [f"../{number}"]

    if fails:
        with pytest.raises(KustomizeError, match=fails):
            render(folder)
    else:
        found = render(folder)
        assert [sts["spec"]["updateStrategy"]["type"] for sts in found] == ["OnDelete"] * 3
        assert [sts["metadata"]["labels"]["rollout-group"] for sts in found] == ["db"] * 3


def _manifest(name: str, **head: str) -> dict[str, object]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, **head},
        "spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}},
    }


def _write_folder(folder: Path, content: dict[str, object]) -> None:
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))
