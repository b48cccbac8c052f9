"""`rollout-operator admin`: what its owner does to an installation, by the rights of a kubeconfig.

`apply-crds` creates or upgrades the operator's CustomResourceDefinitions. It takes definitions of
the operator's own API groups and no others. Helm installs such kinds once and never again; its
chart runs this before each upgrade. Other fields of a definition that exists, such as labels of
other tools, stay.

`uninstall-webhooks` deletes the webhook configurations of one operator: the first step of a
removal, and the way out for a cluster where the operator is gone and its webhooks refuse every
downscale.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.cli.dumps import BadDump, read_objects
from rollout_operator.config.checks import read_config, render_entries
from rollout_operator.config.flags import Config, get_flag
from rollout_operator.config.grammar import (
    BOOL,
    Flag,
    ParsedArguments,
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
    JsonObject,
    Patcher,
    Precondition,
    Reader,
    Resource,
    Writer,
    iterate_pages,
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
    InvalidInput,
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

# The operator writes its CA into what we delete: it may be faster a few times, not for ever.
_MOST_ATTEMPTS: Final = 5
# Where all hooks of the operator live, those of later versions too.
_OUR_PATHS: Final = "/admission/"

DRY_RUN: Final = Flag(
    name="dry-run",
    kind=BOOL,
    default=False,
    help="Only list what would be deleted.",
)
_NAMESPACE: Final = get_flag("kubernetes.namespace")
_OF_THE_OPERATOR: Final[tuple[Flag[Any], ...]] = (
    _NAMESPACE,
    get_flag("kubernetes.api-url"),
    get_flag("kubernetes.config-file"),
)

Decode = Callable[[bytes | msgspec.Raw], WebhookConfiguration]
_KINDS: Final[tuple[tuple[Resource, Decode], ...]] = (
    (VALIDATING_WEBHOOKS, decode_validating_webhooks),
    (MUTATING_WEBHOOKS, decode_mutating_webhooks),
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
-dry-run is of uninstall-webhooks, which takes the operator's own flags -kubernetes.namespace,
-kubernetes.api-url and -kubernetes.config-file as well.

Exit codes:
  0 if it is done, 1 if something could not be done, 2 if the command line is wrong.
"""


class DefinitionClient(Patcher, Protocol):
    """The requests to the API server."""

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        """POST a new object; see `kube.api.Writer`."""
        ...


class Definition(msgspec.Struct, frozen=True):
    """One CustomResourceDefinition as a file has it."""

    name: str
    body: JsonObject


class ConfigurationClient(Reader, Writer, Protocol):
    """The requests to the API server."""


class LeftOver(OperatorError):
    """Some configurations could not be found or deleted; the reasons have been printed."""


def run(arguments: Sequence[str]) -> int:
    """Run the task that the first word names; return the exit code 0.

    Raises HelpRequested, ConfigError with its exit code, and OperatorError of the API server.
    """
    if arguments and (task := _TASKS.get(arguments[0])):
        task(arguments[1:])
        return ExitCode.DONE
    parsed = parse_mixed((*ACCESS_FLAGS, DRY_RUN, *_OF_THE_OPERATOR), arguments)
    wrong = f", not {quote(parsed.leftovers[0])}" if parsed.leftovers else ""
    raise UsageError(f"name first one task: {', '.join(_TASKS)}{wrong}")


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
    parsed = parse_arguments((*ACCESS_FLAGS, DRY_RUN, *_OF_THE_OPERATOR), arguments)
    refuse_leftovers(parsed)
    access = _choose_access(parsed)
    logs.configure(level="warn")
    asyncio.run(_uninstall(access, is_dry_run=parsed.value(DRY_RUN)))


_TASKS: Final[Mapping[str, Callable[[Sequence[str]], None]]] = {
    "apply-crds": _run_apply_crds,
    "uninstall-webhooks": _run_uninstall_webhooks,
}


def read_definitions(folder: Path) -> list[Definition]:
    """Return the definitions in the YAML files of a folder. Raises ConfigError."""
    if not folder.is_dir():
        wrong = "is a file: name the folder that it is in" if folder.exists() else "no such folder"
        raise ConfigError(f"{folder}: {wrong}")
    try:
        files = [
            path
            for path in sorted(folder.iterdir())
            if path.suffix in _SUFFIXES and path.stem != _NO_OBJECT
        ]
        contents = {path: path.read_bytes() for path in files}
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from error
    definitions = [
        _take_definition(path, document)
        for path, content in contents.items()
        for document in _parse(path, content)
    ]
    if not definitions:
        raise ConfigError(f"{folder}: there is no YAML file with a definition")
    return definitions


def _parse(path: Path, content: bytes) -> list[JsonObject]:
    try:
        return read_objects(content, _HINT)
    except BadDump as error:
        raise ConfigError(f"{path}: {error}") from None


def _take_definition(path: Path, document: JsonObject) -> Definition:
    match document:
        case {"kind": DEFINITIONS.kind, "metadata": {"name": str(name)}, "spec": {"group": group}}:
            if group in _GROUPS:
                return Definition(name, document)
            names = " nor ".join(_GROUPS)
            raise ConfigError(f"{path}: spec.group: {quote(str(group))} is neither {names}")
    raise ConfigError(f"{path}: holds something else than a {DEFINITIONS.kind}")


async def _apply(access: Access, definitions: Iterable[Definition]) -> None:
    async with open_client(access) as client:
        await apply_definitions(client, definitions, _write_line)


async def apply_definitions(
    client: DefinitionClient, definitions: Iterable[Definition], write_line: Callable[[str], object]
) -> None:
    """Make each definition in the cluster say what the file says. Raises OperatorError."""
    for definition in definitions:
        try:
            await client.patch(DEFINITIONS, "", definition.name, {"spec": definition.body["spec"]})
            write_line(f"{DEFINITIONS.kind} {definition.name}: up to date")
        except NotFound:
            await client.create(DEFINITIONS, "", definition.body)
            write_line(f"{DEFINITIONS.kind} {definition.name}: created")


def _choose_access(arguments: ParsedArguments) -> Access:
    """Return the API server, and the namespace of the operator.

    Raises UsageError for the flags, and ConfigError for a kubeconfig.
    """
    given = [flag for flag in _OF_THE_OPERATOR if arguments.has(flag)]
    if not given:
        return choose_access(arguments)
    if any(arguments.has(flag) for flag in ACCESS_FLAGS):
        others = ", ".join(f"-{flag.name}" for flag in given)
        raise UsageError(f"{others} cannot be given together with flags for a kubeconfig")
    # Also of the namespace alone: an empty name must not become that of the context.
    config = _check(arguments, given)
    if given == [_NAMESPACE]:
        return choose_access(parse_arguments(ACCESS_FLAGS, [f"-namespace={config.namespace}"]))
    return Access(
        namespace=config.namespace, api_url=config.api_url, config_file=config.config_file
    )


def _check(arguments: ParsedArguments, given: Iterable[Flag[Any]]) -> Config:
    """Return the configuration of the operator by the same flags. Raises UsageError."""
    try:
        return read_config([f"-{flag.name}={arguments.value(flag)}" for flag in given])
    except ConfigError as error:
        raise UsageError(str(error)) from error


async def _uninstall(access: Access, *, is_dry_run: bool) -> None:
    async with open_client(access) as client:
        await Uninstall(client, access.namespace, _write_line, is_dry_run=is_dry_run).run()


def _write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")


@dataclass(slots=True)
class Uninstall:
    """One removal, printed line by line."""

    client: ConfigurationClient
    namespace: str
    write_line: Callable[[str], None]
    is_dry_run: bool = field(default=False, kw_only=True)
    _found: int = field(default=0, init=False)
    _failed: int = field(default=0, init=False)

    async def run(self) -> None:
        """Delete all configurations of the namespace's operator. Raises LeftOver."""
        selector = f"{NAMESPACE_LABEL}={self.namespace}"
        for resource, decode in _KINDS:
            try:
                async for page in iterate_pages(self.client, resource, "", selector=selector):
                    for raw in page.items:
                        await self._take(resource, decode, raw)
            except OperatorError as error:
                self._fail(f"{error}")
        if self._failed:
            raise LeftOver(f"webhook configurations may be left: {self._failed} failed, see above")
        if not self._found:
            self.write_line(f"there are no webhook configurations of namespace {self.namespace}")

    async def _take(self, resource: Resource, decode: Decode, raw: msgspec.Raw) -> None:
        try:
            configuration = decode(raw)
        except InvalidInput as error:
            self._fail(f"{error}")
            return
        what = f"{resource.kind} {configuration.name}"
        if not self._is_ours(configuration):
            self.write_line(f"{what}: left alone, none of its webhooks calls {_OUR_PATHS}")
            return
        self._found += 1
        try:
            end = (
                "would be deleted"
                if self.is_dry_run
                else await self._delete(configuration, resource, decode)
            )
        except OperatorError as error:
            self._fail(f"{what}: {error}")
        else:
            self.write_line(f"{what}: {end}")

    async def _delete(
        self, configuration: WebhookConfiguration, resource: Resource, decode: Decode
    ) -> str:
        """Delete a configuration as it was assessed, but no successor; return the outcome."""
        try:
            for _ in range(_MOST_ATTEMPTS):
                if not self._is_ours(configuration):
                    return "left alone, it has changed"
                seen = Precondition(
                    uid=configuration.uid, resource_version=configuration.resource_version
                )
                try:
                    await self.client.delete(resource, "", configuration.name, precondition=seen)
                    return "deleted"
                except (Conflict, UnknownOutcome):
                    configuration = decode(
                        await self.client.fetch(resource, "", configuration.name)
                    )
        except NotFound:
            return "deleted"
        raise Conflict(f"it changed {_MOST_ATTEMPTS} times while it was to be deleted: try again")

    def _is_ours(self, configuration: WebhookConfiguration) -> bool:
        return configuration.labels.get(NAMESPACE_LABEL) == self.namespace and any(
            webhook.path.startswith(_OUR_PATHS) for webhook in configuration.webhooks
        )

    def _fail(self, line: str) -> None:
        self._failed += 1
        self.write_line(line)
