"""When a batch is complete, how long the pause after it lasts, and when it has stalled.

All of it follows from what the status of the policy records and from the pods as they are, so that
a process that starts anew comes to the same. Times are those of the API server's clock, but for the
times of pods' conditions, which kubelets write: where one of them lies in the future, when the pod
was created counts.

What is known of the server's clock may be early: `now` has passed, `latest` has not. A pause begins
at the latest time and ends by the earliest time, so that no error of a clock shortens it.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from rollout_operator.model.objects import Pod
from rollout_operator.model.policy.plan import MOST_BATCHES, Batch, BatchPod
from rollout_operator.model.policy.policy import Policy
from rollout_operator.planning.rollout.readiness import Readiness
from rollout_operator.planning.rollout.zones import is_paused


def find_open(batch: Batch | None, readinesses: Iterable[Readiness]) -> Batch | None:
    """Return the batch where it is open, None where it is complete or superseded.

    It is superseded where its StatefulSet is gone or wants another revision by now (MAZ-47).
    """
    if batch is None or batch.completion is not None:
        return None
    return batch if any(_is_for(batch, readiness) for readiness in readinesses) else None


def has_superseded(batch: Batch | None, readiness: Readiness) -> bool:
    """Return whether an unfinished batch of a StatefulSet was for another revision than its own.

    Its pods must bear that out: a batch that a person has written by hand saves no pause.
    """
    if batch is None or batch.completion is not None or batch.set_name != readiness.sts.name:
        return False
    is_for_another = batch.revision != readiness.sts.update_revision
    return is_for_another and any(_is_wanted_anew(pod, readiness) for pod in batch.pods)


def _is_wanted_anew(recorded: BatchPod, readiness: Readiness) -> bool:
    """Return whether a pod of a batch is down, or not at the update revision of now."""
    sts = readiness.sts
    pod = next((pod for pod in readiness.standing if pod.name == recorded.name), None)
    if pod is None:
        return sts.find_ordinal(recorded.name, sts.ordinals) is not None
    return pod.revision != sts.update_revision


def settle_batch(
    batch: Batch | None,
    readinesses: Sequence[Readiness],
    policy: Policy,
    now: datetime,
    latest: datetime,
) -> Batch | None:
    """Return the batch as it is to be recorded: stamped when it is complete, and open again.

    A pod that fails during the pause opens it again, so that the pause counts from the recovery
    (MAZ-40). After the pause nothing does.
    """
    if batch is None:
        return None
    if batch.completion is None:
        return replace(batch, completion=latest) if _is_complete(batch, readinesses) else batch
    completion = min(batch.completion, latest)
    if now - completion >= policy.interval or all(readiness.is_whole for readiness in readinesses):
        return replace(batch, completion=completion)
    # A batch for another revision would be superseded if it were open, and need no pause at all.
    is_current = any(_is_for(batch, readiness) for readiness in readinesses)
    return replace(batch, completion=None if is_current else latest)


def list_left(batch: Batch, readiness: Readiness) -> tuple[Pod, ...]:
    """Return the pods of a batch that were recorded and not deleted, and are to go still."""
    if is_paused(readiness.sts):
        return ()
    recorded = {pod.uid for pod in batch.pods}
    outdated = (pod for pod in readiness.standing if pod.revision != readiness.sts.update_revision)
    return tuple(pod for pod in outdated if pod.uid in recorded)


def find_pause_end(
    batch: Batch | None,
    readinesses: Sequence[Readiness],
    policy: Policy,
    now: datetime,
    latest: datetime,
) -> datetime | None:
    """Return when the next batch may begin, None where it may at once.

    It counts from the completion of the last batch or, where a pod recovered later, from that: this
    process may not have been there. Without a record, from what updated pods show (MAZ-43). Where
    the policy wants no pause there is none, however little is known of the server's clock.
    """
    if not policy.interval:
        return None
    is_recorded = batch is not None
    recoveries = _list_recoveries(readinesses, now, only_updated=not is_recorded)
    # Kubelets write whole seconds: the truth is later by as little as that of the server's clock.
    times = [time + (latest - now) for time in recoveries if time <= now]
    if batch is not None and batch.completion is not None:
        times.append(min(batch.completion, latest))
    end = max(times) + policy.interval if times else now
    return end if end > now else None


def compute_deadline(
    batch: Batch, readinesses: Iterable[Readiness], policy: Policy, now: datetime
) -> datetime:
    """Return when an open batch has stalled, unless it makes progress: a pod comes or is ready."""
    names = {pod.name for pod in batch.pods}
    pods = (
        pod
        for readiness in readinesses
        for pod in (*readiness.standing, *(down.pod for down in readiness.down))
        if pod.name in names
    )
    times = (time for pod in pods for time in (pod.created, pod.ready_since))
    seen = [time for time in times if time is not None and time <= now]
    return max([min(batch.start, now), *seen]) + policy.progress_deadline


def open_batch(
    batch: Batch | None, readiness: Readiness, *, zone: str, pods: Iterable[Pod], now: datetime
) -> Batch:
    """Return the next batch."""
    last = 0 if batch is None else batch.number
    return Batch(
        number=last + 1 if last < MOST_BATCHES else 1,
        zone=zone,
        set_name=readiness.sts.name,
        revision=readiness.sts.update_revision,
        pods=tuple(BatchPod(name=pod.name, uid=pod.uid) for pod in pods),
        start=now,
    )


def _is_for(batch: Batch, readiness: Readiness) -> bool:
    return (batch.set_name, batch.revision) == (readiness.sts.name, readiness.sts.update_revision)


def _is_complete(batch: Batch, readinesses: Sequence[Readiness]) -> bool:
    """Return whether the pods of a batch are back, and nothing of the policy is unavailable.

    A pod that is back at another revision than the batch was for goes with a later batch.
    """
    if not all(readiness.is_whole for readiness in readinesses):
        return False
    return any(
        _is_for(batch, readiness) and not list_left(batch, readiness) for readiness in readinesses
    )


def _list_recoveries(
    readinesses: Iterable[Readiness], now: datetime, *, only_updated: bool
) -> Iterator[datetime]:
    """Yield when pods that are up became available; when they came, by a clock that is ahead."""
    for readiness in readinesses:
        patience = timedelta(seconds=readiness.sts.min_ready_seconds)
        for pod in readiness.standing:
            is_updated = pod.revision == readiness.sts.update_revision
            if pod.ready_since is None or (only_updated and not is_updated):
                continue
            yield pod.ready_since + patience
            if pod.created is not None and pod.ready_since > now:
                yield pod.created + patience
