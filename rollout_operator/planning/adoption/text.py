"""An adoption as text for people, as a kustomize component, and as objects to apply.

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

_COMPONENT_HEAD: Final = """\
# Run the commands of `rollout-operator adopt` on the cluster first, then add this to the
# `components` of the overlay that has these StatefulSets.
"""
_NOTHING: Final = """\
replaces no pod: each is at the revision that its StatefulSet wants, and the patches change
  labels, annotations and updateStrategy, which are no part of a revision"""
_UNPROVEN: Final = "the patches change no template; that no rollout is underway is not shown"
_TEMPLATES: Final = (
    "The pod templates stay as they are: a label there would make a new revision and replace every"
    " pod,\nand the operator finds pods by their owner."
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
    if open_groups:
        lines += ["", *_list_steps(open_groups, plan.namespace)]
    return "".join(f"{line}\n" for line in lines)


def _list_group(group: GroupAdoption) -> Iterator[str]:
    size = f"{count(len(group.sets), 'zone')}, {count(group.pods, 'pod')}"
    if group.is_held:
        yield f"group {group.name}  {size}: not yet"
    elif not (group.patched or group.budget):
        yield f"group {group.name}  {size}: under the operator already"
    else:
        yield f"group {group.name}  {size}"
        yield f"  {_NOTHING if group.checked else _UNPROVEN}"
    width = max(len(sts.name) for sts in group.sets)
    for sts in group.sets:
        yield f"  {sts.name:{width}}  {one_line(describe_zone(sts.zone, sts.zone_source))}"
    for finding in group.findings:
        yield from _list_finding(finding)


def _list_finding(finding: AdoptionFinding) -> Iterator[str]:
    yield f"  {finding.severity:5}  {finding.code}  {one_line(finding.object)}"
    yield f"         {one_line(finding.text)}"
    yield f"         -> {one_line(finding.remedy)}"


def _list_steps(groups: list[GroupAdoption], namespace: str) -> Iterator[str]:
    patched = [adoption for group in groups for adoption in group.patched]
    budgets = [group.budget for group in groups if group.budget is not None]
    yield _TEMPLATES
    if patched:
        yield ""
        yield "# 1. On the cluster. A tool that syncs it from Git is suspended first."
        yield from (
            _render_command(adoption.name, adoption.patch or {}, namespace) for adoption in patched
        )
    if budgets:
        yield ""
        yield "# 2. With the operator's kinds and its eviction webhook installed:"
        yield "kubectl apply -f - <<'END'"
        yield render_objects(budgets).rstrip()
        yield "END"
    yield ""
    yield "# 3. In Git, so that nothing reverts it: rollout-operator adopt -o yaml"
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
    return _COMPONENT_HEAD + _dump(component)


def _build_target(set_adoption: SetAdoption) -> Mapping[str, object]:
    patch = set_adoption.patch or {}
    head = patch.get("metadata", {})
    named = {"metadata": {"name": set_adoption.name, **(head if isinstance(head, dict) else {})}}
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", **patch, **named}
    # By a target, since a patch alone must name the namespace that the manifest names, or none.
    # Its name is a pattern.
    name = set_adoption.name.replace(".", r"\.")
    target = {"group": "apps", "version": "v1", "kind": "StatefulSet", "name": name}
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
