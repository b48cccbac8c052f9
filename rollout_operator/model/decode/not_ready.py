"""What keeps a pod from being ready, in a few words; nothing does where it is (D-11).

Decides from what the pod says of itself. How long it has been ready, and what a zone makes of it,
is left to the planner.
"""

from collections.abc import Sequence
from typing import Final

from rollout_operator.model.decode.wire import Container, PodStatus

# Long enough for every reason that Kubernetes knows, short enough for one line of a page.
REASON_LIMIT: Final = 80

# What a container waits for in every pod; for anything else it may wait for ever.
_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing", "waiting"})


def explain_not_ready(status: PodStatus, *, terminating: bool) -> tuple[str, bool]:
    """Return why a pod is not ready, on one short line, and whether every pod is so at first.

    Empty where it is ready.
    """
    if terminating:
        return "terminating", False
    containers = status.container_statuses or ()
    if status.phase == "Running" and containers and all(map(_is_up, containers)):
        why_not_ready = _explain_condition(status)
        return why_not_ready, bool(why_not_ready)
    lasting = _explain_scheduling(status) or _explain_init(status)
    halt = "" if lasting else _halt(containers)
    if lasting or halt:
        return one_line(lasting or halt), halt in _STARTING
    if status.phase != "Running":
        why = f": {status.reason}" if status.reason else ""
        why_not_ready = one_line(f"phase {status.phase}{why}" if status.phase else "no phase")
        return why_not_ready, status.phase in ("Pending", "")
    if not containers:
        return "no container statuses", True
    down = next(container for container in containers if not _is_up(container))
    what = "not ready" if _runs(down) else "not running"
    return one_line(f"container {down.name} {what}"), True


def is_crash_looping(status: PodStatus) -> bool:
    """Return whether a kubelet puts off to start a container that keeps crashing."""
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    halts = (container.state.waiting for container in containers if container.state is not None)
    return any(halt is not None and halt.reason == "CrashLoopBackOff" for halt in halts)


def one_line(text: str) -> str:
    """Make a text fit for one line of a log or page."""
    if len(text) <= REASON_LIMIT and text.isascii() and text.isprintable():
        return text
    return text[:REASON_LIMIT].encode("unicode_escape").decode("ascii")[:REASON_LIMIT]


def clip(text: str, most: int) -> str:
    """Return `text` within `most` characters, with escapes for what is not printable."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:most])
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _explain_condition(status: PodStatus) -> str:
    ready = [condition for condition in status.conditions or () if condition.type == "Ready"]
    if not ready:
        return "no readiness condition"
    for condition in ready:
        if condition.status != "True":
            why = f" ({condition.reason})" if condition.reason else ""
            return one_line(f"readiness condition {condition.status.lower() or 'unset'}{why}")
    return ""


def _explain_scheduling(status: PodStatus) -> str:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason or "not scheduled"
    return ""


def _explain_init(status: PodStatus) -> str:
    for container in status.init_container_statuses or ():
        if container.ready or container.state is None:
            continue
        waiting, ended = container.state.waiting, container.state.terminated
        # `PodInitializing` only says that an init container before this has not ended.
        if waiting is not None and waiting.reason and waiting.reason != "PodInitializing":
            return f"init: {waiting.reason}"
        if ended is not None and ended.exit_code != 0:
            return f"init terminated: {ended.reason or ended.exit_code}"
    return ""


def _halt(containers: Sequence[Container]) -> str:
    for container in containers:
        if container.state is not None and container.state.waiting is not None:
            return container.state.waiting.reason or "waiting"
    for container in containers:
        if container.state is not None and container.state.terminated is not None:
            ended = container.state.terminated
            return f"terminated: {ended.reason or ended.exit_code}"
    return ""


def _runs(container: Container) -> bool:
    return container.state is not None and container.state.running is not None


def _is_up(container: Container) -> bool:
    return container.ready and _runs(container)
