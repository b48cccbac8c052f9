"""What is proposed, what is held back until when, and that no pod is replaced by it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import InvalidInput
from rollout_operator.planning.adoption import AdoptionFinding, AdoptionPlan
from tests.goldens import Golden
from tests.planning.adoption.adoptable import APP, plain, plan, read_sets, three
from tests.stories import Story, read_stories

ON_DELETE = {"type": "OnDelete", "rollingUpdate": None}
_DIFFERS = re.compile("its (.*?) is .*, that of ")


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("plans.txt")))
def test_plans(story: Story, golden: Golden) -> None:
    """Groups with their zones, what holds them back, and what is left alone."""
    before, _, after = story.commands[0].partition(" > ")
    names = after.split()
    group = names.pop(1) if names[:1] == ["-group"] else ""
    names = names[1:] if group else names
    try:
        found = plan(read_sets(before), *names, group=group)
    except InvalidInput as error:
        story.check(f"refused: {error}", golden)
    else:
        assert found.needs_a_person == ("error " in "; ".join(_show(found)))
        story.check("; ".join(_show(found)), golden)


def _show(found: AdoptionPlan) -> Iterator[str]:
    for group in found.groups:
        ends = [one.name.removeprefix(f"{group.name}-") for one in group.sets]
        state = [] if group.patched else ["held" if group.is_held else "done"]
        state += [] if group.checked or not group.patched else ["unproven"]
        findings = dict.fromkeys(map(_tell, group.findings))
        yield ", ".join((f"{group.name}: {' '.join(ends)}", *state, *findings))
    for finding in found.left_alone:
        yield f"{finding.object.removeprefix('StatefulSet ')} alone, {_tell(finding)}"


def _tell(finding: AdoptionFinding) -> str:
    assert finding.remedy
    about = finding.text.partition(":")[0]
    if difference := _DIFFERS.search(finding.text):
        about = difference[1]
    elif about.startswith(("no other", "a rollout")):
        about = ""
    return f"{finding.severity} {finding.code}{f' ({about})' if about else ''}"


def test_a_partition_that_keeps_pods_back_must_be_set_to_0() -> None:
    """`kubectl rollout status` says that such a rollout is complete."""
    [group] = plan(read_sets("db-{a,b} status=underway partition=2")).groups

    assert "from 2 to 0" in group.findings[0].remedy


def test_three_plain_zones_become_a_group() -> None:
    [group] = plan(three()).groups

    assert (group.name, group.pods, group.checked, group.findings) == ("ingester", 9, True, ())
    assert [one.name for one in group.patched] == [f"ingester-zone-{zone}" for zone in "abc"]
    for one in group.patched:
        assert one.patch == {
            "metadata": {
                "labels": {"rollout-group": "ingester"},
                "annotations": {"rollout-max-unavailable": "1"},
            },
            "spec": {"updateStrategy": ON_DELETE},
        }


def test_the_way_back_restores_each_field() -> None:
    """What was there before comes back with its value, what was not goes."""
    sets = three(rolling_update={"partition": 0, "maxUnavailable": "25%"})
    one = plan(sets).groups[0].sets[0]

    assert one.undo == {
        "metadata": {
            "labels": {"rollout-group": None},
            "annotations": {"rollout-max-unavailable": None},
        },
        "spec": {
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"partition": 0, "maxUnavailable": "25%"},
            }
        },
    }


@pytest.mark.parametrize(
    ("before", "limit"),
    [(None, "1"), ({"maxUnavailable": 2}, "2"), ({"maxUnavailable": "25%"}, "25%"),
     ({"maxUnavailable": "0"}, "1")],
)  # fmt: skip
def test_as_many_pods_at_a_time_as_before(before: dict[str, object] | None, limit: str) -> None:
    [group] = plan(three(rolling_update=before)).groups

    assert group.sets[0].patch is not None
    head = group.sets[0].patch["metadata"]
    assert isinstance(head, dict)
    assert head["annotations"] == {"rollout-max-unavailable": limit}


def test_only_what_is_missing_is_patched() -> None:
    """A limit that a person has set stays, and so does a label in its long spelling."""
    first, *rest = three(annotations={"rollout-max-unavailable": "5"})
    labelled = replace(first, labels={**APP, "grafana.com/rollout-group": "ingester"})

    sets = plan([labelled, *rest]).groups[0].sets

    assert sets[0].patch == {"spec": {"updateStrategy": ON_DELETE}}
    assert sets[1].patch == {
        "metadata": {"labels": {"rollout-group": "ingester"}},
        "spec": {"updateStrategy": ON_DELETE},
    }


@pytest.mark.parametrize("name", ["db\ntouch x\n", "db\n", "--all", "$(id)", "Db", "d\x1b[2Jb", ""])
def test_a_name_that_no_object_has_is_refused(name: str) -> None:
    """A line break in a name ends the comment that says the way back, and begins a command."""
    with pytest.raises(InvalidInput, match="is no name of an object"):
        plan([plain(f"{name}-a"), plain(f"{name}-b")])


@pytest.mark.parametrize("group", ["g\nrm -r x", "g h", "-g", "g" * 64])
def test_a_group_that_no_label_can_name_is_refused(group: str) -> None:
    with pytest.raises(InvalidInput, match="is no value of a label"):
        plan(three(labels={"rollout-group": group}))
    with pytest.raises(InvalidInput, match="is no value of a label"):
        plan([plain("blue"), plain("red")], "blue", "red", group=group)
