"""What `status` shows of a description: readable at 80 columns, and nothing worded here."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from rollout_operator.cli.render import StatusLayout, draw_status, render_age, render_line
from rollout_operator.model.description import Description, OperatorDescription, PartReport, Phase
from tests.cli.described import EXAMPLE, describe, group, zone

REMARK = "operator not reached: no endpoints"


def shown(description: Description, *remarks: str, width: int = 80, **more: bool) -> str:
    layout = replace(StatusLayout(width=width), **more)
    width = layout.width
    lines = draw_status(description, remarks, layout)
    texts = [render_line(line, 10_000, is_coloured=False).rstrip() for line in lines]
    assert max(map(len, texts)) <= width
    assert all(text.isprintable() for text in texts)
    return "\n".join(texts)


def test_d_76_a_group_at_80_columns() -> None:
    assert (
        shown(EXAMPLE, REMARK)
        == """\
namespace mimir  1 rollout group
operator not reached: no endpoints
this is computed from the objects

ingester  waiting  8/9 ready  4/9 updated  for 3m0s
  zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff); zone-c waits
  [zone_not_ready]
    look at the pod's log
  ZONE      READY  UPDATED  PODS
  zone-a      3/3      3/3  ###
> zone-b      2/3      1/3  #!o
  zone-c      3/3      0/3  ooo
  next  zone-b-2 is old
  waits zone-c waits for zone-b [another_zone_first]

BUDGET      MAX     DOWN  MAY GO
ingester      1      1/9       0
  1 pod not ready in zone-b (zone-b-1: CrashLoopBackOff); budget ingester: max
  unavailable 1 [disruption_budget_used]
    see why they are down

# updated, ready  o outdated, ready  ! not ready  > in progress"""
    )


def test_wide_shows_revisions_limits_and_pods_that_are_not_ready() -> None:
    text = shown(EXAMPLE, width=160, is_wide=True)

    assert "  zone-a      3/3      3/3  ###   zone-a-1 > zone-a-2, at most 1 down" in text
    assert "    zone-b-1 not ready for 1m30s: CrashLoopBackOff [zone-b-1]" in text


def test_what_stands_still_comes_first() -> None:
    done = group(zone("done-a", "###"), name="done", phase=Phase.ROLLED_OUT)
    text = shown(describe(done, *EXAMPLE.groups))

    assert text.index("ingester  waiting") < text.index("done  rolled out")


def test_of_a_process_that_does_not_act_it_is_reported_which_one_does() -> None:
    """In shadow mode, and while no replica leads, no other one need act."""
    reports = (
        PartReport(name="election", text="acts: another operator, if any"),
        PartReport(name="pods watch", text="proved live 0 s ago"),
    )
    operator = OperatorDescription(version="1.2", is_ready=True, is_acting=False, reports=reports)
    text = shown(describe(operator=operator))

    assert "operator 1.2: ready, does not act" in text
    assert "  election: acts: another operator, if any" in text
    assert "pods watch" not in text
    assert "computed" in text


def test_a_low_terminal_shows_what_stands_still_first_and_what_is_done_in_a_line() -> None:
    done = group(zone("done-a", "###"), name="done", phase=Phase.ROLLED_OUT)
    text = shown(describe(done, *EXAMPLE.groups), is_terse=True)

    lines = text.splitlines()
    assert text.index("ingester  waiting") < text.index("done  rolled out")
    assert "done-a" not in text
    assert "look at the pod's log" not in text
    assert len(lines) == 15


def test_the_operator_that_acts_is_named_and_nothing_is_computed() -> None:
    operator = OperatorDescription(version="1.2", is_ready=True, is_acting=True)
    text = shown(describe(operator=operator))

    assert "operator 1.2: ready, acts" in text
    assert "computed" not in text


@pytest.mark.parametrize("width", [80, 160])
def test_a_thousand_pods_and_long_names_keep_the_width(width: int) -> None:
    zones = [zone(f"{'ingester-' * 6}zone-{letter}", "o" * 1000) for letter in "abc"]
    text = shown(describe(group(*zones)), width=width)

    assert "o+9" in text
    assert "0/1000" in text


def test_what_a_tenant_wrote_steers_no_terminal() -> None:
    evil = "\x1b[2J\x07zone"
    text = shown(describe(group(zone(evil, "#"), headline=evil, name=evil), namespace=evil))

    assert "\\x1b[2J\\x07zone" in text


def test_nor_does_what_answers_in_place_of_the_operator() -> None:
    """No number of ours is written so: only the answer of another program has it."""
    [budget] = EXAMPLE.budgets
    text = shown(describe(budgets=(msgspec.structs.replace(budget, maximum="\x1b[2J"),)))

    assert "\\x1b[2J" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (42, "42s"), (192, "3m12s"), (7500, "2h5m"), (356400, "4d3h")],
)
def test_spans_are_short(seconds: int, text: str) -> None:
    assert render_age(timedelta(seconds=seconds)) == text
