"""`rollout-operator admin`: what its owner does to an installation, by the rights of a kubeconfig.

`apply-crds` applies the operator's CustomResourceDefinitions, and no others. Helm installs such
kinds once and never again; its chart runs this before each upgrade.

`uninstall-webhooks` deletes the webhook configurations of one operator: the first step of a
removal, and the way out for a cluster where the operator is gone and its webhooks refuse every
downscale.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from rollout_operator.cli.access import ACCESS_FLAGS, NAMESPACE, choose_access, open_client
from rollout_operator.cli.dumps import BadDump, read_objects
from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import (
    BOOL,
    Flag,
    UsageError,
    parse_arguments,
    parse_mixed,
    refuse_leftovers,
)
from rollout_operator.kube.api import (
    DEFINITIONS,
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    Applier,
    JsonObject,
    Precondition,
    Reader,
    Resource,
    Writer,
    list_items,
)
from rollout_operator.kube.connection import Access
from rollout_operator.model.decode.installation import (
    decode_mutating_webhooks,
    decode_validating_webhooks,
)
from rollout_operator.model.names import (
    NAMESPACE_LABEL,
    ConfigError,
    Conflict,
    ExitCode,
    NotFound,
    OperatorError,
    UnknownOutcome,
)
from rollout_operator.model.objects import WebhookConfiguration
from rollout_operator.model.units import quote
from rollout_operator.telemetry import logs

_GROUPS: Final = (ZONE_BUDGETS.group, MULTI_AZ_ROLLOUTS.group)
# Beside the files in manifests/crds.
_NO_OBJECT: Final = "kustomization"
_SUFFIXES: Final = (".yaml", ".yml")
_HINT: Final = "pass a folder with files like those of manifests/crds"
_MANAGER: Final = "rollout-operator-admin"

# The operator writes its CA into what we delete: it may be faster a few times, not for ever.
_MOST_ATTEMPTS: Final = 5
# Where all hooks of the operator live, those of later versions too.
_OUR_PATHS: Final = "/admission/"
_Decode = Callable[[bytes | msgspec.Raw], WebhookConfiguration]
_KINDS: Final[tuple[tuple[Resource, _Decode], ...]] = (
    (VALIDATING_WEBHOOKS, decode_validating_webhooks),
    (MUTATING_WEBHOOKS, decode_mutating_webhooks),
)

DRY_RUN: Final = Flag(
    name="dry-run",
    kind=BOOL,
    default=False,
    help="Only list what would be deleted.",
)
_HEAD: Final = """\
Usage: rollout-operator admin apply-crds FOLDER [flags]
       rollout-operator admin uninstall-webhooks [flags]

apply-crds creates the CustomResourceDefinitions in the YAML files of a folder, or changes those of
that name to be like them. Nothing is deleted. The user of the kubeconfig must be allowed to create
and patch customresourcedefinitions.

uninstall-webhooks deletes the webhook configurations of the operator of one namespace: those with
the label grafana.com/namespace=NAME whose hooks call /admission/... It comes before the operator is
removed, and frees a cluster from which it was removed without. The user of the kubeconfig must be
allowed to list, get and delete webhook configurations.

"""
_FOOT: Final = """
-dry-run is of uninstall-webhooks.

Exit codes:
  0 if it is done, 1 if something could not be done, 2 if the command line is wrong.
"""


class ConfigurationClient(Reader, Writer, Protocol):
    """The requests to the API server."""


class LeftOver(OperatorError):
    """Some configurations could not be found or deleted; the reasons have been printed."""


def run(arguments: Sequence[str]) -> int:
    """Run the task that the first word names; return the exit code 0.

    Raises HelpRequested, ConfigError with its exit code, and OperatorError of the API server.
    """
    if not arguments or (task := _TASKS.get(arguments[0])) is None:
        parsed = parse_mixed((*ACCESS_FLAGS, DRY_RUN), arguments)
        wrong = f", not {quote(parsed.leftovers[0])}" if parsed.leftovers else ""
        raise UsageError(f"name first one task: {', '.join(_TASKS)}{wrong}")
    task(arguments[1:])
    return ExitCode.DONE


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}{''.join(render_entries((*ACCESS_FLAGS, DRY_RUN)))}{_FOOT}"


def _run_apply_crds(arguments: Sequence[str]) -> None:
    parsed = parse_mixed(ACCESS_FLAGS, arguments)
    if len(parsed.leftovers) != 1:
        raise UsageError("name one folder with YAML files")
    definitions = read_definitions(Path(parsed.leftovers[0]))
    access = choose_access(parsed)
    logs.configure(level="warn")
    asyncio.run(_apply(access, definitions))


def _run_uninstall_webhooks(arguments: Sequence[str]) -> None:
    parsed = parse_arguments((*ACCESS_FLAGS, DRY_RUN), arguments)
    refuse_leftovers(parsed)
    if parsed.has(NAMESPACE) and not parsed.value(NAMESPACE):
        # Not that of the context: a variable of a script is empty.
        raise UsageError(f"-{NAMESPACE.name} is empty")
    access = choose_access(parsed)
    logs.configure(level="warn")
    asyncio.run(_uninstall(access, is_dry_run=parsed.value(DRY_RUN)))


_TASKS: Final[Mapping[str, Callable[[Sequence[str]], None]]] = {
    "apply-crds": _run_apply_crds,
    "uninstall-webhooks": _run_uninstall_webhooks,
}


def read_definitions(folder: Path) -> list[JsonObject]:
    """Return the definitions in the YAML files of a folder. Raises ConfigError."""
    found: list[JsonObject] = []
    path = folder
    try:
        for path in sorted(folder.iterdir()):
            if path.suffix in _SUFFIXES and path.stem != _NO_OBJECT:
                documents = read_objects(path.read_bytes(), _HINT)
                found += [_take_definition(path, each) for each in documents]
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except BadDump as error:
        raise ConfigError(f"{path}: {error}") from None
    if not found:
        raise ConfigError(f"{folder}: there is no YAML file with a definition")
    return found


def _take_definition(path: Path, document: JsonObject) -> JsonObject:
    match document:
        case {"kind": DEFINITIONS.kind, "metadata": {"name": str()}, "spec": {"group": group}}:
            if group in _GROUPS:
                return dict(document)
            names = " nor ".join(_GROUPS)
            raise ConfigError(f"{path}: spec.group: {quote(str(group))} is neither {names}")
    raise ConfigError(f"{path}: holds something else than a {DEFINITIONS.kind}")


async def _apply(access: Access, definitions: Iterable[JsonObject]) -> None:
    async with open_client(access) as client:
        await apply_definitions(client, definitions, _write_line)


async def apply_definitions(
    client: Applier, definitions: Iterable[JsonObject], write_line: Callable[[str], None]
) -> None:
    """Make each definition in the cluster say what the file says. Raises OperatorError."""
    for body in definitions:
        metadata = body["metadata"]
        name = f"{metadata['name']}" if isinstance(metadata, dict) else ""
        await client.apply(DEFINITIONS, "", name, body, manager=_MANAGER, is_forced=True)
        write_line(f"{DEFINITIONS.kind} {name}: applied")


def _write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")


async def _uninstall(access: Access, *, is_dry_run: bool) -> None:
    async with open_client(access) as client:
        await uninstall(client, access.namespace, _write_line, is_dry_run=is_dry_run)


async def uninstall(
    client: ConfigurationClient,
    namespace: str,
    write_line: Callable[[str], None],
    *,
    is_dry_run: bool = False,
) -> None:
    """Delete all configurations of a namespace's operator. Raises LeftOver."""
    seen = failed = 0
    for resource, decode in _KINDS:
        listed: Sequence[msgspec.Raw] = ()
        try:
            selector = f"{NAMESPACE_LABEL}={namespace}"
            listed = await list_items(client, resource, "", selector=selector)
        except OperatorError as error:
            failed += 1
            write_line(f"{error}")
        for raw in listed:
            seen, what = seen + 1, resource.kind
            try:
                configuration = decode(raw)
                what = f"{resource.kind} {configuration.name}"
                if not _is_ours(configuration, namespace):
                    end = f"left alone, none of its webhooks calls {_OUR_PATHS}"
                elif is_dry_run:
                    end = "would be deleted"
                else:
                    end = await _delete(client, resource, decode, configuration)
                write_line(f"{what}: {end}")
            except OperatorError as error:
                failed += 1
                write_line(f"{what}: {error}")
    if failed:
        raise LeftOver(f"webhook configurations may be left: {failed} failed, see above")
    if not seen:
        write_line(f"there are no webhook configurations of namespace {namespace}")


async def _delete(
    client: ConfigurationClient, resource: Resource, decode: _Decode, seen: WebhookConfiguration
) -> str:
    """Delete a configuration as it was assessed, but no successor; return the outcome."""
    namespace = seen.labels[NAMESPACE_LABEL]
    try:
        for _ in range(_MOST_ATTEMPTS):
            if not _is_ours(seen, namespace):
                return "left alone, it has changed"
            precondition = Precondition(uid=seen.uid, resource_version=seen.resource_version)
            try:
                await client.delete(resource, "", seen.name, precondition=precondition)
                return "deleted"
            except (Conflict, UnknownOutcome):
                seen = decode(await client.fetch(resource, "", seen.name))
    except NotFound:
        return "deleted"
    raise Conflict(f"it changed {_MOST_ATTEMPTS} times while it was to be deleted: try again")


def _is_ours(configuration: WebhookConfiguration, namespace: str) -> bool:
    return configuration.labels.get(NAMESPACE_LABEL) == namespace and any(
        webhook.path.startswith(_OUR_PATHS) for webhook in configuration.webhooks
    )
