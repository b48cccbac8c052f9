"""How pods behave: when they start, what troubles them, how they answer over HTTP.

A choice is a function of the pod object, called once when the pod is created.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum, auto
from typing import Final

import msgspec

from rollout_lab.model.fields import children, text
from rollout_operator.kube.api import JsonObject


class StartKind(Enum):
    """What becomes of a pod once it has a node."""

    NORMAL = auto()
    """Running, and ready after a while."""
    NEVER_READY = auto()
    """Running, its containers started, never ready."""
    CRASH_LOOP = auto()
    """Its containers crash again and again, with growing pauses, and are never ready."""
    GATE_CLOSED = auto()
    """Containers ready, but a readiness gate keeps the condition Ready false."""
    NO_STATUSES = auto()
    """Condition Ready true without any container status: a claim without proof."""
    FLAPPING = auto()
    """Ready and not ready in turn."""
    PENDING = auto()
    """Never gets a node."""
    FAILED = auto()
    """Phase Failed, as after an eviction by the node."""


class PodReply(Enum):
    """How a call over HTTP ends."""

    ANSWERS = auto()
    HANGS = auto()
    """Nothing comes, and the connection stays."""
    RESETS = auto()
    """The connection breaks."""
    REFUSES = auto()
    """Nothing listens."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod makes of a call."""

    reply: PodReply = PodReply.ANSWERS
    status: int = 200
    """Of an answer; a 3xx is a redirect."""
    after: timedelta = timedelta(0)
    """From the arrival of the call until the pod acts and answers."""
    acts: bool | None = None
    """Whether it does what was requested; None: exactly where it answers 2xx."""
    body: bytes | None = None
    """Of an answer; None: what a good pod says, to a POST since when it is prepared."""
    clock_offset: timedelta = timedelta(0)
    """By how much the clock that it tells this time by is ahead of the API server's."""

    @property
    def does_act(self) -> bool:
        """Return whether what was requested is done."""
        if self.acts is not None:
            return self.acts
        return self.reply is PodReply.ANSWERS and self.status // 100 == 2


OK: Final = Response()
BROKEN: Final = Response(status=500)
HANGS: Final = Response(reply=PodReply.HANGS)
REFUSES: Final = Response(reply=PodReply.REFUSES)


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How one pod behaves."""

    kind: StartKind = StartKind.NORMAL
    starts_after: timedelta = timedelta(milliseconds=300)
    """From getting a node until its containers run."""
    ready_after: timedelta = timedelta(seconds=3)
    """From running until ready, or until the trouble of `kind` shows."""
    terminates_after: timedelta = timedelta(milliseconds=500)
    """From being told to go until it is gone, however short its grace."""
    period: timedelta = timedelta(seconds=10)
    """Between two flaps; the first pause of a crash loop, doubled with each crash."""
    shows_its_end: bool = True
    """Whether a last status (phase Succeeded) precedes its end, as from newer kubelets."""
    prepare: Response = OK
    """To a POST."""
    cancel: Response = OK
    """To a DELETE."""


NORMAL: Final = Behaviour()
Choose = Callable[[JsonObject], Behaviour]


def always(behaviour: Behaviour = NORMAL) -> Choose:
    """Return a choice that gives each pod the same behaviour."""
    return lambda _pod: behaviour


def by_image(table: Mapping[str, Behaviour], otherwise: Behaviour = NORMAL) -> Choose:
    """Return a choice by the image of the first container."""
    return lambda pod: table.get(image_of(pod), otherwise)


# A world without a choice has one image that never works: `bad`.
DEFAULT: Final = by_image({"bad": Behaviour(kind=StartKind.CRASH_LOOP)})


def image_of(pod: JsonObject) -> str:
    """Return the image of a pod's first container, empty where it has none."""
    containers = children(pod, "spec", "containers")
    return text(containers[0], "image") if containers else ""
