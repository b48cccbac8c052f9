"""README: no command that nothing tries, and the figures of the pages it leads to."""

import re
from typing import Final

import pytest

from tests.code_rules import ROOT
from tests.pages import chapter_of

README: Final = (ROOT / "README.md").read_text()
HELM: Final = (
    "helm install rollout-operator charts/rollout-operator --namespace rollouts --create-namespace"
)
SIMULATE: Final = "tests/system/test_commands.py"
# Each command outside of the sections that tests/system/test_pages.py runs, and what tries it.
TRIED: Final = {
    "make demo": "tests/lab/demo/test_command.py",
    HELM: "tests/system/test_chart.py",
    "kubectl apply -k manifests/overlays/install": "tests/system/test_installations.py",
    "kubectl apply -f install.yaml": "tests/system/test_installations.py",
    "rollout-operator doctor -n rollouts": "tests/system/test_doctor.py",
    "kubectl get statefulsets,pods,zpdb,pdb -o yaml > dump.yaml": SIMULATE,
    'rollout-operator simulate -f dump.yaml -change "new template"': SIMULATE,
}
COMMANDS: Final = re.findall(r"^\$ (.+)$", README, re.MULTILINE)


def list_commands(*sections: str) -> list[str]:
    """Return the commands of these sections."""
    parts = re.split(r"^## (.+)$", README, flags=re.MULTILINE)[1:]
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    return [line for one in sections for line in re.findall(r"^\$ (.+)$", texts[one], re.MULTILINE)]


def test_every_command_is_tried() -> None:
    elsewhere = set(list_commands("Roll out your own zones", "When a rollout stands still"))

    assert set(COMMANDS) == elsewhere | set(TRIED)


@pytest.mark.parametrize("file", sorted(set(TRIED.values())))
def test_what_tries_a_command_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


def test_both_tables_of_the_comparison_have_the_same_rows() -> None:
    """README has some rows of docs/moving.md, which has the sources."""
    page = chapter_of("moving.md", "How it compares")
    known = {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")}
    rows = README.partition("## How it compares")[2].partition("\n[docs/moving")[0]
    shown = [line.split("|")[1].strip() for line in rows.splitlines() if line.startswith("| ")]

    assert [row for row in shown[2:] if row not in known and not row.startswith("3 ")] == []


def test_the_figures_are_those_of_the_page_about_speed() -> None:
    speed = (ROOT / "docs" / "speed.md").read_text()

    assert all(figure in README and figure in speed for figure in ("6.3 s", "6.9 s", "48.8 s"))
