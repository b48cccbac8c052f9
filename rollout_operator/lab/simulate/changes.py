"""What people say happens: the grammar of `-change`, and the names that it may use.

Pure. How a change is carried out in the simulated world is decided in `world`.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import parse_duration, parse_go_int, quote

_MOST_REPLICAS: Final = 1000
_NEAR: Final = 3


@dataclass(frozen=True, slots=True)
class NewTemplate:
    """A new revision, otherwise the same."""

    zones: tuple[str, ...] = ()
    """StatefulSets or rollout groups; none stands for all."""
    is_bad: bool = False
    """Whether its pods crash."""


@dataclass(frozen=True, slots=True)
class NewImage:
    """Another image of the first container."""

    image: str
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScaleChange:
    """Another number of replicas, by the subresource that `kubectl scale` uses."""

    zone: str
    """Or a ReplicaTemplate, where no StatefulSet has this name."""
    replicas: int


@dataclass(frozen=True, slots=True)
class Pause:
    """The annotation that holds a zone back, set or taken away."""

    zone: str
    is_paused: bool


@dataclass(frozen=True, slots=True)
class PodFails:
    """A pod crashes, and stays down until it is replaced."""

    pod: str


@dataclass(frozen=True, slots=True)
class PodRecovers:
    """A pod becomes ready."""

    pod: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Somebody deletes a pod."""

    pod: str


Deed = NewTemplate | NewImage | ScaleChange | Pause | PodFails | PodRecovers | DeletePod


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change."""

    text: str
    """As it was given."""
    deed: Deed
    at: timedelta | None = None
    """Since the start; None: together with the one before, or at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names that a change may use."""

    groups: Mapping[str, Sequence[str]]
    """The StatefulSets of each rollout group."""
    pods: frozenset[str]
    templates: tuple[str, ...] = ()
    """ReplicaTemplates."""
    coupled: tuple[str, ...] = ()
    """StatefulSets whose count comes from somewhere else."""

    @property
    def zones(self) -> tuple[str, ...]:
        """Return all StatefulSets by name."""
        return tuple(sorted(zone for zones in self.groups.values() for zone in zones))

    def expand(self, named: Iterable[str]) -> tuple[str, ...]:
        """Return the StatefulSets that are meant, those of a group for its name; none: all."""
        found = [zone for name in named for zone in self._members(name)]
        return tuple(dict.fromkeys(found)) or self.zones

    def _members(self, name: str) -> Sequence[str]:
        return (name,) if name in self.zones else self.groups.get(name, ())


@dataclass(frozen=True, slots=True)
class _Form:
    """One way to say something: how it is shown, its grammar, and what it means."""

    shown: str
    grammar: str
    build: Callable[..., Deed]


FORMS: Final = (
    _Form(
        "new template [ZONE ...]", "new template((?: .*)?)", lambda them: NewTemplate(_words(them))
    ),
    _Form(
        "bad template [ZONE ...]",
        "bad template((?: .*)?)",
        lambda them: NewTemplate(_words(them), is_bad=True),
    ),
    _Form(
        "image [ZONE=]IMAGE",
        r"image (?:([^=\s]+)=)?([^=\s]+)",
        lambda zone, image: NewImage(image, _words(zone)),
    ),
    _Form(
        "scale ZONE to N",
        r"scale (\S+) to (\S+)",
        lambda zone, count: ScaleChange(zone, _replicas(count)),
    ),
    _Form("pod POD fails", r"pod (\S+) fails", PodFails),
    _Form("pod POD recovers", r"pod (\S+) recovers", PodRecovers),
    _Form("delete pod POD", r"delete pod (\S+)", DeletePod),
    _Form("pause ZONE", r"pause (\S+)", lambda zone: Pause(zone, is_paused=True)),
    _Form("resume ZONE", r"resume (\S+)", lambda zone: Pause(zone, is_paused=False)),
)


def parse_change(text: str) -> Change:
    """Return the change that a text asks for. Raises InvalidInput, which lists the forms."""
    words = " ".join(text.split())
    said, _, time = words.rpartition(" at ")
    at = _parse_at(time) if said else None
    for form in FORMS:
        found = re.fullmatch(form.grammar, said or words)
        if found is not None:
            return Change(text=words, deed=form.build(*found.groups()), at=at)
    forms = ", ".join(quote(form.shown) for form in FORMS)
    raise InvalidInput(f'no such change; there are {forms}, each with " at 30s" or without')


def set_times(changes: Iterable[Change]) -> list[tuple[timedelta, Change]]:
    """Return the changes with their times. Raises InvalidInput where one is before its place."""
    timed: list[tuple[timedelta, Change]] = []
    now = timedelta(0)
    for change in changes:
        if change.at is not None and change.at < now:
            raise InvalidInput(
                f"-change {quote(change.text)}: it comes before {quote(timed[-1][1].text)}: "
                "changes are given in the order of their times"
            )
        now = change.at if change.at is not None else now
        timed.append((now, change))
    return timed


def check_names(changes: Iterable[Change], names: Names) -> None:
    """Raise InvalidInput for the first name that is unknown, with those that are like it."""
    pods = set(names.pods)
    for change in changes:
        match change.deed:
            case NewTemplate(zones=zones) | NewImage(zones=zones):
                for name in zones:
                    _check(change, "StatefulSet or rollout group", name, _all(names))
            case ScaleChange(zone=zone, replicas=replicas):
                what = "StatefulSet or ReplicaTemplate" if names.templates else "StatefulSet"
                _check(change, what, zone, (*names.zones, *names.templates))
                # The ordinals may start elsewhere: then the pods are found only by their zone.
                zones = (zone, *names.coupled)
                pods |= {f"{one}-{ordinal}" for one in zones for ordinal in range(replicas)}
            case Pause(zone=zone):
                _check(change, "StatefulSet", zone, names.zones)
            case PodFails(pod=pod) | PodRecovers(pod=pod) | DeletePod(pod=pod):
                _check(change, "pod", pod, sorted(pods))


def _all(names: Names) -> tuple[str, ...]:
    return (*names.zones, *names.groups)


def _check(change: Change, what: str, name: str, known: Sequence[str]) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=_NEAR)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known[:10])}"
    raise InvalidInput(f"-change {quote(change.text)}: no {what} {quote(name)}; {hint}")


def _parse_at(text: str) -> timedelta:
    at = parse_duration(text)
    if at < timedelta(0):
        raise InvalidInput(f"at {text}: a time before the start")
    return at


def _replicas(text: str) -> int:
    count = parse_go_int(text)
    if not 0 <= count <= _MOST_REPLICAS:
        raise InvalidInput(f"replicas must be from 0 to {_MOST_REPLICAS}: {count}")
    return count


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(re.split(r"[\s,]+", text.strip())) if text and text.strip() else ()
