"""`docs/releases-migrate.md` says of fields, flags, components and conditions what is there."""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from rollout_operator.model.releases import KUBERIK
from rollout_operator.planning import candidates
from tests.code_rules import ROOT
from tests.world.kuberik import SCHEMAS

PAGE: Final = (ROOT / "docs/releases-migrate.md").read_text()
RUN: Final = (ROOT / "tests/system/test_releases_migration.py").read_text()
KINDS: Final = ROOT / "manifests/crds/releases"
KUBERIK_FLAGS: Final = {
    *("metrics-bind-address", "health-probe-bind-address", "leader-elect", "metrics-secure"),
    *("metrics-cert-path", "metrics-cert-name", "metrics-cert-key", "enable-http2"),
    *("webhook-cert-path", "webhook-cert-name", "webhook-cert-key"),
}
# Those of kuberik's controller, which goes on to write them.
OF_KUBERIK: Final = {"Ready", "ReleasesUpdated", "GatesPassing", "DeploymentBlocked"}


def list_rows(title: str) -> Iterator[list[str]]:
    """Yield the cells of the rows of a chapter, with its heads."""
    chapter = re.split(r"\n##+ ", PAGE.partition(f" {title}\n")[2])[0]
    for line in chapter.splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def list_fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of all fields of a schema."""
    for name, field in schema.get("properties", {}).items():
        own = f"{path}.{name}" if path else name
        yield own
        yield from list_fields(field, own)
    if "items" in schema:
        yield from list_fields(schema["items"], f"{path}[]")


def read_schema(kind: str) -> dict[str, Any]:
    """Return the schema that is shipped."""
    crd = yaml.safe_load((KINDS / f"{kind.lower()}s.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def test_what_the_definitions_add_is_all_that_they_add() -> None:
    """REL-15, REL-16, REL-18: and nothing of kuberik's is missing."""
    added = {
        (kind, field)
        for cells in list(list_rows("What the definitions add"))[1:]
        for kind in cells[0].split(", ")
        for field in re.findall(r"`([^`]+)`", cells[1])
    }
    meta = {"apiVersion", "kind", "metadata"}
    found = set()
    for kind, schema in SCHEMAS.items():
        ours, theirs = {*list_fields(read_schema(kind))} - meta, {*list_fields(schema)}
        assert theirs <= ours
        # What is new is named by its topmost field.
        more = {one for one in ours - theirs if not _has_parent(one, ours - theirs)}
        found |= {(kind, field) for field in more}
    assert added == found


def _has_parent(field: str, fields: set[str]) -> bool:
    return any(field.startswith((f"{one}.", f"{one}[]")) for one in fields)


def test_what_the_definitions_add_is_optional() -> None:
    """REL-04: an object of kuberik's is never refused for what it has not."""
    for kind, schema in SCHEMAS.items():
        ours = read_schema(kind)
        for part in ("spec", "status"):
            assert ours["properties"][part].get("required", []) == schema["properties"][part].get(
                "required", []
            )


def test_each_flag_of_kuberiks_controller_has_its_counterpart() -> None:
    """REL-115, REL-116, REL-117: and each that is named is one."""
    rows = [cells for cells in list_rows("What runs otherwise") if cells[0].startswith("`--")]
    theirs = {one for row in rows for one in re.findall(r"`--([a-z0-9-]+)`", row[0])}
    ours = {one for row in rows for one in re.findall(r"`(-[a-z][a-z.-]+)`", row[1])}

    assert {one for one in theirs if not one.startswith("zap-")} == KUBERIK_FLAGS
    known = set(re.findall(r"^\| `(-[^`]+)`", (ROOT / "docs/flags.md").read_text(), re.MULTILINE))
    assert ours
    assert ours <= known
    assert "rollout_operator_release_" in (ROOT / "docs/monitoring.md").read_text()


def list_differences() -> Iterator[tuple[str, bool, frozenset[str]]]:
    """Yield each difference, whether the switch turns it back, and the scenarios that show it."""
    for cells in list_rows("What behaves otherwise"):
        what, _, comment = cells[0].partition(" <!-- ")
        if what != "what":
            yield what, len(cells) == 3, frozenset(comment.removesuffix(" -->").split())


def test_each_difference_stands_in_one_row_with_its_scenarios() -> None:
    """REL-118: for a comparison with what kuberik's controller does in them."""
    rows = list(list_differences())
    names = [one for _, _, scenarios in rows for one in scenarios]
    assert len(names) == len({*names})
    assert all(re.fullmatch(r"[a-m]\d\d", one) for one in names)
    assert {is_common for _, is_common, _ in rows} == {True, False}
    assert all(len(cells) in (3, 4) for cells in list_rows("What behaves otherwise"))


def test_each_difference_that_the_switch_turns_back_has_its_row() -> None:
    """What the flag turns back, and nothing else."""
    rows = [cells for cells in list_rows("What behaves otherwise") if len(cells) == 3]
    assert len(rows) - 1 == len(msgspec.structs.fields(KUBERIK))


def test_each_component_and_value_of_the_chart_is_there() -> None:
    components = set(re.findall(r"manifests/components/([a-z-]+)", PAGE))
    assert components == {one.name for one in (ROOT / "manifests/components").glob("releases*")}
    rows = list(list_rows("5. Install the operator"))[1:]
    assert {*re.findall(r"component `([a-z-]+)`", str(rows))} == components
    values = yaml.safe_load((ROOT / "charts/rollout-operator/values.yaml").read_text())
    for cells in rows:
        (name,) = re.findall(r"`releases\.(\w+)", cells[0])
        assert name in values["releases"]


def test_each_condition_that_stays_is_named() -> None:
    """Those that kuberik's controller does not know, and does not write."""
    ours = {
        *(candidates.RECONCILING, candidates.STALLED, candidates.PATH_UNKNOWN),
        *(candidates.WANTED_FOUND, candidates.TARGET_CONFLICT),
    }
    (row,) = [
        cells for cells in list_rows("5. Start kuberik's controller") if "Stalled" in cells[0]
    ]
    assert {*re.findall(r"`(\w+)`", row[0])} == ours
    assert {*candidates._ORDER} - ours - OF_KUBERIK == {candidates.RECOVERING}


def test_the_steps_are_numbered_and_the_page_is_run() -> None:
    for way, last in (("## The move", 8), ("## The way back", 5)):
        chapter = PAGE.partition(f"\n{way}\n")[2].partition("\n## ")[0]
        assert [int(one) for one in re.findall(r"^### (\d)\. ", chapter, re.MULTILINE)] == [
            *range(1, last + 1)
        ]
    assert '"releases-migrate.md"' in RUN
