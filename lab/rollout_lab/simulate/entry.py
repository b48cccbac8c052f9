"""`rollout-operator simulate`: the input of a simulation, from files or a cluster."""

import asyncio
from collections.abc import Sequence
from typing import Final

from rollout_lab.simulate import command
from rollout_lab.simulate.flags import render_simulate_usage
from rollout_operator.aio.clock import LoopClock
from rollout_operator.cli.access import CONTEXT, KUBECONFIG, be_quiet, choose_access, open_client
from rollout_operator.config.grammar import ParsedArguments
from rollout_operator.kube.connection import Access
from rollout_operator.model.names import InvalidInput
from rollout_operator.operator.copies import ObjectsCopy, copy_namespace, copy_releases

# -namespace is its own: a file may hold several.
_FLAGS: Final = (KUBECONFIG, CONTEXT)


def run(arguments: Sequence[str]) -> int:
    """Print a simulation; return the exit code. Raises HelpRequested and OperatorError."""
    return command.run(arguments, command.ClusterAccess(_FLAGS, _copy_cluster, _copy_releases))


def render_usage() -> str:
    """Return the help text."""
    return render_simulate_usage(_FLAGS)


def _copy_cluster(arguments: ParsedArguments) -> ObjectsCopy:
    be_quiet()
    return asyncio.run(_copy(choose_access(arguments)))


def _copy_releases(arguments: ParsedArguments) -> ObjectsCopy:
    be_quiet()
    return asyncio.run(_copy_of_releases(choose_access(arguments)))


async def _copy_of_releases(access: Access) -> ObjectsCopy:
    async with open_client(access) as client:
        return await copy_releases(client, access.namespace, LoopClock())


async def _copy(access: Access) -> ObjectsCopy:
    async with open_client(access) as client:
        copy = await copy_namespace(client, access.namespace, LoopClock())
    if not any(obj["kind"] == "StatefulSet" for obj in copy.objects):
        raise InvalidInput(f"there is no StatefulSet in namespace {access.namespace}")
    return copy
