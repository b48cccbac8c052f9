"""`rollout-operator apply-crds`: create or upgrade the operator's CustomResourceDefinitions.

Decides which documents it takes: definitions of the operator's own API groups and no others. Helm
installs such kinds once and never again; its chart runs this before each upgrade. Other fields of a
definition that exists, such as labels of other tools, stay.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import yaml

from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import UsageError, parse_mixed
from rollout_operator.kube.api import (
    DEFINITIONS,
    MULTI_AZ_ROLLOUTS,
    ZONE_BUDGETS,
    JsonObject,
    Patcher,
    Resource,
)
from rollout_operator.kube.connection import Access
from rollout_operator.model.names import ConfigError, ExitCode, NotFound
from rollout_operator.model.units import quote
from rollout_operator.telemetry import logs

_GROUPS: Final = (ZONE_BUDGETS.group, MULTI_AZ_ROLLOUTS.group)
# Beside the files in manifests/crds.
_NO_OBJECT: Final = "kustomization.yaml"

_HEAD: Final = """\
Usage: rollout-operator apply-crds FOLDER [flags]

Creates the CustomResourceDefinitions in the YAML files of a folder, or changes those of that name
to be like them. Nothing is deleted. The user of the kubeconfig must be allowed to create and patch
customresourcedefinitions.

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


def run(arguments: Sequence[str]) -> int:
    """Run the command with these words; return the exit code 0.

    Raises HelpRequested, ConfigError with its exit code, and OperatorError of the API server.
    """
    parsed = parse_mixed(ACCESS_FLAGS, arguments)
    if len(parsed.leftovers) != 1:
        raise UsageError("name one folder with YAML files")
    definitions = read_definitions(Path(parsed.leftovers[0]))
    access = choose_access(parsed)
    logs.configure(level="warn")
    asyncio.run(_run(access, definitions))
    return ExitCode.DONE


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}{''.join(render_entries(ACCESS_FLAGS))}"


def read_definitions(folder: Path) -> list[Definition]:
    """Return the definitions in the YAML files of a folder. Raises ConfigError."""
    if not folder.is_dir():
        wrong = "is a file: name the folder that it is in" if folder.exists() else "no such folder"
        raise ConfigError(f"{folder}: {wrong}")
    try:
        files = [
            path
            for path in sorted(folder.iterdir())
            if path.suffix == ".yaml" and path.name != _NO_OBJECT
        ]
        texts = {path: _read(path) for path in files}
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from error
    definitions = [
        _check(path, document)
        for path, text in texts.items()
        for document in _parse(path, text)
        if document is not None
    ]
    if not definitions:
        raise ConfigError(f"{folder}: there is no YAML file with a definition")
    return definitions


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8") from None


def _parse(path: Path, text: str) -> list[Any]:
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML") from error


def _check(path: Path, document: Any) -> Definition:
    match document:
        case {"kind": DEFINITIONS.kind, "metadata": {"name": str(name)}, "spec": {"group": group}}:
            if group in _GROUPS:
                return Definition(name, document)
            names = " nor ".join(_GROUPS)
            raise ConfigError(f"{path}: spec.group: {quote(str(group))} is neither {names}")
    raise ConfigError(f"{path}: holds something else than a {DEFINITIONS.kind}")


async def _run(access: Access, definitions: Iterable[Definition]) -> None:
    async with open_client(access) as client:
        await apply_definitions(client, definitions, lambda line: sys.stdout.write(f"{line}\n"))


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
