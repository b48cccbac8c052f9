"""`rollout-operator uninstall-webhooks`: delete the webhook configurations of one operator.

Decides which are its own, and what is printed of each. It is the first step of a removal, and the
way out for a cluster where the operator is gone and its webhooks refuse every downscale. The
operator itself takes no part, as its own rights do not suffice: the command runs with those of a
kubeconfig, found as kubectl finds it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.config.checks import read_config, render_entries
from rollout_operator.config.flags import Config, get_flag
from rollout_operator.config.grammar import (
    BOOL,
    Flag,
    ParsedArguments,
    UsageError,
    parse_arguments,
    refuse_leftovers,
)
from rollout_operator.kube.api import (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    Precondition,
    Reader,
    Resource,
    Writer,
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
from rollout_operator.telemetry import logs

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
Usage: rollout-operator uninstall-webhooks [flags]

Deletes the webhook configurations of the operator of one namespace: those with the label
grafana.com/namespace=NAME whose hooks call /admission/... It comes before the operator is removed,
and frees a cluster from which it was removed without. The user of the kubeconfig must be allowed to
list, get and delete webhook configurations.

"""
_FOOT: Final = """
The operator's own flags -kubernetes.namespace, -kubernetes.api-url and -kubernetes.config-file are
taken as well.

Exit codes:
  0 if nothing is left, 1 if something could not be deleted, 2 if the command line is wrong.
"""


class ConfigurationClient(Reader, Writer, Protocol):
    """The requests to the API server."""


class LeftOver(OperatorError):
    """Some configurations could not be found or deleted; the reasons have been printed."""


def run(arguments: Sequence[str]) -> int:
    """Run the command with these words; return the exit code 0.

    Raises HelpRequested, ConfigError with its exit code, and LeftOver.
    """
    parsed = parse_arguments((*ACCESS_FLAGS, DRY_RUN, *_OF_THE_OPERATOR), arguments)
    refuse_leftovers(parsed)
    access = _choose_access(parsed)
    logs.configure(level="warn")
    asyncio.run(_run(access, is_dry_run=parsed.value(DRY_RUN)))
    return ExitCode.DONE


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}{''.join(render_entries((*ACCESS_FLAGS, DRY_RUN)))}{_FOOT}"


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


async def _run(access: Access, *, is_dry_run: bool) -> None:
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
        for resource, decode in _KINDS:
            try:
                async for raw in self._list(resource):
                    await self._take(resource, decode, raw)
            except OperatorError as error:
                self._fail(f"{error}")
        if self._failed:
            raise LeftOver(f"webhook configurations may be left: {self._failed} failed, see above")
        if not self._found:
            self.write_line(f"there are no webhook configurations of namespace {self.namespace}")

    async def _list(self, resource: Resource) -> AsyncIterator[msgspec.Raw]:
        token = ""
        while True:
            page = await self.client.fetch_page(
                resource, "", selector=f"{NAMESPACE_LABEL}={self.namespace}", token=token
            )
            for raw in page.items:
                yield raw
            token = page.next_token
            if not token:
                return

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
