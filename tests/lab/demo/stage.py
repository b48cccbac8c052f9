"""The commands of the demo: a story to be played, keys that a reader presses, figures, flags."""

import io
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import yaml
from rollout_lab.demo.acts import MEANINGS
from rollout_lab.demo.command import play
from rollout_lab.demo.flags import DemoSettings, read_settings
from rollout_lab.demo.keys import Controls
from rollout_lab.demo.log import read_lease, read_log, read_move
from rollout_lab.demo.objects import OPERATOR, PERSON
from rollout_lab.demo.screen import Plain
from rollout_lab.demo.snapshot import DemoSnapshot, PodCell, ZoneRow, read_row
from rollout_lab.demo.totals import (
    Restart,
    Totals,
    add_up,
    draw_totals,
    measure_floor,
    measure_polled,
)
from rollout_lab.model.history import Called, Commit, PodCalled, Record
from rollout_lab.model.request import ApiRequest

from rollout_operator.cli.render import render_line
from rollout_operator.config.grammar import UsageError
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from tests.lab.simulate.stage import merge_places
from tests.stories import Stage

Json = Any
# What is recorded begins at the same time always.
SMALL: Final = DemoSettings(zones=3, pods=2, record="story")
# What the grid shows, pod by pod, is not what a story tells.
_TOLD: Final = re.compile(
    r" *(?P<at>[0-9.]+) s  (?P<who>you|a fault|operator\S*|API server|Flux|registry|the Lease)"
    r" +(?P<text>.*)"
)
_TIMED: Final = re.compile(r" *[0-9.]+ s  ")
_TITLE: Final = re.compile(r" pods?, at most .* s$")
_CODE: Final = re.compile(r"([a-z_]+): ")
_MOMENTS: Final[dict[str, Callable[[DemoSnapshot], bool]]] = {
    "over": lambda now: bool(now.end),
    "first": lambda now: not now.end,
    "broken": lambda now: any(cell.state is PodCell.BROKEN for cell in now.cells),
}


class Watch(Plain):
    """A screen that keeps what it was shown."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.snapshots: list[DemoSnapshot] = []

    def show(self, snapshot: DemoSnapshot) -> None:
        self.snapshots.append(snapshot)


class Reader(Watch):
    """A screen before which a reader presses keys, each at its moment."""

    def __init__(self, presses: list[tuple[str, str]]) -> None:
        super().__init__()
        self.controls = Controls(lambda pace: None, MEANINGS)
        self._presses = deque(presses)

    def show(self, snapshot: DemoSnapshot) -> None:
        super().show(snapshot)
        # A key that was not taken yet is answered first.
        if self._presses and not self.controls.has_command:
            moment, key = self._presses[0]
            if _MOMENTS[moment](snapshot) if moment in _MOMENTS else moment in snapshot.title:
                self._presses.popleft()
                self.controls.press(key)


class DemoStage(Stage):
    """The demo, played in virtual time, and its parts."""

    async def do_story(self, *stories: str) -> str:
        """Play stories; show what is told, and how it ends. `zones=1` is another size."""
        sizes = [int(word.removeprefix("zones=")) for word in stories if "=" in word]
        names = tuple(word for word in stories if "=" not in word)
        settings = replace(SMALL, zones=sizes[0] if sizes else 3, stories=names)
        stream = io.StringIO()
        assert await play(settings, Plain(stream))
        text = stream.getvalue()
        assert "\x1b" not in text
        return "\n".join(_tell(text))

    async def do_keys(self, stories: str, *words: str) -> str:
        """Let a reader press keys, `over:i` once the story is over; show what people then did."""
        presses = [tuple(word.split(":")) for word in words]
        reader = Reader([(moment.replace("_", " "), key) for moment, key in presses])
        settings = replace(SMALL, zones=2, stories=tuple(stories.split(",")))
        assert await play(settings, reader, reader.controls)
        last = reader.snapshots[-1]
        told = [
            f"{entry.who}: {entry.text}"
            for entry in last.entries
            if entry.who in ("you", "a fault") or "broken" in entry.text or "again" in entry.text
        ]
        ends = [now for now in reader.snapshots if now.end]
        parts = [
            f"{last.title.partition(':')[0]}: {last.goal}, {[row.up for row in last.rows]} up"
            f" of {[len(row.cells) for row in last.rows]}",
            *told,
            *(line[0][0] for line in last.end[:1]),
            f"{len(ends)} pictures of an end, at {sorted({now.elapsed for now in ends})}",
        ]
        return "\n".join(parts)

    async def do_flags(self, *words: str) -> str:
        """Show the settings that are not as they are by default, or why they are refused."""
        try:
            settings = read_settings(words)
        except UsageError as refused:
            return str(refused)
        default = DemoSettings()
        return ", ".join(
            f"{one.name}={getattr(settings, one.name)!r}"
            for one in fields(settings)
            if getattr(settings, one.name) != getattr(default, one.name)
        )

    async def do_sum(self, *moves: str) -> str:
        """Add up a history from its tenth second: `'10.5 delete a-0' '10.6 go a-0' '12 up a-0'`."""
        found = add_up([*_play(moves)], timedelta(seconds=10), limit=1)
        return "\n".join([str(found), *_draw(found)])

    async def do_totals(self, said: str) -> str:
        """Show figures as sentences."""
        given = yaml.safe_load(said)
        restarts = tuple(Restart(zone, *at) for zone, *at in given.pop("restarts", ()))
        refusals = tuple(given.pop("refusals", ()))
        found = Totals(limit=given.pop("limit", 1), restarts=restarts, refusals=refusals, **given)
        return "\n".join([*_draw(found), *["a promise was broken"] * (not found.is_kept)])

    async def do_floor(self, *words: str) -> str:
        """Show what restarts alone take, and what a slow poll takes, at limits 1, 2 and 9."""
        restarts = [
            Restart(zone, float(begin), float(end))
            for zone, begin, end in (word.split(",") for word in words)
        ]
        floors = [measure_floor(restarts, limit) for limit in (1, 2, 9)]
        polled = [measure_polled(restarts, limit) for limit in (1, 2, 9)]
        return f"alone {floors}, polled {polled}"

    async def do_log(self, said: str, *who: str) -> str:
        """Show what becomes of a line of the operator's log, and which move it is about."""
        keys = yaml.safe_load(said)
        return f"{read_log(keys, 1.5, *who)}; {read_move(keys)}"

    async def do_lease(self, seconds: str) -> str:
        """Show the reason of a Lease that was not renewed."""
        spec: JsonObject = {
            "holderIdentity": "operator-1_1",
            "renewTime": "2026-01-02T03:04:05.500000Z",
        }
        now = datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC) + timedelta(seconds=float(seconds))
        return str(read_lease({"metadata": {"name": "rollout-operator"}, "spec": spec}, now).text)

    async def do_row(self, spec: str, *pods: str) -> str:
        """Show the row of a zone with such a set and pods: `0=v1`, `1='{status: ...}'`."""
        base = {"metadata": {"name": "zone-a"}, "spec": {"template": _image("v2")}}
        base |= {"status": {"currentRevision": "zone-a-1f", "updateRevision": "zone-a-2e"}}
        found = {}
        for word in pods:
            ordinal, _, more = word.partition("=")
            version, _, patch = more.partition(" ")
            found[f"zone-a-{ordinal}"] = merge_places(
                _pod(version or "v2"), yaml.safe_load(patch or "{}")
            )
        return _show_row(read_row(merge_places(base, yaml.safe_load(spec)), found))


def _tell(text: str) -> list[str]:
    """Return what is told line by line; of why the operator waits, the codes."""
    lines: list[str] = []
    for line in text.splitlines():
        if found := _TOLD.match(line):
            code = _CODE.match(found["text"]) if found["who"].startswith("operator") else None
            if code is None:
                lines.append(f"{found['at']} {found['who']}: {found['text']}")
            elif lines[-1].endswith("]"):
                lines[-1] = f"{lines[-1][:-1]} {code[1]}]"
            else:
                lines[-1] += f" [{code[1]}]"
        elif line[:1].strip() and not line.startswith("zone-") and not _TIMED.match(line):
            lines += [line] * (line not in lines and not _TITLE.search(line))
    return lines


def _show_row(row: ZoneRow) -> str:
    cells = " ".join(f"{cell.state.name.lower()}:{cell.version}" for cell in row.cells)
    counts = f"{row.ready} ready, {row.existing} there, {row.current} to {row.update}"
    return f"{cells or 'no pods'}; {counts}{', paused' * row.is_paused}"


def _image(version: str) -> Json:
    return {"spec": {"containers": [{"name": "app", "image": version}]}}


def _pod(version: str) -> Json:
    return {
        "metadata": {"name": "zone-a-0"},
        **_image(version),
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"ready": True, "state": {"running": {}}}],
        },
    }


def _draw(totals: Totals) -> list[str]:
    return [render_line(line, 200, is_coloured=False) for line in draw_totals(totals)]


def _play(moves: tuple[str, ...]) -> Iterator[Record]:
    """Yield the history of zones a and b with two pods each, all ready, and of moves.

    `delete` is the operator's, `lose` a person's; pods `go`, come `up` and `fail`; a person's call
    is answered by a status, `scale 403` or `evict 201`, and pods are called, `POST`.
    """
    pods: dict[str, Json] = {}
    ups = [f"0 up {zone}-{ordinal}" for zone in "ab" for ordinal in range(2)]
    for number, move in enumerate(("0 set a", "0 set b", *ups, *moves)):
        at, verb, name = move.split()
        then = timedelta(seconds=float(at))
        if verb in ("scale", "evict"):
            request = ApiRequest(
                verb="patch",
                resource=PODS if verb == "evict" else STATEFULSETS,
                name="a",
                subresource="eviction" if verb == "evict" else "scale",
            )
            yield Called(
                at=then, begun=then, number=1, actor=PERSON, request=request, status=int(name),
                message="no way",
            )  # fmt: skip
            continue
        if verb in ("POST", "DELETE"):
            yield PodCalled(
                at=then, begun=then, actor=OPERATOR, method=verb, pod=name, uid="u", path="/x",
                status=200, acted=True,
            )  # fmt: skip
            continue
        before, new, actor = pods.pop(name, None), None, "kubelet"
        owner = {"controller": True, "kind": "StatefulSet", "name": name[:1], "uid": name[:1]}
        head = {"name": name, "ownerReferences": [owner]}
        if verb == "set":
            new = {"metadata": {"name": name}, "spec": {"replicas": 2}}
        elif verb in ("up", "fail"):
            ready = [{"type": "Ready", "status": str(verb == "up")}]
            new = {"metadata": head, "status": {"phase": "Running", "conditions": ready}}
        elif verb != "go":
            actor = OPERATOR if verb == "delete" else PERSON
            ending = {**head, "deletionTimestamp": "2026-01-01T00:00:00Z"}
            new = {**(before or {}), "metadata": ending}
        if new is not None:
            pods[name] = new
        yield Commit(
            at=then, revision=number, actor=actor,
            resource=STATEFULSETS if "-" not in name else PODS, namespace="demo", name=name,
            before=before, after=new,
        )  # fmt: skip
