"""The commands of stories of what watches tell: of zones that left, and of pods that are new.

Steps stand between commas, and what is known after the last one is shown. `a-3` is pod 3 of zone a.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from rollout_operator.guards.departed import BUDGET, COUNTS_FOR, GROUP, LATEST, DepartedZones
from rollout_operator.guards.newcomers import (
    FORGOTTEN,
    LONGEST_GAP,
    MOST_NAMES,
    SETTLING,
    SeenNewcomers,
)
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.names import GROUP_LABEL, PREPARE_DOWNSCALE, Uid
from rollout_operator.model.objects import Deletion, Newcomers, Pod, StatefulSet, Unreadable, Zone
from rollout_operator.planning.readiness import measure_readiness
from tests.builders import NOW, pod, sts, unreadable
from tests.fakes_clock import FakeClock
from tests.stories import Stage

MOMENT: Final = timedelta(seconds=1)
GAPS: Final = {"gap": LONGEST_GAP + MOMENT, "longest": LONGEST_GAP, "at-once": timedelta(0)}
GROUPS: Final = tuple((GROUP, name) for name in ("ingester", "other"))
LABELS: Final[dict[str, dict[str, str]]] = {
    "none": {},
    "other": {GROUP_LABEL: "other"},
    "back": {GROUP_LABEL: "ingester"},
    "on": {PREPARE_DOWNSCALE: "true"},
}
SPANS: Final = {
    "moment": MOMENT, "lag": LATEST, "end": COUNTS_FOR, "settling": SETTLING,
    "settling-": SETTLING - MOMENT, "hour": FORGOTTEN, "hour-": FORGOTTEN - MOMENT,
}  # fmt: skip
SELECTED: Final = {"name": "zone-a", GROUP_LABEL: "ingester"}


class WatchedStage(Stage):
    """Stores as informers fill them; a subclass is told of each change."""

    def __init__(self, pods: PodStore | None = None) -> None:
        self.sets, self.clock = StatefulSetStore(), FakeClock()
        self.pods = PodStore() if pods is None else pods
        self.version = 1

    async def act(self, command: str) -> str:
        """Play the steps; `hour?` is a second less than an hour, and an hour."""
        if "hour?" in command:
            both = [command.replace("hour?", span) for span in ("hour-", "hour")]
            return "; ".join([await type(self)().act(one) for one in both])
        said = [await super(WatchedStage, self).act(step) for step in command.split(", ")]
        return ", ".join(filter(None, said)) or self.outline()

    def outline(self) -> str:
        raise NotImplementedError

    def on_set(self, old: Any, new: Any) -> None:
        raise NotImplementedError

    def on_pod(self, old: Any, new: Any) -> None:
        raise NotImplementedError

    def on_list(self, gap: timedelta) -> None:
        raise NotImplementedError

    def next(self) -> str:
        self.version += 1
        return f"{self.version}"

    @property
    def held(self) -> StatefulSet:
        found = self.sets.get("test", "zone-a")
        assert isinstance(found, StatefulSet)
        return found

    @property
    def listed(self) -> list[Pod]:
        return [one for one in self.pods.list_all() if isinstance(one, Pod)]

    def find(self, ordinal: str) -> Pod:
        found = self.pods.get("test", f"zone-a-{ordinal}")
        assert isinstance(found, Pod)
        return found

    def show(self, item: StatefulSet | Unreadable) -> None:
        """Report a StatefulSet as the watch does."""
        self.tell_sets(self.sets.upsert(item))

    def tell_sets(self, changes: Iterable[Any]) -> None:
        for old, new in changes:
            self.on_set(old, new)

    def tell_pods(self, changes: Iterable[Any]) -> None:
        for old, new in changes:
            self.on_pod(old, new)

    def put(self, one: Pod, version: str = "") -> None:
        """Report a pod as the watch does, in its next version where no other is given."""
        self.tell_pods(self.pods.upsert(replace(one, resource_version=version or self.next())))

    def remove_set(self, last: StatefulSet | Unreadable) -> None:
        self.tell_sets(self.sets.remove(replace(last, resource_version=self.next())))

    def remove_pod(self, ordinal: str, version: str = "") -> None:
        last = self.pods.get("test", f"zone-a-{ordinal}")
        assert last is not None
        self.tell_pods(self.pods.remove(replace(last, resource_version=version or self.next())))

    def list_sets(self, found: Iterable[StatefulSet], gap: timedelta) -> None:
        changes = self.sets.replace_all([*found])
        self.on_list(gap)
        self.tell_sets(changes)

    def list_pods(self, found: Iterable[Pod], gap: timedelta) -> None:
        changes = self.pods.replace_all([*found])
        self.on_list(gap)
        self.tell_pods(changes)

    async def do_wait(self, seconds: float | str) -> None:
        assert isinstance(seconds, str)
        self.clock.jump(SPANS[seconds])


class DepartedStage(WatchedStage):
    """Zone a of three pods at version 10; what counts in each group, by pods that are up."""

    def __init__(self, pods: PodStore | None = None) -> None:
        super().__init__(pods)
        self.going: dict[Uid, Deletion] = {}
        self.newcomers: Newcomers | None = None
        self.age = timedelta(0)
        self.seen = 10
        """The newest version that the watch of pods has told of."""
        self.listed_from: str | None = None
        self.woken: list[str] = []
        self.departed = self.restart()
        self.version = 10
        self.show(sts("a", resource_version="10"))
        for ordinal in range(3):
            self.place(f"{ordinal}")
        self.version = 20

    def restart(self) -> DepartedZones:
        """Return what another process would have in its memory: nothing."""
        self.departed = DepartedZones(
            self.sets,
            self.pods,
            self.clock,
            map_going=lambda owners, pods, now: self.going,
            now=lambda: NOW,
            age=lambda: self.age,
            seen=lambda: str(self.seen),
            listed_from=lambda: self.listed_from,
            find_newcomers=lambda uid: self.newcomers,
        )
        self.departed.on_change(GROUP, self.woken.append)
        return self.departed

    def on_set(self, old: Any, new: Any) -> None:
        self.departed.on_set(old, new)

    def on_pod(self, old: Any, new: Any) -> None:
        self.departed.on_pod(old, new)

    def on_list(self, gap: timedelta) -> None:
        return

    def place(self, ordinal: str, state: str = "l", version: str = "", **changes: object) -> None:
        made = pod("a", int(ordinal), state, **{"labels": SELECTED, **changes})
        self.seen = max(self.seen, int(version or self.version + 1))
        self.put(made, version)

    def outline(self) -> str:
        """Return what is remembered, such as `ingester 2/3 600s`; groups without are left out."""
        self.seen = self.version  # the watch has come so far: nothing is unproven
        return self.render(*GROUPS) or "none"

    def render(self, *scopes: Any, read: Any = None) -> str:
        return ", ".join(
            f"{scope[1]} {self._measure(zone)}"
            for scope in scopes
            for zone in self.departed.list_zones(scope, read)
        )

    def _measure(self, zone: Zone) -> str:
        assert zone.counts_for is not None
        seen = measure_readiness(zone, self.going, NOW)
        name = "" if zone.sts.name == "zone-a" else f"{zone.sts.name} "
        up = seen.used - seen.unavailable
        return f"{name}{up}/{seen.used} {zone.counts_for.total_seconds():g}s"

    async def do_read(self, *owners: str) -> str:
        """Show what counts by a live read: three pods that are up, of each of these owners."""
        read = {
            None if owner == "none" else Uid(f"uid-{owner}"): [
                pod("a" if owner == "none" else owner, at, owner_uid=None, labels=SELECTED)
                for at in range(3 if owner == "none" else 1)
            ]
            for owner in owners
        }
        return self.render(GROUPS[0], read=read) or "none"

    async def do_cached(self) -> str:
        """Show what counts for all that caches know."""
        return self.render(GROUPS[0]) or "none"

    async def do_woken(self) -> str:
        """Show which groups were woken, and forget it."""
        found, self.woken[:] = " ".join(dict.fromkeys(self.woken)), []
        return f"woken {found or 'none'}"

    async def do_down(self, ordinal: str, version: str = "") -> None:
        self.place(ordinal, "L", version)

    async def do_up(self, ordinal: str, version: str = "") -> None:
        self.place(ordinal, "l", version)

    async def do_going(self, ordinal: str, version: str = "") -> None:
        self.place(ordinal, "T", version)

    async def do_gone(self, ordinal: str, version: str = "") -> None:
        self.remove_pod(ordinal, version)

    async def do_alien(self, ordinal: str, owner: str = "") -> None:
        """Have a pod of that name come that is none of the zone."""
        labels = SELECTED if owner else {}
        self.place(ordinal, owner_uid=Uid(owner) if owner else None, labels=labels)

    async def do_orphan(self, *ordinals: str) -> None:
        for ordinal in ordinals or "012":
            held = self.pods.get("test", f"zone-a-{ordinal}")
            is_up = isinstance(held, Pod) and held.is_ready
            self.place(ordinal, "l" if is_up else "L", owner_uid=None)

    async def do_adopt(self) -> None:
        for ordinal in "012":
            self.place(ordinal, owner_uid=Uid("uid-new"))

    def change(self, **changes: object) -> None:
        self.show(replace(self.held, resource_version=self.next(), **changes))

    async def do_label(self, word: str) -> None:
        self.change(labels=LABELS[word])

    async def do_scale(self, replicas: str) -> None:
        self.change(replicas=int(replicas))

    async def do_status(self, ready: str) -> None:
        self.change(ready_replicas=int(ready))

    async def do_terminate(self) -> None:
        self.change(is_terminating=True)

    async def do_spoil(self, word: str = "back") -> None:
        lost = replace(unreadable("StatefulSet", "zone-a"), uid=Uid("uid-a"), labels=LABELS[word])
        self.show(replace(lost, resource_version=self.next()))

    async def do_delete(self) -> None:
        old = self.sets.get("test", "zone-a")
        assert old is not None
        self.remove_set(old)

    async def do_relist(self, new: str = "") -> None:
        self.list_sets([replace(self.held, uid=Uid("uid-new"))] if new else [], GAPS["gap"])

    async def do_gap(self, how: str, ordinal: str) -> None:
        """Report by a list, after a gap in the watch, that a pod is gone, or is down."""
        pods = {one.name: one for one in self.listed}
        last = pods.pop(f"zone-a-{ordinal}")
        if how == "down":
            pods[last.name] = replace(last, is_ready=False, resource_version=self.next())
        self.listed_from = str(self.seen)
        self.list_pods(pods.values(), GAPS["gap"])
        self.listed_from = None

    async def do_create(self, word: str = "back", ready: str = "3") -> None:
        made = sts("a", uid=Uid("uid-new"), labels=LABELS[word], ready_replicas=int(ready))
        self.show(replace(made, resource_version=self.next()))

    async def do_accepted(self, ordinal: str) -> None:
        self.going[Uid(f"uid-a-{ordinal}")] = Deletion.ACCEPTED

    async def do_follow(self, *words: str) -> None:
        """Have zone b, which is whole, get one label after another, or be deleted and renewed."""
        moved = sts("b", 0, resource_version=self.next())
        self.show(moved)
        for word in words:
            if word in SPANS:
                self.clock.jump(SPANS[word])
            elif word == "delete":
                self.remove_set(moved)
                moved = replace(moved, uid=Uid("uid-b-new"))
            else:
                moved = replace(moved, labels=LABELS[word], resource_version=self.next())
                self.show(moved)

    async def do_begins(self) -> None:
        """Have zone b, which is whole, be on its way out; it has gone with `ends`."""
        self.ending = sts("b", 0, resource_version=self.next())
        self.show(self.ending)
        self.show(replace(self.ending, is_terminating=True, resource_version=self.next()))

    async def do_ends(self) -> None:
        self.remove_set(replace(self.ending, is_terminating=True))

    async def do_selector(self, version: str) -> str:
        """Have a selector change at this version of which no label tells; show how many left."""
        self.departed.add_kind(BUDGET, list, lambda name, sts: False)
        self.departed.on_selector((BUDGET, "store"), lambda labels: True, None, version)
        return ""

    async def do_left(self) -> str:
        return f"{len(self.departed.list_zones((BUDGET, 'store')))} left"

    async def do_newcomers(self, used: str) -> None:
        pods = frozenset(Uid(f"uid-a-{ordinal}") for ordinal in range(int(used), 3))
        self.newcomers = Newcomers(used=int(used), generation=1, pods=pods)

    async def do_restart(self) -> None:
        self.restart().begin()

    async def do_bookmark(self) -> None:
        """Have the watch of pods tell that it has come so far."""
        self.seen = int(self.next())

    async def do_blind(self) -> None:
        self.age = timedelta(minutes=2)


class NewcomerStage(WatchedStage):
    """Zone a of three, watched for an hour; how many places are used, and by which new pods.

    The pod whose ordinal is followed by `x` has another UID, `x`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._begin(3)

    def _begin(self, replicas: int, word: str = "on") -> None:
        self.sets, self.pods = StatefulSetStore(), PodStore()
        self.arrivals = SeenNewcomers(self.sets, self.pods, self.clock)
        self.sts = sts("a", replicas, labels=LABELS[word], generation=1)
        self.list_sets([self.sts], timedelta.max)
        self.list_pods([pod("a", ordinal, "l") for ordinal in range(replicas)], timedelta.max)
        self.clock.jump(FORGOTTEN)

    def on_set(self, old: Any, new: Any) -> None:
        self.arrivals.on_set(old, new)

    def on_pod(self, old: Any, new: Any) -> None:
        self.arrivals.on_pod(old, new)

    def on_list(self, gap: timedelta) -> None:
        self.arrivals.on_list(gap)

    def outline(self) -> str:
        known = self.arrivals.get(self.sts.uid)
        if known is None:
            return "none"
        new = " ".join(sorted(uid.removeprefix("uid-a-") for uid in known.pods))
        return f"{min(known.used, self.sts.replicas)} used" + f", new {new}" * bool(new)

    async def do_settles(self) -> str:
        """Show in how long what is known counts."""
        known = self.arrivals.get(self.sts.uid)
        assert known is not None
        return f"in {known.settles_in.total_seconds():g}s"

    async def do_zone(self, replicas: str, word: str = "on") -> None:
        """Begin with a zone of so many, with a label."""
        self._begin(int(replicas), word)

    async def do_name(self, name: str) -> None:
        """Have the next set that is created be of this name."""
        self.sts = replace(self.sts, name=name)

    async def do_scale(self, replicas: str) -> None:
        self._change(replicas=int(replicas), generation=self.sts.generation + 1)

    def _change(self, **changes: object) -> None:
        self.sts = replace(self.sts, resource_version=self.next(), **changes)
        self.show(self.sts)

    async def do_change(self, *words: str) -> None:
        """Change the set, and have the watch bring it."""
        self._change(**_read_changes(words))

    async def do_gap(self, *words: str, gap: str = "gap") -> None:
        """Change the set, and have a list bring it."""
        self.sts = replace(self.sts, resource_version=self.next(), **_read_changes(words))
        self.list_sets([self.sts], GAPS[gap])

    async def do_instant(self, *words: str) -> None:
        """Do the same with a list right after the stream."""
        await self.do_gap(*words, gap="at-once")

    async def do_labels(self, word: str) -> None:
        self._change(labels=LABELS[word])

    async def do_new(self, *words: str) -> None:
        for word in words:
            uid = {"uid": "x"} if word.endswith("x") else {}
            self.put(_make_new(word.rstrip("x"), owner_uid=self.sts.uid, **uid))

    async def do_foreign(self, ordinal: str) -> None:
        """Have a pod come that another object owns."""
        self.put(_make_new(ordinal, owner_uid="stranger"))

    async def do_stuck(self, ordinal: str) -> None:
        self.put(_make_new(ordinal, why_not_ready="Unschedulable"))

    async def do_blur(self, ordinal: str) -> None:
        """Have an event of a new pod come that cannot be decoded."""
        lost = unreadable("Pod", f"zone-a-{ordinal}", owner="a")
        self.on_pod(_make_new(ordinal), replace(lost, uid=Uid(f"uid-a-{ordinal}")))

    async def do_ready(self, ordinal: str) -> None:
        self.put(pod("a", int(ordinal), "l"))

    async def do_going(self, ordinal: str) -> None:
        self.put(pod("a", int(ordinal), "t"))

    async def do_remove(self, *ordinals: str) -> None:
        for ordinal in ordinals:
            self.remove_pod(ordinal)

    async def do_return(self, span: str) -> None:
        """Have all pods but the first go, and a time later zone and last pod come again."""
        await self.do_remove(*(end for one in self.listed if (end := one.name[7:]) > "0"))
        await self.do_wait(span)
        await self.do_scale("3")
        await self.do_new("2x")

    async def do_list(self, what: str, gap: str = "gap", swapped: str = "") -> None:
        """Have a list bring `sets`, `pods`, or `none`; another pod in the place of one."""
        if what != "pods":
            self.list_sets([self.sts] if what == "sets" else [], GAPS[gap])
        else:
            is_other = f"zone-a-{swapped}"
            pods = [replace(one, uid="y") if one.name == is_other else one for one in self.listed]
            self.list_pods(pods, GAPS[gap])

    async def do_spoil(self) -> None:
        """Have an event of the set come that cannot be decoded."""
        self.show(self._spoilt())

    def _spoilt(self) -> Unreadable:
        found = unreadable("StatefulSet", self.sts.name)
        return replace(found, uid=self.sts.uid, resource_version=self.next())

    async def do_delete(self, spoilt: str = "") -> None:
        """Delete the set; the event shows its last state, or that it cannot be decoded."""
        self.remove_set(self._spoilt() if spoilt else self.sts)

    async def do_create(self, replicas: str) -> None:
        """Create a set of that name anew."""
        self._change(uid=Uid("anew"), generation=1, replicas=int(replicas))

    async def do_renew(self) -> None:
        self.sts = replace(self.sts, uid=Uid("anew"), generation=2, replicas=1)

    async def do_restart(self) -> None:
        """Begin anew with nothing but what the stores show."""
        self.arrivals = SeenNewcomers(self.sets, self.pods, self.clock)
        self.list_sets([self.sts], timedelta.max)

    async def do_own(self, owner: str) -> None:
        """Have all pods be without owner, as after `--cascade=orphan`, or by the set."""
        if owner == "none":
            await self.do_delete()
        for one in self.listed:
            self.put(replace(one, owner_uid=self.sts.uid if owner == "set" else None))

    async def do_unnamed(self) -> None:
        """Have an event come of an object without a name."""
        self.on_set(None, unreadable("StatefulSet", ""))

    async def do_crowd(self) -> None:
        """Have as many other sets come and go as there is memory for."""
        for number in range(MOST_NAMES):
            stranger = sts("b", 1, name=f"crowd-{number}", uid=f"crowd-{number}")
            self.on_set(None, stranger)
            self.on_set(stranger, None)


def _make_new(ordinal: str, **changes: object) -> Pod:
    return pod("a", int(ordinal), "L", phase="Pending", **changes)


def _read_changes(words: Iterable[str]) -> dict[str, Any]:
    pairs = [word.split("=") for word in words]
    return {key: int(text) if text.isdigit() else text for key, text in pairs}
