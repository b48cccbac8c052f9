"""What there is to see of a rollout at one moment, read from API objects.

Pure: objects in, frozen data out. How it looks is decided in `drawing`, what is worth a line
of its own in `log`.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

import msgspec

from rollout_lab.model.fields import child, children, is_terminating, name_of, number, text
from rollout_lab.nodes.behaviour import image_of
from rollout_operator.cli.render import Line
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import PAUSED
from rollout_operator.model.units import is_brake_on

# Reasons of a waiting container that are the ordinary way up; a container that runs has none.
_ON_THE_WAY: Final = ("", "ContainerCreating", "PodInitializing")


class PodCell(Enum):
    """What the place of one pod shows."""

    OLD = auto()
    """Ready, on another template than the wanted."""
    BROKEN = auto()
    """Down by itself: on an old template and not ready, or crashing on the wanted template."""
    ENDING = auto()
    """Told to end, and still there."""
    GONE = auto()
    """No pod of that name exists."""
    STARTING = auto()
    """On the wanted template, not ready yet."""
    NEW = auto()
    """Ready, on the wanted template."""


class Cell(msgspec.Struct, frozen=True):
    """The place of one pod."""

    state: PodCell
    version: str = ""
    """The pod's image; empty where there is no pod."""


class ZoneRow(msgspec.Struct, frozen=True, kw_only=True):
    """One zone."""

    name: str
    cells: tuple[Cell, ...]
    ready: int = 0
    """As the StatefulSet's status counts."""
    existing: int = 0
    """Pods, as it counts them."""
    current: str = ""
    """`status.currentRevision` without the name of the set."""
    update: str = ""
    is_paused: bool = False
    history: tuple[int, ...] = ()
    """How many pods were down at each look so far."""

    @property
    def up(self) -> int:
        """Return how many pods are ready, as the pods say."""
        return sum(cell.state in (PodCell.OLD, PodCell.NEW) for cell in self.cells)


class DemoEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done or said."""

    at: float
    """Seconds since the story began."""
    who: str
    text: str
    is_why: bool = False
    """A reason of the operator, which a screen may show elsewhere already."""


class DemoReason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason that the operator gives now for moving or for waiting."""

    zone: str
    """Empty where it is about the whole group."""
    code: str
    text: str


class DemoSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to see at one moment."""

    title: str
    elapsed: float
    """Seconds since the story began."""
    goal: str
    """The version that the pods are to have in the end."""
    about: str = ""
    """What will be seen, in plain words."""
    rows: tuple[ZoneRow, ...] = ()
    whys: tuple[DemoReason, ...] | None = None
    """Why zones move or wait now; None where only entries show it."""
    entries: tuple[DemoEntry, ...] = ()
    """In the order in which they were made."""
    limit: int = 1
    """How many pods of a zone may be down."""
    pace: float = 1.0
    """How fast time goes; 0 while it stands."""
    keys: tuple[str, ...] = ()
    """What can be pressed; empty where nothing is read."""
    is_help: bool = False
    """Whether all keys are explained."""
    end: tuple[Line, ...] = ()
    """What was shown, in figures; empty while something goes on."""

    @property
    def cells(self) -> list[Cell]:
        """Return the places of all zones."""
        return [cell for row in self.rows for cell in row.cells]


def is_at_rest(now: DemoSnapshot) -> bool:
    """Return whether all pods have what is wanted, and the StatefulSets say so."""
    states = {cell.state for cell in now.cells}
    return states == {PodCell.NEW} and all(
        row.ready == len(row.cells) and row.current == row.update for row in now.rows
    )


def read_row(sts: JsonObject, pods: Mapping[str, JsonObject]) -> ZoneRow:
    """Return the row of a zone from its StatefulSet and its own pods by name."""
    name = name_of(sts)
    goal = image_of(child(sts, "spec", "template"))
    return ZoneRow(
        name=name,
        cells=tuple(read_cell(pods.get(place), goal) for place in list_places(sts)),
        ready=number(sts, "status", "readyReplicas"),
        existing=number(sts, "status", "replicas"),
        current=text(sts, "status", "currentRevision").removeprefix(f"{name}-"),
        update=text(sts, "status", "updateRevision").removeprefix(f"{name}-"),
        is_paused=is_brake_on(text(sts, "metadata", "annotations", PAUSED)),
    )


def list_places(sts: JsonObject) -> tuple[str, ...]:
    """Return the names of the pods that a StatefulSet wants."""
    first = number(sts, "spec", "ordinals", "start")
    wanted = number(sts, "spec", "replicas", default=1)
    return tuple(f"{name_of(sts)}-{ordinal}" for ordinal in range(first, first + wanted))


def read_cell(pod: JsonObject | None, goal: str) -> Cell:
    """Return what a pod's place shows while `goal` is wanted; None where there is no pod."""
    if pod is None:
        return Cell(PodCell.GONE)
    version = image_of(pod)
    if is_terminating(pod):
        return Cell(PodCell.ENDING, version)
    if is_ready(pod):
        return Cell(PodCell.NEW if version == goal else PodCell.OLD, version)
    is_on_its_way = version == goal and not is_crashing(pod)
    return Cell(PodCell.STARTING if is_on_its_way else PodCell.BROKEN, version)


def is_ready(pod: JsonObject) -> bool:
    """Return whether a pod runs, is not told to end, and says that it is ready."""
    says_so = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in children(pod, "status", "conditions")
    )
    return says_so and text(pod, "status", "phase") == "Running" and not is_terminating(pod)


def is_crashing(pod: JsonObject) -> bool:
    """Return whether a container has ended, or waits for more than its ordinary way up."""
    states = [child(state, "state") for state in children(pod, "status", "containerStatuses")]
    return any(
        "terminated" in state or text(state, "waiting", "reason") not in _ON_THE_WAY
        for state in states
    )
