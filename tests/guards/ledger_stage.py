"""The commands of stories of the ledger: sets are letters, pods digits, times are in seconds.

Whatever others may learn of the ledger is shown when it changes, and how often it was reported.
"""

from datetime import datetime, timedelta

from rollout_operator.guards.downscales import DownscaleReservation, Downscales
from rollout_operator.guards.prepared_pods import DueCancel
from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG, GroupName, Uid
from rollout_operator.model.objects import Key, Target
from rollout_operator.model.scaling import TrackerEntry
from tests import stories
from tests.builders import sts, sts_uid
from tests.fakes_clock import EPOCH, FakeClock

GROUP = GroupName("ingester")
TARGET = Target(port=8080, path="ingester/prepare", service="ingester")


class LedgerStage(stories.Steps):
    """An empty ledger of sets a, b and c."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ledger = Downscales(self.clock, late_calls=timedelta(seconds=10))
        self.kept: dict[str, DownscaleReservation] = {}
        self.reports: list[str] = []
        self.ledger.on_change(self._report)
        self.state: dict[str, str] = {}

    def _report(self, uid: Uid, group: GroupName | None) -> None:
        self.reports.append(_short(uid) + (f" of group {group!r}" if group != GROUP else ""))

    def look(self) -> list[str]:
        before, self.state = self.state, self._describe()
        changed = [
            f"{key} {self.state.get(key, 'none')}"
            for key in dict.fromkeys([*before, *self.state])
            if self.state.get(key) != before.get(key)
        ]
        reports, self.reports = self.reports, []
        return [*changed, *[f"reported {' '.join(reports)}"] * bool(reports)]

    def _describe(self) -> dict[str, str]:
        ledger, found = self.ledger, {}
        for letter in "abc":
            uid = sts_uid(letter)
            if one := ledger.get(uid):
                key = one.key
                prepared = f" prepared {_join(one.prepared)}" if one.prepared else ""
                left = ledger.time_left(one).total_seconds()
                found[letter] = (
                    f"{one.state} {key.replicas_from}-{key.replicas_to}"
                    f" pods {_join(one.pods)}{prepared} begun {_seconds(one.begun)} left {left:g}"
                )
            memory = ledger.of(uid)
            if due := memory.backlog.due:
                found[f"due {letter}"] = " ".join(
                    f"{_short(cancel.uid)}@{entry.due.total_seconds():g}"
                    for cancel, entry in sorted(due.items(), key=lambda each: each[0].uid)
                )
                found[f"due {letter}"] += f" of version {memory.backlog.version}"
            if late := memory.unrecorded:
                found[f"unrecorded {letter}"] = _seconds(late.begun)
            if uid in ledger.last.times:
                found[f"last {letter}"] = _seconds(ledger.last.times[uid])
            if entry := memory.entry:
                found[f"entry {letter}"] = f"{entry.text} after {entry.before}"
            unsettled = {key for key in found if key.endswith(letter)} - {f"last {letter}"}
            assert bool(unsettled) == ledger.remembers(uid) == (uid in ledger.list_sets())
        if underway := ledger.find_underway(GROUP):
            other = ledger.find_underway(GROUP, but=sts_uid(underway.zone[-1]))
            found["underway"] = f"{underway.zone} {underway.replicas_from}-{underway.replicas_to}"
            found["underway"] += f" and {other.zone}" if other else ""
        return found

    def _find(self, name: str) -> DownscaleReservation:
        found = self.kept.get(name) or self.ledger.get(sts_uid(name))
        assert found is not None
        return found

    async def do_begin(self, letter: str, span: str, pods: str, *words: str) -> None:
        """Reserve, from and to so many replicas, for pods: `- ` are none."""
        how = dict(word.split("=") for word in words)
        zone = sts(letter, resource_version=how.get("version", "1"))
        self.ledger.begin(
            zone, _key(letter, span), _time(how.get("begun", "0")), _named(letter, pods)
        )

    async def do_adopt(self, letter: str, span: str, pods: str) -> None:
        self.ledger.adopt(sts(letter), _key(letter, span), EPOCH, _named(letter, pods))

    async def do_keep(self, letter: str, name: str) -> None:
        """Give the present reservation a name by which it is known after it was replaced."""
        self.kept[name] = self._find(letter)

    async def do_confirm(self, letter: str, pods: str) -> None:
        self._find(letter).prepared |= {uid for uid, _ in _named(letter, pods)}

    async def do_renew(self, letter: str, pods: str = "") -> None:
        self.ledger.renew(self._find(letter), _named(letter, pods))

    async def do_allow(self, letter: str, at: str = "") -> None:
        self.ledger.allow(self._find(letter), _time(at) if at else None)

    async def do_persist(self, letter: str, at: str) -> None:
        self.ledger.record_persisted(self._find(letter), _time(at))

    async def do_written(self, letter: str, begun: str) -> None:
        self.ledger.record_written(sts_uid(letter), _time(begun))

    async def do_close(self, name: str, pods: str = "", *words: str) -> None:
        """Close, and have pods told that they stay `after` a time, and `again`."""
        how = {key: timedelta(seconds=float(text)) for key, text in (w.split("=") for w in words)}
        un_prepare = [Uid(f"uid-{digit}") for digit in pods]
        self.ledger.close(
            self._find(name),
            un_prepare=un_prepare,
            after=how.get("after", timedelta(0)),
            again=how.get("again"),
        )

    async def do_forget(self, letter: str) -> None:
        self.ledger.forget_set(sts_uid(letter))

    async def do_told(self, letter: str, pods: str) -> None:
        """Have pods confirm that they stay."""
        self.ledger.of(sts_uid(letter)).backlog.record_un_prepared(_due(pods))

    async def do_fail(self, letter: str, pod: str, cause: str) -> None:
        entry = self.ledger.of(sts_uid(letter)).backlog.due[_due(pod)[0]]
        entry.failures += 1
        entry.causes |= {cause}

    async def do_unreached(self) -> str:
        """Show which pods could not be told, and why."""
        return self.ledger.describe_unreached() or "nothing"

    async def do_entry(self, letter: str, written: str, former: str = "") -> None:
        """Have a reservation write an entry of the zone tracker."""
        self._find(letter).entry = TrackerEntry(written, former or None)

    async def do_shown(self, letter: str, at: str, version: str) -> None:
        """Have a version of the set show a time."""
        self.ledger.last.record_shown(sts_uid(letter), _time(at), version)

    async def do_saw(self, letter: str, at: str) -> None:
        self.ledger.last.record(sts_uid(letter), _time(at))

    async def do_unshown(self, letter: str, *versions: str) -> str:
        """Show of which of these versions of the set memory counts."""
        uid = sts_uid(letter)
        seen = (self.ledger.last.map_unshown({uid: version}) for version in versions)
        return " ".join(_seconds(one[uid]) if uid in one else "shown" for one in seen)

    async def do_group(self, letter: str, *labels: str) -> str:
        """Reserve for a set with these labels; show its group, and what a budget or policy sees."""
        keys = {"short": GROUP_LABEL, "long": GROUP_LABEL_LONG}
        pairs = (label.partition("=") for label in labels)
        zone = sts(letter, labels={keys[key]: text for key, _, text in pairs})
        made = self.ledger.begin(zone, _key(letter, "3-1"), EPOCH, [])
        is_underway = self.ledger.find_among([zone]) is not None
        return f"{made.group!r} in {made.namespace}, underway {is_underway}"

    async def do_wait(self, seconds: float) -> None:
        self.clock.jump(timedelta(seconds=seconds))


def _key(letter: str, span: str) -> Key:
    start, _, end = span.partition("-")
    uid = sts_uid(letter)
    return Key(set_uid=uid, replicas_from=int(start), replicas_to=int(end), target=TARGET)


def _named(letter: str, pods: str) -> list[tuple[Uid, str]]:
    return [(Uid(f"uid-{digit}"), f"zone-{letter}-{digit}") for digit in pods.strip("-")]


def _due(pods: str) -> list[DueCancel]:
    return [DueCancel(Uid(f"uid-{digit}"), TARGET) for digit in pods]


def _time(seconds: str) -> datetime:
    return EPOCH + timedelta(seconds=float(seconds))


def _seconds(at: datetime) -> str:
    return f"{(at - EPOCH).total_seconds():g}"


def _short(uid: str) -> str:
    return uid.removeprefix("uid-")


def _join(uids: object) -> str:
    assert isinstance(uids, dict | set)
    return "".join(sorted(map(_short, uids))) or "none"
