"""What is done with a group now, and what goes next."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, assert_never

from rollout_operator.model.description import Step
from rollout_operator.model.group import Group
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Action, Code, RecordRevision, ReplacePods
from rollout_operator.planning.rollout.pods import render_outdated
from rollout_operator.planning.rollout.readiness import Readiness
from rollout_operator.planning.wording import cut

# Of a thousand pods that go at once a person reads no more than the first few.
MOST_STEPS: Final = 20


def list_steps(group: Group, actions: Sequence[Action], turn: Readiness | None) -> tuple[Step, ...]:
    """Return what `actions` do that `group` does not show yet; else the pod that goes next.

    A decision is carried out after it was made: what the caches show of it is done. `turn` is the
    zone whose turn it is.
    """
    untouched = {pod.uid for zone in group.zones for pod in zone.pods if not pod.is_terminating}
    untouched -= group.deletions.keys()
    sets = {zone.sts.uid: zone.sts for zone in group.zones}
    due = (step for action in actions for step in _list_due(action, untouched, sets))
    return tuple(islice(due, MOST_STEPS)) or _list_next(turn)


def _list_due(action: Action, untouched: set[Uid], sets: dict[Uid, StatefulSet]) -> Iterator[Step]:
    zone = action.zone.name
    match action:
        case ReplacePods(going=going):
            for replacement in going:
                if replacement.pod.uid in untouched:
                    text = cut(replacement.reason.text)
                    yield Step(
                        code=replacement.reason.code, text=text, zone=zone, pod=replacement.pod.name
                    )
        case RecordRevision(revision=revision, reason=reason):
            sts = sets.get(action.zone.uid)
            if sts is not None and sts.current_revision != revision:
                yield Step(code=reason.code, text=cut(reason.text), zone=zone)
        case _:
            assert_never(action)


def _list_next(turn: Readiness | None) -> tuple[Step, ...]:
    """Return the lowest outdated pod of a zone that stands: it goes when there is room."""
    if turn is None:
        return ()
    sts = turn.sts
    pod = next((pod for pod in turn.standing if pod.revision != sts.update_revision), None)
    if pod is None:
        return ()
    text = cut(render_outdated(pod, sts))
    return (Step(code=Code.POD_OUTDATED, text=text, zone=sts.name, pod=pod.name, is_waiting=True),)
