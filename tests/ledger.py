"""A ledger of downscales with a clock that a test moves, and what it reported."""

from datetime import timedelta
from typing import Final

from rollout_operator.guards.downscales import DownscaleReservation, Downscales, ReservationState
from rollout_operator.guards.prepared_pods import DueCancel, PreparedPod
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Key, Target
from tests.builders import sts, sts_uid
from tests.fakes_clock import EPOCH, FakeClock

SECOND: Final = timedelta(seconds=1)
NONE: Final = timedelta(0)
INGESTER: Final = GroupName("ingester")
A: Final = sts_uid("a")
B: Final = sts_uid("b")
TARGET: Final = Target(port=8080, path="ingester/prepare", service="ingester")


class Bench:
    """A ledger, its clock, and what it reported."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.downscales = Downscales(self.clock, late_calls=10 * SECOND)
        self.called: list[tuple[Uid, GroupName | None]] = []
        self.downscales.on_change(lambda uid, group: self.called.append((uid, group)))

    def begin(
        self, letter: str = "a", *, start: int = 3, end: int = 1, pods: str = "12"
    ) -> DownscaleReservation:
        return self.downscales.begin(sts(letter), key(letter, start, end), EPOCH, named(pods))

    def open(
        self, letter: str = "a", *, start: int = 3, end: int = 1, pods: str = "12"
    ) -> DownscaleReservation:
        reservation = self.begin(letter, start=start, end=end, pods=pods)
        self.downscales.allow(reservation)
        return reservation

    def underway(self, but: Uid | None = None, group: GroupName | None = INGESTER) -> str:
        found = self.downscales.find_underway(group, but=but)
        return found.zone if found else ""

    def due(self, uid: Uid = A) -> dict[str, timedelta]:
        return {
            entry.pod: entry.due for entry in self.downscales.backlog.map_due_cancels(uid).values()
        }

    def assert_is_empty(self) -> None:
        assert self.downscales.list_sets() == []
        assert not any(self.downscales.remembers(sts_uid(letter)) for letter in "abc")
        assert self.downscales.backlog.count() == 0
        assert all(self.downscales.count(stage) == 0 for stage in ReservationState)
        assert self.underway() == ""


def key(letter: str, start: int = 3, end: int = 1, target: Target | None = TARGET) -> Key:
    return Key(set_uid=sts_uid(letter), replicas_from=start, replicas_to=end, target=target)


def named(ordinals: str) -> list[tuple[Uid, str]]:
    return [(Uid(f"uid-{ordinal}"), f"pod-{ordinal}") for ordinal in ordinals]


def uids(ordinals: str) -> list[Uid]:
    return [uid for uid, _ in named(ordinals)]


def called(ordinals: str, target: Target | None = TARGET) -> dict[Uid, PreparedPod]:
    return {uid: PreparedPod(pod, target) for uid, pod in named(ordinals)}


def waiting(ordinals: str, target: Target | None = TARGET) -> list[DueCancel]:
    return [DueCancel(uid, target) for uid in uids(ordinals)]
