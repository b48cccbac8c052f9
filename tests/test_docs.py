"""The documents say what the code does: flags, reasons, metrics, paths, findings, the Role."""

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from rollout_operator.aio.clock import LoopClock
from rollout_operator.cli.doctor import OUTPUT, STRICT, render_usage
from rollout_operator.cli.main import COMMANDS
from rollout_operator.config.checks import render_flag_table
from rollout_operator.model import names
from rollout_operator.model.budget import EventAction, EventKind
from rollout_operator.model.outcome import NEVER_HOLDING, REVIEW_CODES, Code
from rollout_operator.operator import reviews
from rollout_operator.planning.doctor import CHECKS, EXPLANATIONS
from rollout_operator.planning.events import NAMED_REASONS
from rollout_operator.planning.wording import camel_case
from rollout_operator.telemetry.metrics import EVENT_OUTCOMES, WAIT_CODES, Metrics
from rollout_operator.telemetry.states import Health
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.middleware import ClusterRules
from tests.architecture import DOCUMENT, render_architecture, replace_drawing
from tests.code_rules import load_lab, load_package
from tests.own_metrics import make_all_metrics
from tests.pages import chapter_of
from tests.site.reference import PAGE, render_page
from tests.world.manifests import read_manifests

ROOT = Path(__file__).parent.parent
FLAGS = (ROOT / "docs/flags.md").read_text()
INSTALL = (ROOT / "docs/install.md").read_text()
LABELS = (ROOT / "docs/labels.md").read_text()
COMMANDS_PAGE = (ROOT / "docs/commands.md").read_text()
ENDPOINTS = chapter_of("monitoring.md", "Endpoints")
METRICS = chapter_of("monitoring.md", "Metrics")
REASONS = chapter_of("monitoring.md", "Reasons")
EVENTS = chapter_of("monitoring.md", "Events")


def test_the_flag_table_is_that_of_the_code() -> None:
    begin, end = "checked by a test -->\n", "<!-- end of flags -->"
    table = FLAGS.partition(begin)[2].partition(end)[0]
    assert table == render_flag_table(), "see 'Add a flag' in CONTRIBUTING.md, step 4"


def test_the_codes_that_never_hold_stand_apart() -> None:
    """D-40: a code below "Moving" or "Odd" holds no group, and each other code shows in the gauge.

    Missing pods are odd, and hold a group all the same.
    """
    chapters = REASONS.split("\n### ")
    apart = [chapter for chapter in chapters if chapter.startswith(("Moving", "Odd"))]
    codes = re.findall(r"^\| `(\w+)` \|", "\n".join(apart), re.MULTILINE)

    assert {*codes} - {Code.PODS_MISSING} == NEVER_HOLDING - REVIEW_CODES
    assert {*WAIT_CODES}.isdisjoint(NEVER_HOLDING)


def test_meanings_and_remedies_are_those_of_the_code() -> None:
    """D-40, D-75: a page, a terminal and the documents say the same, each code once."""
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|", REASONS, re.MULTILINE)
    documented = {code: (_plain(meaning), _plain(remedy)) for code, meaning, remedy in rows}

    assert len(rows) == len(documented)
    assert documented == {code: (code.meaning, code.remedy) for code in Code}


def _plain(cell: str) -> str:
    return cell.strip().replace("`", "")


def test_the_metrics_are_those_that_are_exposed() -> None:
    exposed = {one.name for one in make_all_metrics().registry.collect()}
    listed = {
        name.removesuffix("_total") for name in re.findall(r"`(rollout_operator_\w+)`", METRICS)
    }

    assert {name for name in exposed if name.startswith("rollout_operator_")} == listed


def test_the_events_are_those_of_the_code() -> None:
    """D-40: each action and each kind of object stands there; each reason is one that is given."""
    rows = [line.split(" | ") for line in EVENTS.splitlines() if line.startswith("| `")]
    assert {row[0].strip("| `") for row in rows} == set(EventAction)
    assert {row[1] for row in rows} == set(EventKind)
    reasons = [reason for row in rows for reason in re.findall(r"`(\w+)`", row[2])]
    assert len(reasons) == len(set(reasons))
    assert set(reasons) >= NAMED_REASONS
    assert set(reasons) <= NAMED_REASONS | {camel_case(code) for code in Code}
    assert all(f"`{outcome}`" in EVENTS for outcome in EVENT_OUTCOMES)


def test_the_role_is_explained_as_it_is_shipped() -> None:
    """SEED-064, SEC-17."""
    (role,) = [one for one in read_manifests() if one["kind"] == "Role"]
    for rule in role["rules"]:
        line = f"| {', '.join(rule['verbs'])} | {', '.join(rule['resources'])} |"
        assert line in INSTALL


def test_custom_resources_are_those_that_are_shipped() -> None:
    """Repair it by `python -m tests.site.reference`."""
    assert PAGE.read_text() == render_page()


def test_labels_and_annotations_are_those_of_the_code() -> None:
    values = (value for name, value in vars(names).items() if name.isupper())
    ours = re.compile(r"(grafana\.com/|rollout-)\S+")
    keys = {
        value
        for value in values
        if isinstance(value, str) and ours.fullmatch(value) and value != names.FIELD_MANAGER
    }

    assert {key for key in keys if f"`{key}`" not in LABELS} == set()
    assert {*re.findall(r"`(grafana\.com/[\w/-]+)`", LABELS)} - keys == set()


async def test_the_paths_are_those_that_are_served() -> None:
    rules = ClusterRules(namespace="prod")
    server = AdminServer(0, Metrics(CollectorRegistry()), Health(LoopClock()), rules)
    served = {
        route.resource.canonical.partition("/{")[0]
        for route in server._runner.app.router.routes()
        if route.resource is not None
    }

    assert collect_paths("8001") == served | {"/debug/pprof/…"}


def test_the_webhooks_are_those_that_are_served() -> None:
    hooks = {
        value
        for name, value in vars(reviews).items()
        if name.endswith("_PATH") and isinstance(value, str)
    }

    assert collect_paths("8443") == hooks
    assert collect_paths("8444") == {*reviews.LED_PATHS}


def collect_paths(port: str) -> set[str]:
    """Return the paths that the page names below the heading of a port."""
    (section,) = (part for part in ENDPOINTS.split("\n### ") if part.startswith(port))
    rows = re.findall(r"^\| (`/[^|]*) \|", section, re.MULTILINE)
    return {path for row in rows for path in re.findall(r"`([^`]+)`", row)}


def test_the_table_of_findings_is_that_of_the_code() -> None:
    begin, end = "compared by a test -->\n", "<!-- end of findings -->"
    rows = [f"| `{code}` | {' | '.join(told)} |\n" for code, told in EXPLANATIONS.items()]
    head = "| code | severity | what it means | what to do |\n| --- | --- | --- | --- |\n"
    assert COMMANDS_PAGE.partition(begin)[2].partition(end)[0] == head + "".join(rows)


@pytest.mark.parametrize(
    "path",
    ["README.md", "SECURITY.md", "CONTRIBUTING.md", "docs/**/*.md", "charts/**/NOTES.txt"],
)
def test_commands_that_are_named_have_a_row_in_the_help(path: str) -> None:
    """The old names of tasks of `admin` still work, but neither help nor completion shows them."""
    text = "\n".join(page.read_text() for page in sorted(ROOT.glob(path)))
    named = re.findall(r"(?:`|^\$ |^ {3,})rollout-operator ([a-z][\w-]*)", text, re.MULTILINE)
    assert {*named} - {command.name for command in COMMANDS} == set()


def test_the_number_of_checks_and_the_flags_are_reported() -> None:
    assert f"`{len(CHECKS)} checks passed`" in COMMANDS_PAGE
    for flag in (OUTPUT, STRICT):
        assert f"-{flag.name}" in render_usage()


def test_the_picture_is_that_of_the_imports() -> None:
    """Repair it by `python -m tests.architecture`."""
    document = DOCUMENT.read_text()
    drawing = render_architecture([*load_package(), *load_lab()])

    assert replace_drawing(document, drawing) == document
