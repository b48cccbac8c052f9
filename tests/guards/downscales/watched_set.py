"""A StatefulSet and its pods as the watches bring them to `SeenNewcomers`."""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_operator.guards.newcomers import FORGOTTEN, LONGEST_GAP, SETTLING, SeenNewcomers
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.names import GROUP_LABEL, PREPARE_DOWNSCALE, Uid
from rollout_operator.model.objects import Newcomers, Pod, StatefulSet, Unreadable
from tests.builders import pod, sts, unreadable
from tests.fakes_clock import FakeClock

NO_GAP: Final = timedelta(0)
GAP: Final = LONGEST_GAP + timedelta(seconds=1)
MOMENT: Final = timedelta(seconds=1)
SPANS: Final = {"settling": SETTLING, "hour": FORGOTTEN, "hour-": FORGOTTEN - MOMENT}
LABELS: Final = {"on": {PREPARE_DOWNSCALE: "true"}, "off": {}, "other": {GROUP_LABEL: "other"}}


def prepared(replicas: int, **changes: object) -> StatefulSet:
    """Return a set whose downscales are prepared."""
    return sts("a", replicas, labels={PREPARE_DOWNSCALE: "true"}, **changes)


class World:
    """Stores as informers fill them, and what is reported of each change.

    The process has watched for an hour when anything happens: at the start nothing is known.
    `steps` are what happens then: see `play`.
    """

    def __init__(self, replicas: int, pods: str = "", steps: str = "") -> None:
        self.sets, self.pods, self.clock = StatefulSetStore(), PodStore(), FakeClock()
        self.arrivals = SeenNewcomers(self.sets, self.pods, self.clock)
        self._version = 1
        self.sts = prepared(replicas, generation=1)
        self.show_sets(self.sts)
        self.show_pods(*(pod("a", ordinal, state) for ordinal, state in enumerate(pods)))
        self.clock.jump(FORGOTTEN)
        self.play(steps)

    def play(self, steps: str) -> "World":
        """Have things happen one after another, such as `scale 5, new 3, remove 3, new 3x`.

        The pod whose ordinal is followed by `x` has another UID, `x`.
        """
        for step in filter(None, steps.split(", ")):
            verb, *words = step.split()
            match verb:
                case "scale":
                    self.scale(int(words[0]))
                case "new" | "ready" | "going":
                    self._put(verb, words)
                case "remove":
                    for ordinal in words:
                        self.remove(int(ordinal))
                case "wait":
                    self.clock.jump(SPANS[words[0]])
                case "create":
                    self.create(int(words[0]))
                case "delete":
                    self.delete(self.spoilt if words else None)
                case "spoil":
                    self.spoil()
                case "change":
                    self.change(**_read_changes(words))
                case "gap" | "at-once":
                    gap = GAP if verb == "gap" else NO_GAP
                    self.show_changed(gap=gap, **_read_changes(words))
                case "labels":
                    self.change(labels=LABELS[words[0]])
                case "list":
                    self._list(words[0], gap=NO_GAP if words[1:] else GAP)
                case "renew":
                    self.sts = replace(self.sts, uid=Uid("anew"), generation=2, replicas=1)
                case "restart":
                    self.restart()
                case "own":
                    self._own(words[0])
                case _:
                    raise AssertionError(step)
        return self

    def _put(self, state: str, words: list[str]) -> None:
        for word in words:
            ordinal, changes = int(word.rstrip("x")), {"uid": "x"} if word.endswith("x") else {}
            if state == "new":
                self.put(new(ordinal, **{"owner_uid": self.sts.uid, **changes}))
            else:
                self.put(pod("a", ordinal, "l" if state == "ready" else "t", **changes))

    def _own(self, owner: str) -> None:
        """Have all pods be without owner, as after `--cascade=orphan`, or by the set."""
        if owner == "none":
            self.delete()
        for one in self.listed:
            self.put(replace(one, owner_uid=self.sts.uid if owner == "set" else None))

    def _list(self, what: str, *, gap: timedelta) -> None:
        if what == "sets":
            self.show_sets(self.sts, gap=gap)
        else:
            self.show_pods(*self.listed, gap=gap)

    def restart(self) -> None:
        """Begin anew with nothing but what the stores show."""
        self.arrivals = SeenNewcomers(self.sets, self.pods, self.clock)
        self.show_sets(self.sts)

    def scale(self, replicas: int) -> None:
        self.change(replicas=replicas, generation=self.sts.generation + 1)

    def change(self, **changes: object) -> None:
        """Change the set, and have the watch bring it."""
        self.sts = replace(self.sts, resource_version=self._next(), **changes)
        self._upsert(self.sts)

    def spoil(self) -> None:
        """Have an event of the set come that cannot be decoded."""
        self._upsert(self.spoilt)

    @property
    def spoilt(self) -> Unreadable:
        found = unreadable("StatefulSet", self.sts.name)
        return replace(found, uid=self.sts.uid, resource_version=self._next())

    def delete(self, last: Unreadable | None = None) -> None:
        """Delete the set; the event shows its last state, or that it cannot be decoded."""
        end = last or replace(self.sts, resource_version=self._next())
        for old, new in self.sets.remove(end):
            self.arrivals.on_set(old, new)

    def create(self, replicas: int, **changes: object) -> None:
        """Create a set of that name anew."""
        self.change(uid=Uid("anew"), generation=1, replicas=replicas, **changes)

    def _upsert(self, one: StatefulSet | Unreadable) -> None:
        for old, new in self.sets.upsert(one):
            self.arrivals.on_set(old, new)

    def put(self, one: Pod) -> None:
        for old, new in self.pods.upsert(replace(one, resource_version=self._next())):
            self.arrivals.on_pod(old, new)

    def remove(self, ordinal: int) -> None:
        found = self.pods.get("test", f"zone-a-{ordinal}")
        assert isinstance(found, Pod)
        for old, new in self.pods.remove(replace(found, resource_version=self._next())):
            self.arrivals.on_pod(old, new)

    def remove_above(self, ordinal: int) -> None:
        """Have all pods above an ordinal go, as the controller makes them after a downscale."""
        for one in self.listed:
            if (place := int(one.name.rpartition("-")[2])) > ordinal:
                self.remove(place)

    def show_sets(self, *found: StatefulSet, gap: timedelta = timedelta.max) -> None:
        changes = self.sets.replace_all(found)
        self.arrivals.on_list(gap)
        for old, new in changes:
            self.arrivals.on_set(old, new)

    def show_changed(self, *, gap: timedelta, **changes: object) -> None:
        """Change the set, and have a list bring it."""
        self.sts = replace(self.sts, resource_version=self._next(), **changes)
        self.show_sets(self.sts, gap=gap)

    def show_pods(self, *found: Pod, gap: timedelta = timedelta.max) -> None:
        changes = self.pods.replace_all(found)
        self.arrivals.on_list(gap)
        for old, new in changes:
            self.arrivals.on_pod(old, new)

    @property
    def known(self) -> Newcomers:
        found = self.arrivals.get(self.sts.uid)
        assert found is not None
        return found

    @property
    def used(self) -> int:
        """Return how many of the wanted places are used."""
        return min(self.known.used, self.sts.replicas)

    @property
    def seen(self) -> tuple[int, set[str]]:
        return self.used, set(self.known.pods)

    @property
    def listed(self) -> list[Pod]:
        return [one for one in self.pods.list_all() if isinstance(one, Pod)]

    def _next(self) -> str:
        self._version += 1
        return f"{self._version}"


def new(ordinal: int, **changes: object) -> Pod:
    return pod("a", ordinal, "L", phase="Pending", **changes)


def _read_changes(words: list[str]) -> dict[str, object]:
    pairs = [word.split("=") for word in words]
    return {key: int(text) if text.isdigit() else text for key, text in pairs}
