"""The commands of stories of what a process remembers of pods that go, and what it writes on them.

Pods are those of a cache: a-0, a-1 and b-0 at first.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.guards.grants import (
    Grant,
    InFlight,
    OwnDeletes,
    Recorder,
    is_recorded,
    read_record,
)
from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.kube.store import PodStore
from rollout_operator.model.budget import DisruptionSource, Record
from rollout_operator.model.names import DISRUPTION_RECORD, ApiError, InvalidInput, Uid
from rollout_operator.model.objects import Deletion, Pod, Unreadable
from tests import stories
from tests.builders import pod, sts_uid, unreadable
from tests.fakes_clock import FakeClock
from tests.web.client_stage import ERRORS

NAMES: Final = ("a-0", "a-1", "b-0")
KEY: Final = DISRUPTION_RECORD.replace("/", "~1")


class _Patches:
    """A client that keeps what it is given; the next call may fail."""

    def __init__(self) -> None:
        self.given: list[JsonObject | Sequence[JsonObject]] = []
        self.error: ApiError | None = None

    async def wait_turn_to_patch(self, resource: Resource, namespace: str, name: str) -> None:
        """Wait for nothing."""

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        *rest: object,
        **how: object,
    ) -> bytes:
        assert (resource.plural, namespace) == ("pods", "test")
        self.given.append(patch)
        if self.error is not None:
            raise self.error
        return b"{}"


class MemoryStage(stories.Steps):
    """An empty memory of process x."""

    def __init__(self) -> None:
        self.cache, self.clock, self.client = PodStore(), FakeClock(), _Patches()
        self.deletes = OwnDeletes(self.cache, self.clock)
        self.in_flight = InFlight(self.cache, self.deletes, self.clock)
        self.recorder = Recorder(self.client, self.clock, "x")
        self.pods = {name: pod(name[0], int(name[2:])) for name in NAMES}
        self.cache.replace_all(self.pods.values())
        self.grants: dict[str, Grant] = {}

    def look(self) -> list[str]:
        given, self.client.given = self.client.given, []
        if given:
            self.last = json.dumps(given[-1]).replace(DISRUPTION_RECORD, "R").replace(KEY, "R")
        return ["merge" if isinstance(one, dict) else "steps" for one in given]

    async def do_patch(self) -> str:
        """Show the last patch as it was sent."""
        return self.last

    async def do_wait(self, seconds: float) -> None:
        self.clock.jump(timedelta(seconds=seconds))

    # Pods

    async def do_show(self, name: str, how: str = "") -> None:
        """Have the cache show a pod: `terminating`, `new`, `unreadable`, or as ever."""
        one = self.pods.get(name) or pod(name[0], int(name[2:]))
        self.pods[name] = one
        if how == "unreadable":
            self._put(replace(unreadable("Pod", one.name, owner=name[0]), uid=one.uid))
        else:
            uid = Uid("new") if how == "new" else one.uid
            self._put(replace(one, uid=uid, is_terminating=how == "terminating"))

    def _put(self, shown: Pod | Unreadable) -> None:
        others = (one for one in self.cache.list_all() if one.name != shown.name)
        self.cache.replace_all([shown, *others])

    async def do_gone(self, name: str) -> None:
        kept = [one for one in self.cache.list_all() if one.name != self.pods[name].name]
        self.cache.replace_all(kept)

    async def do_record(self, name: str, *words: str) -> str:
        """Have the cache show a record of y: `age=119`, `uid=other`, `text=`; show if it counts."""
        how = stories.read_words(words)
        one = self.pods[name]
        at = self.clock.now() - timedelta(seconds=float(how.get("age", 1)))
        record = Record(uid=Uid(how.get("uid", one.uid)), by="y", at=at)
        text = how.get("text", msgspec.json.encode(record).decode())
        shown = replace(one, disruption=text)
        self.pods[name] = shown
        self._put(shown)
        try:
            read = read_record(shown)
            said = "none of its own" if read is None else f"by {read.by}"
        except InvalidInput as error:
            said = str(error)
        return f"{said}, {'counts' if is_recorded(shown, self.clock.now()) else 'does not count'}"

    async def do_going(self, letters: str) -> str:
        """Show what goes of zones."""
        shown = [one for one in self.cache.list_all() if isinstance(one, Pod)]
        going = self.in_flight.map_going(
            {sts_uid(letter) for letter in letters},
            [one for one in shown if one.name[-3] in letters],
            self.clock.now(),
        )
        return _describe(going)

    # Own deletes

    async def do_begin(self, name: str) -> None:
        self.deletes.begin(self.pods[name])

    async def do_accept(self, name: str) -> None:
        self.deletes.accept(self.pods[name])

    async def do_refuse(self, name: str) -> None:
        self.deletes.refuse(self.pods[name])

    async def do_deletes(self, letter: str) -> str:
        """Show the deletes of a zone, and for how long the cache has lacked an accepted one."""
        owners = {sts_uid(letter)}
        found = [_describe(self.deletes.map_deletions(owners))]
        found += [
            f"may {'' if self.deletes.may_still_commit(own) else 'not '}commit"
            for own in self.deletes.list_unknown(owners)
        ]
        unseen = self.deletes.longest_unseen(owners).total_seconds()
        return ", ".join([*found, *[f"unseen for {unseen:g}s"] * bool(unseen)])

    # What is written

    async def do_fail(self, error: str = "") -> None:
        """Have calls fail, until there is no error."""
        self.client.error = ERRORS[error] if error else None

    async def do_write(self, name: str, engine: str = "rollout") -> str:
        """Record a new grant."""
        self.grants[name] = Grant(
            pod=replace(self.pods[name], resource_version="7"), engine=DisruptionSource(engine),
            budget="ingester", begun=self.clock.elapsed(),
        )  # fmt: skip
        grant = self.grants[name]
        try:
            record = await self.recorder.write(grant, self.clock.now)
        except ApiError as error:
            said = f"{type(error).__name__}"
        else:
            said = "written" if record else "not written"
            assert not record or msgspec.json.decode(grant.record, type=Record) == record
        left = "a record" if grant.record else "no record"
        return f"{said}, {left}{', forbidden' * self.recorder.is_forbidden}"

    async def do_remove(self, name: str) -> str:
        """Remove the record of a grant."""
        return "gone" if await self.recorder.remove(self.grants[name]) else "may be there"

    async def do_clear(self, name: str) -> str:
        """Remove whatever record a pod has."""
        try:
            await self.recorder.clear(self.pods[name])
        except ApiError as error:
            return type(error).__name__
        return "cleared"


def _join(uids: Sequence[Uid]) -> str:
    return " ".join(uid.removeprefix("uid-") for uid in uids) or "none"


def _describe(going: Mapping[Uid, Deletion]) -> str:
    return ", ".join(f"{_join([uid])} {how}" for uid, how in going.items()) or "none"
