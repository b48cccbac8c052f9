"""An adoption as text for people, as a kustomize component, and as objects to apply.

The text is a script: all but the commands is comments, so that a shell may read it whole.

The component is what belongs into Git: it changes the manifests themselves, so that they keep one
owner. The commands come before it: what the API server has filled in below `updateStrategy` only a
patch of the object takes away.
"""

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import yaml

from rollout_operator.model.adoption.proposal import (
    AdoptionFinding,
    AdoptionPlan,
    GroupAdoption,
    Patch,
    SetAdoption,
)
from rollout_operator.planning.adoption.zones import describe_zone, name_budget
from rollout_operator.planning.wording import count, one_line

BUDGETS_FILE: Final = "budgets.yaml"
_SETS: Final = {"group": "apps", "version": "v1", "kind": "StatefulSet"}

_COMPONENT_HEAD: Final = """\
# Run the commands of `rollout-operator adopt` on the cluster first, then add this to the
# `components` of the overlay that has these StatefulSets. It needs their names as they are there
# before the overlay's own namePrefix and nameSuffix. If the build fails with "nothing selected by
# StatefulSet", put it into a kustomization of its own, whose only resource is that overlay.
"""
_NOTHING: Final = (
    "replaces no pod: each is at the revision that its StatefulSet wants, and the patches change",
    "labels, annotations and updateStrategy, which are no part of a revision",
)
_UNPROVEN: Final = ("the patches change no template; that no rollout is underway is not shown",)
_TEMPLATES: Final = (
    "The pod templates stay as they are: a label there would make a new revision and replace every",
    "pod, and the operator finds pods by their owner.",
)


def render_text(plan: AdoptionPlan) -> str:
    """Return all that is proposed, with commands that can be pasted."""
    groups = [group for group in plan.groups if group.patched or group.is_held or group.budget]
    lines = [f"namespace {plan.namespace or 'of the files'}: nothing is written by this command"]
    lines += [f"not read: {one_line(text)}" for text in plan.unread]
    for group in plan.groups:
        lines += ["", *_list_group(group)]
    lines += [""] if plan.left_alone else []
    for finding in plan.left_alone:
        lines += _list_finding(finding)
    if not plan.groups:
        lines += ["", "there is nothing to adopt: no two StatefulSets are zones of one group"]
    open_groups = [group for group in groups if not group.is_held]
    lines += ["", *_TEMPLATES] if open_groups else []
    lines = [f"# {line}".rstrip() for line in lines]
    for number, step in enumerate(_list_steps(open_groups, plan.namespace), start=1):
        lines += ["", f"# {number}. {step[0]}", *step[1:]]
    lines += _list_way_back(open_groups, plan.namespace)
    return "".join(f"{line}\n" for line in lines)


def _list_group(group: GroupAdoption) -> Iterator[str]:
    size = f"{count(len(group.sets), 'zone')}, {count(group.pods, 'pod')}"
    if group.is_held:
        yield f"group {group.name}  {size}: not yet"
    elif not (group.patched or group.budget):
        yield f"group {group.name}  {size}: under the operator already"
    else:
        yield f"group {group.name}  {size}"
        yield from (f"  {line}" for line in (_NOTHING if group.checked else _UNPROVEN))
    width = max(len(sts.name) for sts in group.sets)
    for sts in group.sets:
        yield f"  {sts.name:{width}}  {one_line(describe_zone(sts.zone, sts.zone_source))}"
    for finding in group.findings:
        yield from _list_finding(finding)


def _list_finding(finding: AdoptionFinding) -> Iterator[str]:
    yield f"  {finding.severity:5}  {finding.code}  {one_line(finding.object)}"
    yield f"         {one_line(finding.text)}"
    yield f"         -> {one_line(finding.remedy)}"


def _list_steps(groups: list[GroupAdoption], namespace: str) -> Iterator[list[str]]:
    """Yield a heading and its commands for each step."""
    patched = [adoption for group in groups for adoption in group.patched]
    budgets = [group.budget for group in groups if group.budget is not None]
    if patched:
        yield [
            "On the cluster. A tool that syncs it from Git is suspended first.",
            *(
                _render_command(adoption.name, adoption.patch or {}, namespace)
                for adoption in patched
            ),
        ]
    if budgets:
        yield [
            "With the operator's kinds and its eviction webhook installed:",
            "kubectl apply -f - <<'END'",
            render_objects(budgets).rstrip(),
            "END",
        ]
    if groups:
        yield [
            "In Git, so that nothing reverts it: rollout-operator adopt -o yaml",
            "#    Where the overlay has namePrefix or nameSuffix, that file says where it belongs.",
        ]


def _list_way_back(groups: list[GroupAdoption], namespace: str) -> Iterator[str]:
    patched = [adoption for group in groups for adoption in group.patched]
    if patched:
        yield ""
        yield "# The way back. Not during a rollout: the zones would then go on all at once."
        yield from (
            f"# {_render_command(adoption.name, adoption.undo or {}, namespace)}"
            for adoption in patched
        )
        yield from (f"# {_render_removal(group, namespace)}" for group in groups if group.budget)


def _render_command(name: str, patch: Patch, namespace: str) -> str:
    words = ["kubectl", "patch", "statefulset", name, "--type=merge"]
    words += [f"--namespace={namespace}"] if namespace else []
    body = msgspec.json.encode(patch).decode()
    return f"{shlex.join(words)} -p {shlex.quote(body)}"


def _render_removal(group: GroupAdoption, namespace: str) -> str:
    words = ["kubectl", "delete", "zoneawarepoddisruptionbudget", name_budget(group.name)]
    return shlex.join(words + ([f"--namespace={namespace}"] if namespace else []))


def render_component(plan: AdoptionPlan) -> str:
    """Return a kustomize component with the patches; budgets are a file beside it."""
    patched = [adoption for group in plan.groups for adoption in group.patched]
    component: dict[str, object] = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
    }
    if list_budgets(plan):
        component["resources"] = [BUDGETS_FILE]
    component["patches"] = [_build_target(adoption) for adoption in patched]
    # A target that matches nothing passes in silence, a replacement without its source does not.
    # These write the kind over itself, so that the build fails where no or two sets have the name.
    if patched:
        component["replacements"] = [_build_assertion(adoption.name) for adoption in patched]
    return _COMPONENT_HEAD + _dump(component)


def _build_assertion(name: str) -> Mapping[str, object]:
    chosen = {**_SETS, "name": name}
    target = {"select": chosen, "fieldPaths": ["kind"]}
    return {"source": {**chosen, "fieldPath": "kind"}, "targets": [target]}


def _build_target(set_adoption: SetAdoption) -> Mapping[str, object]:
    patch = set_adoption.patch or {}
    head = patch.get("metadata", {})
    named = {"metadata": {"name": set_adoption.name, **(head if isinstance(head, dict) else {})}}
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", **patch, **named}
    # By a target, since a patch alone must name the namespace that the manifest names, or none.
    # Its name is a pattern.
    target = {**_SETS, "name": set_adoption.name.replace(".", r"\.")}
    return {"target": target, "patch": _dump(body)}


def list_budgets(plan: AdoptionPlan) -> list[Patch]:
    """Return the budgets that are proposed."""
    return [group.budget for group in plan.groups if group.budget is not None and not group.is_held]


def render_objects(objects: list[Patch]) -> str:
    """Return objects as YAML, a document each."""
    return "---\n".join(_dump(obj) for obj in objects)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def _dump(content: Mapping[str, object]) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False)
