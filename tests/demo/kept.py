"""A cluster that stays after its rollout: how to reach it, and what to try on it."""

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from tests.demo.stage import OperatorEndedError
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

POLL: Final = timedelta(seconds=1)
PROGRAM: Final = Path(sys.executable).parent / "rollout-operator"
# What each shows stands in docs/tutorial.md, which has them all and more.
COMMANDS: Final = (
    ("kubectl get statefulsets,pods -o wide", "three zones, and the nodes of their pods"),
    (
        "kubectl set image statefulset -l rollout-group=ingester app=v3",
        "a rollout: one zone after the other",
    ),
    ("rollout-operator status -w", "what it does, and what it waits for; Ctrl-C ends it"),
    ("kubectl scale statefulset zone-c --replicas=1", "refused: a label forbids it"),
    ("kubectl drain node-zone-a-1", "evictions, never in two zones at a time"),
)


def write_kubeconfig(world: World) -> Path:
    """Write a kubeconfig with all rights, whose namespace is the world's, and return its path."""
    plane = world.plane
    path = world.folder / "kubeconfig"
    return plane.kubeconfig(path, plane.tokens["admin"], namespace=world.namespace)


def render_invitation(kubeconfig: Path, search_path: str) -> Sequence[str]:
    """Return what is printed where a cluster stays; `search_path` is the user's PATH."""
    found = shutil.which("rollout-operator", path=search_path)
    is_ours = found is not None and Path(found).resolve() == PROGRAM.resolve()
    lines = ["", "The cluster stays until Ctrl-C. In another terminal:", ""]
    lines.append(f"  export KUBECONFIG={kubeconfig}")
    if not is_ours:
        lines.append(f"  export PATH={PROGRAM.parent}:$PATH")
    for command, what in COMMANDS:
        lines += ["", f"  # {what}", f"  {command}"]
    return [*lines, "", "docs/tutorial.md goes on from there.", ""]


async def stay(world: World, operator: OperatorProcess) -> None:
    """Say how to reach the cluster, and wait for ever. Raises OperatorEndedError."""
    lines = render_invitation(write_kubeconfig(world), os.environ.get("PATH", ""))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()
    while operator.is_running:  # noqa: ASYNC110 (an end without an event)
        await asyncio.sleep(POLL.total_seconds())
    raise OperatorEndedError(f"the operator has ended\n{operator.child.tail()}")
