"""The commands of stories of locks, marks of downscales, and records on pods."""

import asyncio
import json
from datetime import UTC, timedelta
from typing import Any, Final

from msgspec.structs import replace

from rollout_operator.guards.downscales import Intents
from rollout_operator.guards.prepared_pods import read_downscale_record
from rollout_operator.guards.turns import Locks
from rollout_operator.model.names import DOWNSCALE_INTENT, DOWNSCALE_RECORD, InvalidInput
from rollout_operator.model.objects import DownscaleRecord, Pod, StatefulSet
from tests.builders import NOW, pod, sts
from tests.fakes_clock import FakeClock
from tests.stories import Stage, Steps

ZONE: Final = sts("a", replicas=3)
WHERE: Final = {"port": 8080, "path": "ingester/prepare", "service": "ingester"}
BEGINNING: Final = f"Pod zone-a-4: annotation {DOWNSCALE_RECORD}: "


class LockStage(Steps):
    """Callers that come for locks, and leave when they are told."""

    def __init__(self) -> None:
        self.locks = Locks()
        self.lines: list[str] = []
        self.callers: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}

    def look(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    async def do_come(self, name: str, *keys: str) -> None:
        leave = asyncio.Event()
        task = asyncio.create_task(self._visit(name, keys, leave))
        self.stack.push_async_callback(lambda: asyncio.gather(task, return_exceptions=True))
        self.callers[name] = task, leave
        await self.settle()

    async def _visit(self, name: str, keys: tuple[str, ...], leave: asyncio.Event) -> None:
        held = self.locks.hold_all(keys) if len(keys) > 1 else self.locks.hold(keys[0])
        async with held:
            self.lines.append(f"{name} in")
            await leave.wait()
            self.lines.append(f"{name} out")
            assert name != "faulty"

    async def do_leave(self, name: str) -> None:
        self.callers[name][1].set()
        await self.settle()

    async def do_cancel(self, name: str) -> None:
        self.callers[name][0].cancel()
        await self.settle()


class IntentStage(Steps):
    """Marks of one set, by their texts; `-` is none."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.intents = Intents(self.clock)

    async def do_begin(self, text: str) -> None:
        self.intents.begin(ZONE.uid, text)

    async def do_void(self, text: str) -> None:
        self.intents.record_void(ZONE.uid, text)

    async def do_gone(self, text: str, version: str) -> None:
        self.intents.record_gone(ZONE.uid, text, version)

    async def do_refused(self, text: str) -> str:
        return "first" if self.intents.record_refused(ZONE.uid, text) else "known"

    async def do_forget(self) -> None:
        self.intents.forget(ZONE.uid)

    async def do_see(self, text: str, version: str = "5") -> str:
        """Show what a mark means to others, that it is to be removed, and that it is idle."""
        seen = _mark(text, version)
        found = self.intents.find([seen])
        assert self.intents.find([seen], but=ZONE.uid) is None
        span = f" for {found.left.total_seconds():g}s" if found and found.left is not None else ""
        words = [
            f"may happen{span}" if found else "over",
            "left" * bool(self.intents.list_left([seen])),
            "idle" * self.intents.is_idle(seen),
        ]
        return " ".join(filter(None, words))

    async def do_change(self, before: str, after: str, *replicas: str) -> str:
        """Show whether a change wakes others, one of replicas too."""
        changed = replace(_mark(after), replicas=2) if replicas else _mark(after)
        is_ours = self.intents.concerns_us_only(_mark(before), changed)
        return "silent" if is_ours else "wakes"

    async def do_wait(self, seconds: float) -> None:
        self.clock.jump(timedelta(seconds=seconds))


def _mark(text: str, version: str = "5") -> StatefulSet:
    annotations = {} if text == "-" else {DOWNSCALE_INTENT: text}
    return replace(ZONE, annotations=annotations, resource_version=version)


class RecordStage(Stage):
    """Reads a record that differs from a sound one; `size=9` is the length of the refusal."""

    async def act(self, command: str) -> str:
        try:
            record = read_downscale_record(carry(_write(command)), NOW)
        except InvalidInput as error:
            message = str(error)
            assert message.startswith(BEGINNING)
            assert message.isprintable()
            assert len(message) < 400
            return message.removeprefix(BEGINNING)
        return _render(record)


def carry(text: str) -> Pod:
    return replace(pod("a", 4, "l"), downscale_record=text)


def make_record(
    start: object = 5, end: object = 3, at: object = "2026-01-01T12:00:00Z", **more: object
) -> str:
    return json.dumps({"replicasFrom": start, "replicasTo": end, "at": at, **more})


def _write(changes: str) -> str:
    """Return the text of a record with some fields changed; `text=[*9` is that many times."""
    if changes.startswith("many="):
        part, _, times = changes.removeprefix("many=").rpartition("*")
        return part * int(times)
    if changes.startswith("text="):
        return changes.removeprefix("text=").encode().decode("unicode_escape")
    fields: dict[str, Any] = {}
    for change in changes.split():
        name, _, text = change.partition("=")
        name, _, part = name.partition(".")
        fields[name] = {**WHERE, part: json.loads(text)} if part else json.loads(text)
    if digits := fields.pop("digits", 0):
        return make_record().replace("5", "9" * digits, 1)
    if "earlier" in fields:
        fields["earlier"] = [fields["earlier"]] * fields.pop("times", 1)
    return json.dumps({**json.loads(make_record()), **fields})


def _render(record: DownscaleRecord | None) -> str:
    if record is None:
        return "none"
    at = f"{record.at.astimezone(UTC):%H:%M:%S.%f}"
    places = [("at", record.target), *(("and", one) for one in record.earlier)]
    shown = [f"{record.replicas_from} to {record.replicas_to} at {at}"]
    spelt = (
        f"{word} {one.scheme}://{one.service}:{one.port}/{one.path}" for word, one in places if one
    )
    return " ".join([*shown, *spelt])
