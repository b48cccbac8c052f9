"""Choose the pods to delete next in one zone.

Decides only for a zone whose turn it is: whether every other zone is whole is settled in `walk`.
Which of the candidates are refused, and what is tried instead, is up to the executor of the plan.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import (
    Code,
    EqualPods,
    Reason,
    Replacement,
    ReplacePods,
    Severity,
)
from rollout_operator.planning.rollout.readiness import (
    Down,
    DownCause,
    Readiness,
    is_passing,
    render_not_ready,
    render_why,
)
from rollout_operator.planning.wording import count, verb


def count_outdated(readiness: Readiness) -> int:
    """Return how many pods are not on the update revision and not yet on their way out."""
    return count_outdated_used(readiness) + len(_list_outdated_newcomers(readiness))


def count_outdated_used(readiness: Readiness) -> int:
    """Return how many of them hold something: no plan waits for the others (D-67)."""
    revision = readiness.sts.update_revision
    standing = sum(pod.revision != revision for pod in readiness.standing)
    return standing + len(_list_broken(readiness))


def choose_pods(
    readiness: Readiness, limit: int, *, others_down: int = 0
) -> tuple[ReplacePods | None, Reason | None]:
    """Return the outdated pods that may go while at most `limit` are down, and why others do not.

    Broken pods go first and take nothing from healthy pods: they count as down already.
    Newcomers hold nothing: they go whatever else is down. Healthy pods go in the order in which
    they come; `others_down` pods are unavailable in other StatefulSets of the zone.
    """
    revision = readiness.sts.update_revision
    broken, newcomers = _list_broken(readiness), _list_outdated_newcomers(readiness)
    healthy = [pod for pod in readiness.standing if pod.revision != revision]
    unavailable = readiness.unavailable + others_down
    room = limit - unavailable
    shares = (
        _share(readiness, newcomers, len(newcomers)),
        *_choose_unanswered(readiness, limit),
        _choose_unborn(readiness, limit),
        _choose_fallen(readiness, limit),
        # Whatever is in flight or broken counts as unavailable: this bounds disruptions as well.
        EqualPods(
            pods=tuple(_replace_healthy(readiness.sts, pod) for pod in healthy),
            room=min(room, len(healthy)),
        ),
    )
    action = ReplacePods(
        zone=readiness.sts, shares=tuple(share for share in shares if share.pods and share.room > 0)
    )
    going = len(action.going)
    held = len(newcomers) + len(broken) + len(healthy) - going
    if not held:
        return action if going else None, None
    text = (
        f"{readiness.sts.name}: {count(held, 'outdated pod')} {verb(held, 'waits', 'wait')}: "
        f"{unavailable} unavailable of {limit} allowed"
    )
    wait = _explain_held(readiness, text, going=going, is_alone=not others_down)
    return action if going else None, wait


def keep_harmless(action: ReplacePods) -> ReplacePods | None:
    """Return the deletes that disturb nothing, however many zones are short; None for none."""
    shares = (
        replace(share, pods=pods, room=min(share.room, len(pods)))
        for share in action.shares
        if (pods := tuple(entry for entry in share.pods if disturbs_nothing(entry.pod)))
    )
    kept = replace(action, shares=tuple(shares))
    return kept if kept.shares else None


def disturbs_nothing(pod: Pod) -> bool:
    """Return whether the delete of an outdated pod takes nothing away (D-88).

    Such a pod has never served since it was created, or crashes again and again. Any other pod that
    is down may come back by itself, as do those of two zones that a network keeps apart.
    """
    return not pod.is_ready and (_is_new(pod) or pod.is_crash_looping)


def _list_broken(readiness: Readiness) -> list[Down]:
    """Return the outdated pods that are down, other than by age or by an answered delete."""
    return [down_pod for down_pod in readiness.down if _is_broken(readiness.sts, down_pod)]


def _list_outdated_newcomers(readiness: Readiness) -> list[Down]:
    revision = readiness.sts.update_revision
    return [
        Down(pod=pod, why=DownCause.UNREADY, gaps_below=0)
        for pod in readiness.newcomers
        if pod.revision != revision and not pod.is_terminating
    ]


def _is_broken(sts: StatefulSet, unready: Down) -> bool:
    may_go = unready.why is DownCause.UNREADY or unready.why is DownCause.UNANSWERED
    return may_go and unready.pod.revision != sts.update_revision


def _choose_unanswered(readiness: Readiness, limit: int) -> tuple[EqualPods, EqualPods]:
    """Return the pods to delete once more, by the same UID: it settles what became of them.

    Those that are still up, the second share, may have been spared. 3 pods, limit 1, another pod
    has crashed since: it waits until the first request cannot be carried out any more (SI-03).
    """
    pods = [unready for unready in _list_broken(readiness) if unready.why is DownCause.UNANSWERED]
    down = [pod for pod in pods if not pod.pod.is_ready]
    up = [pod for pod in pods if pod.pod.is_ready]
    others = max(readiness.seen_down - len(up), readiness.status_short)
    return _share(readiness, down, len(down)), _share(readiness, up, limit - others)


def _choose_unborn(readiness: Readiness, limit: int) -> EqualPods:
    """Return the broken pods that were put there by us and have not been up since, in turn.

    Deleting such a pod adds nothing, whatever else is down: a bad revision comes to a stop at the
    lowest pods, and neither a gap that an ordered set leaves above them nor a pod there that finds
    no node may keep its fix away (LI-10). But some may be there because others drained a node: so
    they go from the lowest on, and what is on its way below them counts (SI-04).
    """
    below = len(readiness.unreadable)
    pods: list[Down] = []
    room = 0
    for down_pod in readiness.down:
        if down_pod.why is not DownCause.UNREADY or not _is_broken(readiness.sts, down_pod):
            below += _is_in_flight(readiness.sts, down_pod)
        elif not _is_in_flight(readiness.sts, down_pod):
            if readiness.sts.is_ordered:
                break  # what is deleted above it is not created again before it is ready
        elif below + down_pod.gaps_below < limit:
            pods.append(down_pod)
            room = limit - below - down_pod.gaps_below
    return _share(readiness, pods, room)


def _choose_fallen(readiness: Readiness, limit: int) -> EqualPods:
    """Return the outdated pods that have been up and broke by themselves.

    Deleting such a pod disrupts one more (SI-04). 5 pods, limit 1, one just replaced and starting:
    a second pod that crashes on its own waits.
    """
    sts = readiness.sts
    pods = [down for down in _list_broken(readiness) if not _is_in_flight(sts, down)]
    in_flight = readiness.missing + len(readiness.unreadable)
    in_flight += sum(_is_in_flight(sts, down_pod) for down_pod in readiness.down)
    if in_flight >= limit and pods and _is_awaited(readiness, pods[0]):
        return _share(readiness, pods[:1], 1)
    return _share(readiness, pods, limit - in_flight)


def _is_awaited(readiness: Readiness, down: Down) -> bool:
    """Return whether what is in flight comes back only once this pod is ready, ever so late.

    An ordered set with pod 0 crashing, 1 absent and 2 at a bad revision: the controller creates 1
    only when 0 is ready, and nothing mends 2 before. To wait for them is to wait for ever (LI-10).
    """
    sts, place = readiness.sts, readiness.down.index(down)
    if not sts.is_ordered or readiness.unreadable or down.gaps_below:
        return False
    is_lowest = not any(_is_in_flight(sts, other) for other in readiness.down[:place])
    return is_lowest and not any(_may_come_up(sts, other) for other in readiness.down[place + 1 :])


def _may_come_up(sts: StatefulSet, down: Down) -> bool:
    """Return whether a pod that is in flight needs nothing but time, or is up still.

    A pod at the update revision shows whether that revision is any good: it is waited for.
    """
    is_gone = down.why in (DownCause.TERMINATING, DownCause.DELETED)
    is_broken = down.why is DownCause.UNREADY and down.pod.revision != sts.update_revision
    return _is_in_flight(sts, down) and not is_gone and not is_broken


def _is_in_flight(sts: StatefulSet, down: Down) -> bool:
    """Return whether a pod is down most likely because of us.

    So is a pod that has not come up yet, whatever its revision: it may be there because its
    predecessor was evicted. Surely not, where it is outdated and has been ready, or may have been
    at the revision of before the rollout. After a rollback that is the update revision itself: a
    pod which we have just replaced is at both.
    """
    if down.why is not DownCause.UNREADY:
        return down.why is not DownCause.SETTLING
    if down.pod.revision == sts.update_revision or _is_new(down.pod):
        return True
    return down.pod.revision != sts.current_revision and not down.pod.was_ready


def _is_new(pod: Pod) -> bool:
    """Return whether a pod was surely never ready: a pod that has run has an address."""
    return pod.never_ready or (pod.phase == "Pending" and not pod.ip)


def _share(readiness: Readiness, pods: Sequence[Down], room: int) -> EqualPods:
    replacements = tuple(_replace_broken(readiness, pod) for pod in pods)
    return EqualPods(pods=replacements, room=min(room, len(pods)))


def _replace_broken(readiness: Readiness, down: Down) -> Replacement:
    text = (
        f"{render_outdated(down.pod, readiness.sts)} and it is down ({render_why(readiness, down)})"
    )
    reason = Reason(Code.POD_BROKEN_AND_OUTDATED, text, zone=readiness.sts.name)
    return Replacement(pod=down.pod, reason=reason)


def _replace_healthy(sts: StatefulSet, pod: Pod) -> Replacement:
    reason = Reason(Code.POD_OUTDATED, render_outdated(pod, sts), zone=sts.name)
    return Replacement(pod=pod, reason=reason)


def render_outdated(pod: Pod, sts: StatefulSet) -> str:
    """Return in a sentence that a pod is to be replaced."""
    at = pod.revision or "none"
    return f"{pod.name} is at revision {at}, {sts.name} wants {sts.update_revision}"


def _explain_held(readiness: Readiness, text: str, *, going: int, is_alone: bool) -> Reason:
    zone = readiness.sts.name
    if going:
        return Reason(Code.BUDGET_USED, f"{text}, {going} to go first", Severity.DEBUG, zone)
    text = f"{text}{render_not_ready(readiness)}"
    if is_alone and is_passing(readiness):
        return Reason(Code.PODS_STARTING, text, Severity.DEBUG, zone)
    return Reason(Code.BUDGET_USED, text, zone=zone)
