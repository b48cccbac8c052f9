"""What a reader is told of a MultiAZRollout: its batches and pauses, as its status records them."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from rollout_lab.model.fields import child, children, condition_of, name_of, number, text
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.units import format_duration, parse_rfc3339

_BATCH: Final = ("status", "lastBatch")
_NEXT: Final = "nextBatchTime"
_COMPLETION: Final = "completionTime"


def list_policy_changes(before: JsonObject | None, after: JsonObject | None) -> Iterator[str]:
    """Yield a sentence for each thing that a write of a policy says first."""
    if before is None or after is None:
        yield "it is created" if after else "it is gone"
        return
    yield from _render_refusal(before, after)
    yield from _render_batch(before, after)
    yield from _render_end(before, after)


def _render_refusal(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = (condition_of(version, "Accepted") for version in (before, after))
    if text(now, "status") == "False" and text(was, "message") != text(now, "message"):
        yield f"it is refused: {text(now, 'message')} [{text(now, 'reason')}]"
    elif text(was, "status") == "False" and text(now, "status") == "True":
        yield "it is in service"


def _render_batch(before: JsonObject, after: JsonObject) -> Iterator[str]:
    old, new = child(before, *_BATCH), child(after, *_BATCH)
    batch = f"batch {number(new, 'number')}"
    is_same = number(old, "number") == number(new, "number")
    had_ended, has_ended = is_same and bool(old.get(_COMPLETION)), bool(new.get(_COMPLETION))
    names = [name_of({"metadata": pod}) for pod in children(new, "pods")]
    if new and (not is_same or len(names) != len(children(old, "pods"))):
        where = f"{text(new, 'statefulSet')} in zone {text(new, 'zone')}"
        yield f"{batch}, of {where}: {', '.join(names)}"
    pause = _describe_pause(before, after)
    if has_ended and not had_ended:
        yield f"{batch} is complete{pause and '; '}{pause}"
    elif had_ended and not has_ended:
        yield f"{batch} is open again, since a pod is down; its pause will begin anew"
    elif pause:
        yield pause


def _describe_pause(before: JsonObject, after: JsonObject) -> str:
    """Return how long nothing goes after the last batch, empty where that is no news."""
    old, new = (text(version, "status", _NEXT) for version in (before, after))
    begin = text(child(after, *_BATCH), _COMPLETION)
    if not new or old == new or not begin:
        return ""
    span = parse_rfc3339(new) - parse_rfc3339(begin)
    # Its end is rounded up.
    whole = span // timedelta(seconds=1) * timedelta(seconds=1)
    return f"a pause of {format_duration(whole)} follows"


def _render_end(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = (condition_of(version, "Stalled") for version in (before, after))
    if text(now, "status") == "True" != text(was, "status") and not _is_refused(after):
        yield f"it is stalled: {text(now, 'message')} [{text(now, 'reason')}]"
    was_done, is_done = (bool(text(version, "status", _COMPLETION)) for version in (before, after))
    if is_done and not was_done:
        yield f"rolled out: {number(after, 'status', 'updatedPods')} pods"


def _is_refused(policy: JsonObject) -> bool:
    return text(condition_of(policy, "Accepted"), "status") == "False"
