"""`rollout-operator adopt`: the patches that bring plain StatefulSets under the operator.

Reads files or the cluster, prints what `planning.adoption` proposes, and writes nothing.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from rollout_operator.aio.clock import LoopClock
from rollout_operator.cli.access import (
    ACCESS_FLAGS,
    CONTEXT,
    KUBECONFIG,
    be_quiet,
    choose_access,
    open_client,
)
from rollout_operator.cli.access import NAMESPACE as NAMESPACE_FLAG
from rollout_operator.cli.dumps import is_of, read_all
from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import (
    LIST,
    TEXT,
    Flag,
    ParsedArguments,
    UsageError,
    parse_mixed,
    refuse_other_choices,
)
from rollout_operator.kube.api import (
    NATIVE_BUDGETS,
    PODS,
    STATEFULSETS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.kube.connection import Access
from rollout_operator.model.adoption import AdoptableNamespace, AdoptionChoice, AdoptionPlan
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.custom import decode_budget
from rollout_operator.model.decode.installation import decode_labelled_pod, decode_native_budget
from rollout_operator.model.names import ExitCode, InvalidInput
from rollout_operator.model.units import quote
from rollout_operator.operator.copies import ObjectsCopy, copy_namespace
from rollout_operator.planning.adoption import (
    list_budgets,
    plan_adoption,
    render_component,
    render_objects,
    render_text,
)
from rollout_operator.planning.wording import format_json, join_names

_SCHEMA_VERSION: Final = 1
_FORMATS: Final = ("text", "yaml", "budgets", "json")

_FILE: Final = Flag(
    name="f",
    kind=TEXT,
    default="",
    help="File or folder with StatefulSets, and their pods and budgets if any: output of"
    " `kubectl get -o yaml`, or manifests; - reads standard input (default: read the cluster).",
)
_LABELS: Final[Flag[tuple[str, ...]]] = Flag(
    name="selector",
    kind=LIST,
    default=(),
    alias="l",
    help="Limit to StatefulSets with these labels, also -l: key=value, separated by commas.",
)
_GROUP: Final = Flag(
    name="group",
    kind=TEXT,
    default="",
    help="Limit to this rollout group (default: all). With names or -l, the chosen StatefulSets are"
    " its zones, whatever their names.",
)
_OUTPUT: Final = Flag(
    name="output",
    kind=TEXT,
    default="text",
    alias="o",
    help="text; yaml: a kustomize component for Git; budgets: the file beside it; json; also -o.",
)
_FLAGS: Final[tuple[Flag[Any], ...]] = (_FILE, _LABELS, _GROUP, _OUTPUT, *ACCESS_FLAGS)
_HEAD: Final = """\
Usage: rollout-operator adopt [STATEFULSET ...] [flags]

Prints the patches that bring StatefulSets of several zones under the operator: the label of their
rollout group, updateStrategy OnDelete, how many pods may be replaced at a time, and a zone-aware
budget in place of native budgets. Applying them disrupts no pod; it also prints the patches that
undo them. Rights to list statefulsets and pods are enough. Nothing is written.

"""
_FOOT: Final = """
Exit codes:
  0 done, even if there is nothing to adopt, 1 the objects cannot be read, 2 the command line is
  wrong, 4 a group cannot be adopted until a person changes something.
"""

# Whether other kinds could be read does not matter here.
_READ_BESIDE: Final = (ZONE_BUDGETS.kind, NATIVE_BUDGETS.kind)
_Decoded = TypeVar("_Decoded")


def run(arguments: Sequence[str]) -> int:
    """Print the proposal; return the exit code. Raises HelpRequested and OperatorError."""
    parsed = parse_mixed(_FLAGS, arguments)
    refuse_other_choices(parsed, _OUTPUT, _FORMATS)
    seen = _read(parsed)
    plan = plan_adoption(seen, _choose(parsed, seen))
    sys.stdout.write(_RENDERERS[parsed.value(_OUTPUT)](plan))
    return ExitCode.NEEDS_A_PERSON if plan.needs_a_person else ExitCode.DONE


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}Flags:\n{''.join(render_entries(_FLAGS))}{_FOOT}"


def _render_json(plan: AdoptionPlan) -> str:
    """Return the plan for scripts; fields are added freely, and none is renamed."""
    content = {"schemaVersion": _SCHEMA_VERSION, **msgspec.to_builtins(plan)}
    return f"{format_json(content)}\n"


_RENDERERS: Final[Mapping[str, Callable[[AdoptionPlan], str]]] = {
    "text": render_text,
    "yaml": render_component,
    "budgets": lambda plan: render_objects(list_budgets(plan)),
    "json": _render_json,
}


def _choose(arguments: ParsedArguments, seen: AdoptableNamespace) -> AdoptionChoice:
    given: tuple[str, ...] = arguments.value(_LABELS)
    labels = dict(map(_parse_label, given))
    names = frozenset(arguments.leftovers)
    if labels:
        labelled = {sts.name for sts in seen.sets if labels.items() <= sts.labels.items()}
        if not labelled:
            raise InvalidInput(f"no StatefulSet has the labels {','.join(given)}")
        names |= labelled
    return AdoptionChoice(names=names, is_narrowed=bool(names), group=arguments.value(_GROUP))


def _parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.replace("==", "=").partition("=")
    if not (key and equals) or key.endswith("!"):
        raise UsageError(f"-{_LABELS.name}: {quote(text)} is not key=value")
    return key, value


def _read(arguments: ParsedArguments) -> AdoptableNamespace:
    if arguments.value(_FILE):
        for flag in (KUBECONFIG, CONTEXT):
            if arguments.has(flag):
                raise UsageError(f"-f reads no cluster: leave out -{flag.name}")
        objects, _ = read_all([arguments.value(_FILE)], sys.stdin.buffer)
        return _decode_objects(objects, arguments.value(NAMESPACE_FLAG))
    be_quiet()
    access = choose_access(arguments)
    copy = asyncio.run(_copy(access))
    unread = [each.text for each in copy.unread if each.kind in _READ_BESIDE]
    return _decode_objects(copy.objects, access.namespace, unread)


async def _copy(access: Access) -> ObjectsCopy:
    async with open_client(access) as client:
        return await copy_namespace(client, access.namespace, LoopClock())


def _decode_objects(
    objects: Sequence[JsonObject], namespace: str, unread: Sequence[str] = ()
) -> AdoptableNamespace:
    """Return the objects of a namespace, or if it is empty, of the only one that has StatefulSets.

    Raises InvalidInput where several have, or none, and DecodeError.
    """
    sets = _decode_kind(objects, STATEFULSETS, decode_adoptable)
    namespaces = sorted({sts.namespace for sts in sets if sts.namespace})
    if not namespace and len(namespaces) > 1:
        raise InvalidInput(f"the StatefulSets are in {join_names(namespaces)}: choose one with -n")
    where = namespace or "".join(namespaces)
    own = tuple(sts for sts in sets if sts.namespace in ("", where))
    if not own:
        raise InvalidInput(f"there is no StatefulSet{f' in namespace {where}' if where else ''}")
    names = [sts.name for sts in own]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise InvalidInput(f"the input has StatefulSet {join_names(twins)} more than once")
    here = [obj for obj in objects if _namespace_of(obj) in ("", where)]
    return AdoptableNamespace(
        namespace=where,
        sets=own,
        pods=_decode_kind(here, PODS, decode_labelled_pod),
        native_budgets=_decode_kind(here, NATIVE_BUDGETS, decode_native_budget),
        zone_budgets=_decode_kind(_fill_in(here), ZONE_BUDGETS, decode_budget),
        unread=tuple(unread),
    )


def _decode_kind(
    objects: Sequence[JsonObject], kind: Resource, decode: Callable[[bytes], _Decoded]
) -> tuple[_Decoded, ...]:
    return tuple(decode(msgspec.json.encode(obj)) for obj in objects if is_of(obj, kind))


def _namespace_of(obj: JsonObject) -> str:
    head = obj.get("metadata")
    return f"{head.get('namespace') or ''}" if isinstance(head, dict) else ""


def _fill_in(objects: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """Return objects with the fields that the API server sets and manifests lack."""
    filled_in = {"namespace": "default", "uid": "-", "resourceVersion": "-"}
    return [
        {**obj, "metadata": {**filled_in, **head}}
        for obj in objects
        if isinstance(head := obj.get("metadata"), dict)
    ]
