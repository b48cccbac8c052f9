"""What is proposed, what is held back until when, and that no pod is replaced by it."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Final

import msgspec
import pytest
import yaml

from rollout_operator.model.names import InvalidInput
from rollout_operator.planning.adoption import (
    AdoptionFinding,
    AdoptionPlan,
    choose_base,
    choose_zone,
    render_component,
    render_text,
)
from tests.planning.adoption.adoptable import plain, plan, read_sets, three
from tests.stories import by_verb, check_tables

_DIFFERS: Final = re.compile("its (.*?) is .*, that of ")
HEAD: Final = "# namespace prod: nothing is written by this command\n#\n"


def read_plan(text: str) -> AdoptionPlan:
    before, _, after = text.partition(" > ")
    names = after.split()
    group = names.pop(1) if names[:1] == ["-group"] else ""
    names = names[1:] if group else names
    return plan(read_sets(before), *names, group=group)


def show_plan(text: str) -> str:
    """Return groups with their zones, what holds them back, and what is left alone."""
    try:
        found = read_plan(text)
    except InvalidInput as error:
        return f"refused: {error}"
    assert found.needs_a_person == ("error " in "; ".join(_show(found)))
    return "; ".join(_show(found))


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


def show_zone(text: str) -> str:
    """Return in which zone a set is, what says so, and what its group is called."""
    [one] = read_sets(text)
    zone, source = choose_zone(one)
    return f"{zone or 'none'} by {source.value}, of {choose_base(one)}"


def show_patch(text: str) -> str:
    """Return what each set becomes, and the way back of the first."""
    sets = read_plan(text).groups[0].sets
    patches = dict.fromkeys(_encode(one.patch) for one in sets)
    return "\n".join([*patches, f"back {_encode(sets[0].undo)}"])


def _encode(patch: object) -> str:
    return msgspec.json.encode(patch).decode()


def show_text(text: str) -> str:
    """Return what is said of a plan; each patch, and the way back, is a command to be pasted."""
    found = read_plan(text)
    patched = found.patched
    said, _, steps = render_text(found).removeprefix(HEAD).partition("\n# 1. ")
    commands = [shlex.split(line) for line in steps.splitlines() if line.startswith("kubectl ")]
    assert [words[:6] for words in commands] == [
        ["kubectl", "patch", "statefulset", one.name, "--type=merge", "--namespace=prod"]
        for one in patched
    ]
    assert [json.loads(words[-1]) for words in commands] == [one.patch for one in patched]
    back = [shlex.split(line[2:]) for line in steps.splitlines() if line.startswith("# kubectl ")]
    assert [json.loads(words[-1]) for words in back] == [one.undo for one in patched]
    return "\n".join(line.removeprefix("#")[1:] for line in said.splitlines())


def show_component(text: str) -> str:
    """Return the targets of the component, which has the same patches."""
    found = read_plan(text)
    component = yaml.safe_load(render_component(found))
    assert component["kind"] == "Component"
    for one, target in zip(found.patched, component["patches"], strict=True):
        body = yaml.safe_load(target["patch"])
        assert (body["kind"], body["metadata"].pop("name")) == ("StatefulSet", one.name)
        assert {"metadata": body["metadata"], "spec": body["spec"]} == one.patch
    targets = [one["target"]["name"] for one in component["patches"]]
    names = [one["source"]["name"] for one in component["replacements"]]
    return f"patches {' '.join(targets)}; for {' '.join(names)}" if targets else "no patches"


show = by_verb(globals(), show_plan)

test_case = check_tables(__file__, patches=show, plans=show)


def test_a_partition_that_keeps_pods_back_must_be_set_to_0() -> None:
    """`kubectl rollout status` says that such a rollout is complete."""
    [group] = read_plan("db-{a,b} status=underway partition=2").groups

    assert "from 2 to 0" in group.findings[0].remedy


@pytest.mark.parametrize("name", ["db\ntouch x\n", "db\n", "--all", "$(id)", "Db", "d\x1b[2Jb", ""])
def test_a_name_that_no_object_has_is_refused(name: str) -> None:
    """A line break in a name ends the comment that says the way back, and begins a command."""
    with pytest.raises(InvalidInput, match="is no name of an object"):
        plan([plain(f"{name}-a"), plain(f"{name}-b")])


@pytest.mark.parametrize("group", ["g\nrm -r x", "g h", "g" * 64])
def test_a_group_that_no_label_can_name_is_refused(group: str) -> None:
    with pytest.raises(InvalidInput, match="is no value of a label"):
        plan(three(labels={"rollout-group": group}))
    with pytest.raises(InvalidInput, match="is no value of a label"):
        plan([plain("blue"), plain("red")], "blue", "red", group=group)
