"""What changes between two reads, one line each."""

from datetime import timedelta

from msgspec.structs import replace

from rollout_operator.cli.status import list_changes, map_facts
from tests.cli.described import EXAMPLE, NOW, ZONES, describe, group, zone

FACTS = map_facts(EXAMPLE)


def test_everything_is_new_at_first() -> None:
    assert list(list_changes({}, FACTS)) == [
        "group ingester: waiting, 8/9 ready, 4/9 updated:"
        " zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff); zone-c waits [zone_not_ready]",
        "zone zone-a: 3/3 ready, 3/3 updated",
        "zone zone-b: 2/3 ready, 1/3 updated",
        "zone zone-c: 3/3 ready, 0/3 updated",
        "budget ingester: 1 pod not ready in zone-b (zone-b-1: CrashLoopBackOff);"
        " budget ingester: max unavailable 1 [disruption_budget_used]",
    ]


def test_time_alone_changes_nothing() -> None:
    later = replace(EXAMPLE, now=NOW + timedelta(hours=1))

    assert list(list_changes(FACTS, map_facts(later))) == []


def test_what_changed_and_what_is_gone() -> None:
    now = describe(group(ZONES[0], zone("zone-b", "###")))

    assert list(list_changes(FACTS, map_facts(now)))[1:] == [
        "zone zone-b: 3/3 ready, 3/3 updated",
        "mimir zone zone-c is gone",
    ]


def test_a_name_that_is_gone_steers_no_terminal() -> None:
    evil = map_facts(describe(group(name="\x1b[2J"), budgets=()))

    assert list(list_changes(evil, {})) == ["mimir group \\x1b[2J is gone"]
