"""The commands of stories of what a process remembers of pods that go, and what it writes on them.

They are those of budgets, and what stands below a decision; each patch is shown by its kind.
"""

import json
from collections.abc import Mapping
from typing import Final

import msgspec

from rollout_operator.guards.grants import Grant, Recorder, is_recorded, read_record
from rollout_operator.model.budget import DisruptionSource, Record
from rollout_operator.model.names import DISRUPTION_RECORD, ApiError, InvalidInput, Uid
from rollout_operator.model.objects import Deletion, Pod
from tests.web.budgets.stage import ZONES, BudgetStage, name_of

KEY: Final = DISRUPTION_RECORD.replace("/", "~1")


class MemoryStage(BudgetStage):
    def _start(self, name: str) -> None:
        super()._start(name)
        self.deletes, self.in_flight = self.process.deletes, self.process.in_flight
        self.recorder = Recorder(self.client, self.process.clock, name)
        self.written: dict[str, Grant] = {}

    def look(self) -> list[str]:
        given, self.client.patches = self.client.patches, []
        if given:
            self.last = json.dumps(given[-1]).replace(DISRUPTION_RECORD, "R").replace(KEY, "R")
        return ["merge" if isinstance(one, dict) else "steps" for one in given]

    async def do_patch(self) -> str:
        """Show the last patch as it was sent."""
        return self.last

    async def do_shown(self, pod: str, *words: str) -> str:
        """Have the cache show a record, see `annotate`; show whether it counts."""
        await self.do_annotate(pod, *words)
        await self.do_see()
        shown = self._cached(pod)
        try:
            read = read_record(shown)
            said = "none of its own" if read is None else f"by {read.by}"
        except InvalidInput as error:
            said = str(error)
        counts = is_recorded(shown, self.process.clock.now())
        return f"{said}, {'counts' if counts else 'does not count'}"

    async def do_goes(self, letter: str) -> str:
        owner = _owner(letter)
        pods = [one for one in self.process.pods.list_by_owner(owner) if isinstance(one, Pod)]
        return _describe(self.in_flight.map_going({owner}, pods, self.process.clock.now()))

    # Own deletes

    async def do_send(self, pod: str) -> None:
        self.deletes.begin(self._cached(pod))

    async def do_accept(self, pod: str) -> None:
        self.deletes.accept(self._cached(pod))

    async def do_refuse(self, pod: str) -> None:
        self.deletes.refuse(self._cached(pod))

    async def do_deletes(self, letter: str) -> str:
        """Show the deletes of a zone, and for how long the cache has lacked an accepted one."""
        owners = {_owner(letter)}
        found = [_describe(self.deletes.map_deletions(owners))]
        found += [
            f"may {'' if self.deletes.may_still_commit(own) else 'not '}commit"
            for own in self.deletes.list_unknown(owners)
        ]
        unseen = self.deletes.longest_unseen(owners).total_seconds()
        return ", ".join([*found, *[f"unseen for {unseen:g}s"] * bool(unseen)])

    # What is written

    async def do_write(self, pod: str, engine: str = "rollout") -> str:
        """Record a new grant."""
        self.written[pod] = grant = Grant(
            pod=self._live(pod), engine=DisruptionSource(engine), budget="ingester",
            begun=self.process.clock.elapsed(),
        )  # fmt: skip
        try:
            record = await self.recorder.write(grant, self.process.clock.now)
        except ApiError as error:
            said = f"{type(error).__name__}"
        else:
            said = "written" if record else "not written"
            assert not record or msgspec.json.decode(grant.record, type=Record) == record
        left = "a record" if grant.record else "no record"
        return f"{said}, {left}{', forbidden' * self.recorder.is_forbidden}"

    async def do_remove(self, pod: str) -> str:
        """Remove the record of a grant."""
        return "gone" if await self.recorder.remove(self.written[pod]) else "may be there"

    async def do_clear(self, pod: str) -> str:
        """Remove whatever record a pod has."""
        try:
            await self.recorder.clear(self._live(pod))
        except ApiError as error:
            return type(error).__name__
        return "cleared"


def _owner(letter: str) -> Uid:
    return Uid(f"uid-{name_of(letter)}")


def _describe(going: Mapping[Uid, Deletion]) -> str:
    names = {uid: uid.removeprefix(f"uid-{ZONES}").removesuffix("-old") for uid in going}
    return ", ".join(f"{names[uid]} {how}" for uid, how in going.items()) or "none"
