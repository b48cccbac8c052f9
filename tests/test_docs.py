"""The documents say what the code does: flags, reasons, metrics, the Role."""

import re
from pathlib import Path

import pytest

from rollout_operator.config.checks import render_flag_table
from rollout_operator.model.budget import EventAction, EventKind
from rollout_operator.model.outcome import NEVER_HOLDING, REVIEW_CODES, Code
from rollout_operator.planning.events import NAMED_REASONS
from rollout_operator.planning.wording import camel_case
from rollout_operator.telemetry.metrics import EVENT_OUTCOMES, WAIT_CODES
from tests.own_metrics import make_all_metrics
from tests.pages import chapter_of
from tests.world.manifests import read_manifests

ROOT = Path(__file__).parent.parent
FLAGS = (ROOT / "docs/flags.md").read_text()
INSTALL = (ROOT / "docs/install.md").read_text()
METRICS = chapter_of("monitoring.md", "Metrics")
REASONS = chapter_of("monitoring.md", "Reasons")
EVENTS = chapter_of("monitoring.md", "Events")


def test_the_flag_table_is_that_of_the_code() -> None:
    begin, end = "checked by a test -->\n", "<!-- end of flags -->"
    table = FLAGS.partition(begin)[2].partition(end)[0]
    assert table == render_flag_table(), "see 'Add a flag' in CONTRIBUTING.md, step 4"


@pytest.mark.parametrize("code", list(Code))
def test_every_reason_is_explained_once(code: Code) -> None:
    """D-40: one vocabulary, documented."""
    rows = REASONS.count(f"| `{code}` |")
    assert rows == 1, (
        f"docs/monitoring.md has {rows} rows of it: see 'Add a reason' in CONTRIBUTING.md"
    )


def test_no_reason_is_explained_that_does_not_exist() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", REASONS, re.MULTILINE)) == set(Code)


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
    """D-75: a page, a terminal and the documents say the same."""
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|", REASONS, re.MULTILINE)
    documented = {code: (_plain(meaning), _plain(remedy)) for code, meaning, remedy in rows}

    assert documented == {code: (code.meaning, code.remedy) for code in Code}


def _plain(cell: str) -> str:
    return cell.strip().replace("`", "")


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            metric.name
            for metric in make_all_metrics().registry.collect()
            if "process" not in metric.name
        }
    ),
)
def test_every_metric_is_listed(name: str) -> None:
    assert re.search(rf"`{name}(_total)?`", METRICS), name


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
