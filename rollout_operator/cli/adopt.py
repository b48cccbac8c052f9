"""`rollout-operator adopt`: the patches that bring plain StatefulSets under the operator.

Reads files or the cluster, prints what `planning.adoption` proposes, and writes nothing.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

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
from rollout_operator.kube.api import STATEFULSETS, list_items
from rollout_operator.kube.connection import Access
from rollout_operator.model.adoption import AdoptableSet
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.names import ExitCode, InvalidInput
from rollout_operator.model.units import quote
from rollout_operator.operator.inspect import check_namespace
from rollout_operator.planning.adoption import (
    AdoptionPlan,
    plan_adoption,
    render_component,
    render_text,
)
from rollout_operator.planning.wording import format_json, join_names

_SCHEMA_VERSION: Final = 1
_FORMATS: Final = ("text", "yaml", "json")

_FILE: Final = Flag(
    name="f",
    kind=TEXT,
    default="",
    help="File or folder with StatefulSets: output of `kubectl get -o yaml`, or manifests; - reads"
    " standard input (default: read the cluster).",
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
    help="text; yaml: a kustomize component for Git; json; also -o.",
)
_FLAGS: Final[tuple[Flag[Any], ...]] = (_FILE, _LABELS, _GROUP, _OUTPUT, *ACCESS_FLAGS)
_HEAD: Final = """\
Usage: rollout-operator adopt [STATEFULSET ...] [flags]

Prints the patches that bring StatefulSets of several zones under the operator: the label of their
rollout group, updateStrategy OnDelete, and how many pods may be replaced at a time. Applying them
disrupts no pod; it also prints the patches that undo them. The right to list statefulsets is
enough. Nothing is written.

"""
_FOOT: Final = """
Exit codes:
  0 done, even if there is nothing to adopt, 1 the objects cannot be read, 2 the command line is
  wrong, 4 a group cannot be adopted until a person changes something.
"""


def run(arguments: Sequence[str]) -> int:
    """Print the proposal; return the exit code. Raises HelpRequested and OperatorError."""
    parsed = parse_mixed(_FLAGS, arguments)
    refuse_other_choices(parsed, _OUTPUT, _FORMATS)
    namespace, sets = _read(parsed)
    plan = plan_adoption(namespace, sets, _choose_names(parsed, sets), parsed.value(_GROUP))
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
    "json": _render_json,
}


def _choose_names(arguments: ParsedArguments, sets: Sequence[AdoptableSet]) -> frozenset[str]:
    given: tuple[str, ...] = arguments.value(_LABELS)
    labels = dict(map(_parse_label, given))
    labelled = {sts.name for sts in sets if labels and labels.items() <= sts.labels.items()}
    if labels and not labelled:
        raise InvalidInput(f"no StatefulSet has the labels {','.join(given)}")
    return frozenset(arguments.leftovers) | labelled


def _parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.replace("==", "=").partition("=")
    if not (key and equals) or key.endswith("!"):
        raise UsageError(f"-{_LABELS.name}: {quote(text)} is not key=value")
    return key, value


def _read(arguments: ParsedArguments) -> tuple[str, Sequence[AdoptableSet]]:
    """Return the StatefulSets of the namespace, or if none is named, of the only one that has any.

    Raises InvalidInput where several have, or none, and DecodeError.
    """
    found: Sequence[JsonBytes]
    if arguments.value(_FILE):
        for flag in (KUBECONFIG, CONTEXT):
            if arguments.has(flag):
                raise UsageError(f"-f reads no cluster: leave out -{flag.name}")
        namespace = arguments.value(NAMESPACE_FLAG)
        objects, _ = read_all([arguments.value(_FILE)], sys.stdin.buffer)
        found = [msgspec.json.encode(obj) for obj in objects if is_of(obj, STATEFULSETS)]
    else:
        be_quiet()
        access = choose_access(arguments)
        namespace, found = access.namespace, asyncio.run(_list_sets(access))
    sets = [decode_adoptable(raw) for raw in found]
    namespaces = sorted({sts.namespace for sts in sets if sts.namespace})
    if not namespace and len(namespaces) > 1:
        raise InvalidInput(f"the StatefulSets are in {join_names(namespaces)}: choose one with -n")
    where = namespace or "".join(namespaces)
    own = [sts for sts in sets if sts.namespace in ("", where)]
    if not own:
        raise InvalidInput(f"there is no StatefulSet{f' in namespace {where}' if where else ''}")
    names = [sts.name for sts in own]
    if twins := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"the input has StatefulSet {join_names(twins)} more than once")
    return where, own


async def _list_sets(access: Access) -> Sequence[JsonBytes]:
    async with open_client(access) as client:
        found = await list_items(client, STATEFULSETS, access.namespace)
        if not found:
            await check_namespace(client, access.namespace)
        return found
