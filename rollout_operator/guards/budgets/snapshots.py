"""What the gate decides on: budgets, sets and pods as the caches show them, or pods read live."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rollout_operator.guards.budgets.refusals import refuse
from rollout_operator.guards.budgets.request import ArbiterContext, DisruptionRequest, Reservation
from rollout_operator.model.budget import Budget, selects
from rollout_operator.model.downscale import Underway
from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets.rule import (
    Refusal,
    Scene,
    choose_budget,
    refuse_stale_view,
)
from rollout_operator.planning.rollout.zones import VIEW_LIMIT


class Scenes:
    """Scenes of one process."""

    def __init__(self, parts: ArbiterContext) -> None:
        self._parts = parts

    def choose(self, ask: DisruptionRequest) -> Budget | Refusal | None:
        """Return the budget that rules over a pod, None where none does."""
        lack = self._parts.find_lack(ask.engine)
        if lack is not None:
            return refuse(Code.BUDGETS_NOT_READ, f"the budgets are not known yet: {lack}")
        choice = choose_budget(self._parts.budgets.find(ask.pod.labels), ask.pod.name)
        # A pod that no budget selects as far as we know is let go only where we know enough.
        return refuse_stale_view() if choice is None and self._parts.age() > VIEW_LIMIT else choice

    def observe(self, budget: Budget, ask: DisruptionRequest) -> Scene:
        """Return what the caches show; nothing may be awaited until it has been decided on."""
        scene, sets = self._outline(budget, ask)
        return self._fill(
            scene, sets, {one.uid: self._parts.pods.list_by_owner(one.uid) for one in sets}
        )

    def _outline(
        self, budget: Budget, ask: DisruptionRequest
    ) -> tuple[Scene, Sequence[StatefulSet]]:
        """Return the scene of a budget without its pods, and the sets that they belong to."""
        parts = self._parts
        sets = [one for one in parts.sets.list_all() if selects(budget.selector, one.labels)]
        readable = [one for one in sets if isinstance(one, StatefulSet)]
        scene = Scene(
            budget=budget,
            pod=ask.pod,
            owner=ask.pod.owner_uid or Uid(""),
            zones=(),
            now=parts.now(),
            deletions={},
            engine=ask.engine,
            # ROLL-36
            override=min(ask.limit, 1) if budget.by_partition else ask.limit,
            downscale=_find_first(parts.find_downscale, readable),
            view_age=parts.age(),
            unreadable=tuple(one for one in sets if isinstance(one, Unreadable)),
        )
        return scene, readable

    def _fill(
        self,
        scene: Scene,
        sets: Sequence[StatefulSet],
        pods: Mapping[Uid, Sequence[Pod | Unreadable]],
    ) -> Scene:
        zones = tuple(
            Zone(
                sts=one,
                pods=tuple(pod for pod in pods[one.uid] if isinstance(pod, Pod)),
                unreadable_pods=tuple(pod for pod in pods[one.uid] if isinstance(pod, Unreadable)),
                newcomers=self._parts.find_newcomers(one.uid),
            )
            for one in sets
        )
        listed = (pod for zone in zones for pod in zone.pods)
        going = self._parts.pending.list_going(pods.keys(), listed, scene.now)
        return replace(scene, zones=zones, deletions=going)

    async def look(self, reserved: Reservation, group: Group | None) -> tuple[Scene, Pod | None]:
        """Return what holds now, with live pods, and the pod itself where it is still untouched."""
        ask = reserved.ask
        scene, zones = self._outline(reserved.budget, ask)
        sets = self._list_sets(scene, zones)
        live = {} if group is None else {zone.sts.uid: zone for zone in group.zones}
        if all(one.uid in live for one in sets):
            found = [pod for zone in live.values() for pod in _list_pods(zone)]
        else:
            live, found = {}, list(await self._parts.reader.fetch_pods(sets))
        seen = next((one for one in found if one.uid == ask.pod.uid), None)
        if not isinstance(seen, Pod) or seen.is_terminating:
            seen = None
        # Since it was decided for the first time, all but the pods may have changed as well.
        ask = replace(ask, pod=seen or ask.pod)
        choice = self.choose(ask)
        budget = choice if isinstance(choice, Budget) else reserved.budget
        scene, zones = self._outline(budget, ask)
        # Pods of a set that was not read are missing, and count as down.
        pods: dict[Uid, list[Pod | Unreadable]] = {one.uid: [] for one in zones}
        for pod in found:
            if pod.owner_uid in pods:
                pods[pod.owner_uid].append(pod)
        zones = [live[one.uid].sts if one.uid in live else one for one in zones]
        scene = self._fill(scene, zones, pods)
        # Without its own record the pod is one like the others, and what refuses it refuses them.
        going = {uid: how for uid, how in scene.deletions.items() if uid != ask.pod.uid}
        return replace(scene, deletions=going), seen

    def _list_sets(self, scene: Scene, zones: Sequence[StatefulSet]) -> Sequence[StatefulSet]:
        """Return the sets whose pods are looked at: the pod's own may be none of the zones."""
        sets = {one.uid: one for one in zones}
        if scene.owner not in sets:
            for one in self._parts.sets.list_all():
                if isinstance(one, StatefulSet) and one.uid == scene.owner:
                    sets[one.uid] = one
        return tuple(sets.values())


def _list_pods(zone: Zone) -> Sequence[Pod | Unreadable]:
    return (*zone.pods, *zone.unreadable_pods)


def _find_first(
    find: Callable[[GroupName], Underway | None], sets: Sequence[StatefulSet]
) -> Underway | None:
    groups = dict.fromkeys(one.group for one in sets if one.group is not None)
    return next((found for group in groups if (found := find(group)) is not None), None)
