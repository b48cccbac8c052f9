"""What people say happens: the grammar of `-change`, and the names that it may use.

Pure. How a change is carried out in the simulated world is decided in `world`.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, assert_never

import msgspec

from rollout_lab.simulate.gates import DeclareGate, GateOutcome, declare_gate
from rollout_lab.simulate.policies import PolicyEdit, edit_policy
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import parse_duration, parse_go_int, quote
from rollout_operator.planning.wording import join_some

# Of replicas, and of pods without room.
_MOST: Final = 1000
_NEAR: Final = 3
# So many names fit into one line.
_LISTED: Final = 10


class NewTemplate(msgspec.Struct, frozen=True):
    """A new revision, otherwise the same."""

    zones: tuple[str, ...] = ()
    """StatefulSets or rollout groups; none stands for all."""
    is_bad: bool = False
    """Whether its pods crash."""


class NewImage(msgspec.Struct, frozen=True):
    """Another image of the first container."""

    image: str
    zones: tuple[str, ...] = ()


class ScaleChange(msgspec.Struct, frozen=True):
    """Another number of replicas, by the subresource that `kubectl scale` uses."""

    zone: str
    """Or a ReplicaTemplate, where no StatefulSet has this name."""
    replicas: int


class Pause(msgspec.Struct, frozen=True):
    """The annotation that holds a zone back, set or taken away."""

    zone: str
    """Or a rollout group, for all of its StatefulSets; or a policy, in its own spec."""
    is_paused: bool


class PodFails(msgspec.Struct, frozen=True):
    """A pod crashes, and stays down until it is replaced."""

    pod: str


class PodRecovers(msgspec.Struct, frozen=True):
    pod: str


class DeletePod(msgspec.Struct, frozen=True):
    """A pod is deleted, whatever budgets say."""

    pod: str


class EvictPod(msgspec.Struct, frozen=True):
    """The eviction of a pod is requested, once."""

    pod: str


class Cordon(msgspec.Struct, frozen=True):
    """Nodes take no new pods any more; drained, their pods are evicted as well."""

    places: tuple[str, ...]
    """Nodes, or StatefulSets whose pods' nodes are meant."""
    is_zone: bool
    is_drain: bool


class KillOperator(msgspec.Struct, frozen=True):
    """The operator dies, and is started again as the kubelet does it."""


class NoRoom(msgspec.Struct, frozen=True):
    """From now on so many pods find no node."""

    pods: int


Deed = (
    NewTemplate
    | NewImage
    | ScaleChange
    | Pause
    | PodFails
    | PodRecovers
    | DeletePod
    | EvictPod
    | Cordon
    | KillOperator
    | NoRoom
    | PolicyEdit
    | DeclareGate
)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    """As it was given."""
    deed: Deed
    at: timedelta | None = None
    """Since the start; None: together with the change before, or at the start."""
    flag: str = "change"
    """By which it was given."""


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The names that a change may use."""

    groups: Mapping[str, Sequence[str]]
    """The StatefulSets of each rollout group."""
    pods: frozenset[str]
    policies: Mapping[str, Sequence[str]] = {}
    """The StatefulSets that each policy selects."""
    gates: Mapping[str, Sequence[str]] = {}
    """The StatefulSets whose annotation names each RolloutHealthCheck."""
    templates: tuple[str, ...] = ()
    """ReplicaTemplates."""
    coupled: tuple[str, ...] = ()
    """StatefulSets whose count comes from somewhere else."""
    nodes: Mapping[str, frozenset[str]] = {}
    """The StatefulSets of the pods on each node."""

    @property
    def zones(self) -> tuple[str, ...]:
        """Return all StatefulSets by name."""
        every = (*self.groups.values(), *self.policies.values())
        return tuple(sorted({zone for zones in every for zone in zones}))

    def expand(self, named: Iterable[str]) -> tuple[str, ...]:
        """Return the StatefulSets that are meant, all for no name.

        The name of a group, or of a policy, stands for those that it has.
        """
        found = [zone for name in named for zone in self._members(name)]
        return tuple(dict.fromkeys(found)) or self.zones

    def is_policy(self, name: str) -> bool:
        """Return whether a name stands for nothing but a policy."""
        return name in self.policies and name not in (*self.groups, *self.zones)

    def list_nodes(self, deed: Cordon) -> tuple[str, ...]:
        if not deed.is_zone:
            return deed.places
        return tuple(sorted(node for node, on in self.nodes.items() if on & set(deed.places)))

    def list_zones(self, deed: Deed) -> frozenset[str]:
        """Return the StatefulSets that a change is about; empty: all, or none of them."""
        match deed:
            case NewTemplate(zones=zones) | NewImage(zones=zones):
                return frozenset(self.expand(zones)) if zones else frozenset()
            case ScaleChange(zone=name) | Pause(zone=name) | PolicyEdit(policy=name):
                return frozenset(self._members(name))
            case PodFails(pod=pod) | PodRecovers(pod=pod) | DeletePod(pod=pod) | EvictPod(pod=pod):
                return frozenset((pod.rpartition("-")[0],))
            case Cordon() as cordon:
                return frozenset().union(
                    *(self.nodes.get(node, frozenset()) for node in self.list_nodes(cordon))
                )
            case DeclareGate(gate=gate):
                return frozenset(self.gates[gate])
            case KillOperator() | NoRoom():
                return frozenset()
            case _:
                assert_never(deed)

    def _members(self, name: str) -> Sequence[str]:
        if name in self.zones:
            return (name,)
        return self.groups.get(name) or self.policies.get(name, ())


class _Form(msgspec.Struct, frozen=True):
    """One way to say something: how it is shown, its grammar, and what it means."""

    shown: str
    grammar: str
    build: Callable[..., Deed]


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(re.split(r"[\s,]+", text.strip())) if text and text.strip() else ()


def _cordon(text: str, *, is_zone: bool, is_drain: bool) -> Cordon:
    return Cordon(_words(text), is_zone=is_zone, is_drain=is_drain)


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
        lambda zone, count: ScaleChange(zone, _count("replicas", count)),
    ),
    _Form("set POLICY FIELD to VALUE", r"set (\S+) (\S+) to (.+)", edit_policy),
    _Form("pod POD fails", r"pod (\S+) fails", PodFails),
    _Form("pod POD recovers", r"pod (\S+) recovers", PodRecovers),
    _Form("delete pod POD", r"delete pod (\S+)", DeletePod),
    _Form("evict POD", r"evict (?:pod )?(\S+)", EvictPod),
    *(
        _Form(
            f"{word} {'zone ZONE' if is_zone else 'NODE [NODE ...]'}",
            rf"{word} zone (\S+)" if is_zone else rf"{word} (?:nodes? )?((?!zone )\S.*)",
            partial(_cordon, is_zone=is_zone, is_drain=word == "drain"),
        )
        for word in ("cordon", "drain")
        for is_zone in (False, True)
    ),
    _Form(
        "no room for N pods",
        r"no room for (\S+) pods?",
        lambda count: NoRoom(_count("pods without room", count)),
    ),
    _Form("gate NAME is passing|failing|unknown", r"gate (\S+) is (\S+)", declare_gate),
    _Form("kill operator", "kill (?:the )?operator", KillOperator),
    _Form("pause ZONE", r"pause (\S+)", lambda zone: Pause(zone, is_paused=True)),
    _Form("resume ZONE", r"resume (\S+)", lambda zone: Pause(zone, is_paused=False)),
)


def parse_change(text: str) -> Change:
    """Return the change that a text requests. Raises InvalidInput, which names forms like it."""
    words = " ".join(text.split())
    said, _, time = words.rpartition(" at ")
    at = _parse_at(time) if said else None
    for form in FORMS:
        match = re.fullmatch(form.grammar, said or words)
        if match is not None:
            return Change(text=words, deed=form.build(*match.groups()), at=at)
    raise InvalidInput(f"no such change; {_hint_forms(words)}")


def set_times(changes: Iterable[Change]) -> list[tuple[timedelta, Change]]:
    """Return the changes with their times. Raises InvalidInput where a change is too early."""
    timed: list[tuple[timedelta, Change]] = []
    now = timedelta(0)
    for change in changes:
        if change.at is not None and change.at < now:
            raise InvalidInput(
                f"-{change.flag} {quote(change.text)}: it comes before {quote(timed[-1][1].text)}: "
                "changes are given in the order of their times"
            )
        now = change.at if change.at is not None else now
        timed.append((now, change))
    return timed


def map_declared(changes: Iterable[tuple[timedelta, Change]]) -> Mapping[str, GateOutcome]:
    """Return what gates are declared to come to from the start."""
    deeds = [change.deed for at, change in changes if not at]
    return {deed.gate: deed.outcome for deed in deeds if isinstance(deed, DeclareGate)}


def check_names(changes: Iterable[Change], names: Names) -> None:
    """Raise InvalidInput for the first name that is unknown, with those that are like it."""
    pods = set(names.pods)
    for change in changes:
        match change.deed:
            case NewTemplate(zones=zones) | NewImage(zones=zones):
                for name in zones:
                    _check(change, _name_kinds(names), name, _all(names), names)
            case ScaleChange(zone=zone, replicas=replicas):
                what = "StatefulSet or ReplicaTemplate" if names.templates else "StatefulSet"
                _check(change, what, zone, (*names.zones, *names.templates), names)
                # The ordinals may start elsewhere: then the pods are found only by their zone.
                zones = (zone, *names.coupled)
                pods |= {f"{zone}-{ordinal}" for zone in zones for ordinal in range(replicas)}
            case Pause(zone=zone):
                _check(change, _name_kinds(names), zone, _all(names), names)
            case PodFails(pod=pod) | PodRecovers(pod=pod) | DeletePod(pod=pod) | EvictPod(pod=pod):
                _check(change, "pod", pod, sorted(pods), names)
            case Cordon() as cordon:
                _check_place(change, cordon, names)
            case PolicyEdit(policy=policy):
                _check(change, "policy", policy, sorted(names.policies), names)
            case DeclareGate(gate=gate):
                _check(change, "RolloutHealthCheck", gate, sorted(names.gates), names)
            case KillOperator() | NoRoom():
                pass
            case _:
                assert_never(change.deed)


def _all(names: Names) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*names.zones, *names.groups, *names.policies)))


def _name_kinds(names: Names) -> str:
    return (
        "StatefulSet, rollout group or policy" if names.policies else "StatefulSet or rollout group"
    )


def _check_place(change: Change, cordon: Cordon, names: Names) -> None:
    for place in cordon.places:
        if cordon.is_zone:
            _check(change, "StatefulSet", place, names.zones, names)
        elif names.nodes:
            _check(change, "node", place, sorted(names.nodes), names)
    if not names.nodes or not names.list_nodes(cordon):
        of = f" of {cordon.places[0]}" if cordon.is_zone else ""
        missing = f"no pod{of} in the input has spec.nodeName, which tells what runs on a node"
        instead = "pass what `kubectl get statefulsets,pods -o yaml` prints, or evict pods by name"
        raise _refuse(change, f"{missing}; {instead}")


def _check(change: Change, what: str, name: str, known: Sequence[str], names: Names) -> None:
    if name not in known:
        hint = _hint_kind(change, name, known, names) or _hint_names(name, known)
        raise _refuse(change, f"no {what} {quote(name)}; {hint}")


def _refuse(change: Change, why: str) -> InvalidInput:
    return InvalidInput(f"-{change.flag} {quote(change.text)}: {why}")


def _hint_kind(change: Change, name: str, known: Sequence[str], names: Names) -> str:
    """Return what a name is, and what to write, where something of another kind was meant."""
    if name in names.pods and isinstance(change.deed, Cordon):
        return f'it is a pod: write "evict {name}", or the node that it runs on'
    if name not in (*names.groups, *names.zones):
        zone = name.rpartition("-")[0] if name in names.pods else ""
        return f"it is a pod: {_rewrite(change, name, zone)}" if zone in known else ""
    what = "StatefulSet" if name in names.zones else "rollout group"
    zones = names.expand((name,))
    right = [
        workload for workload in known if workload in zones or workload.rpartition("-")[0] in zones
    ]
    if isinstance(change.deed, Cordon) and not change.deed.is_zone:
        right = [f"zone {zone}" for zone in zones]
    if not right:
        return ""
    others = f"; it has {_join(right)}" if len(right) > 1 else ""
    like = [workload for workload in known if name in workload and workload not in right]
    perhaps = f"; or did you mean {_join(like)}?" if like else ""
    return f"it is a {what}: {_rewrite(change, name, right[0])}{others}{perhaps}"


def _rewrite(change: Change, name: str, right: str) -> str:
    words = [right if word == name else word for word in change.text.split()]
    return f"write {quote(' '.join(words))}"


def _hint_names(name: str, known: Sequence[str]) -> str:
    holding = [node for node in known if name.lower() in node.lower()]
    near = holding or difflib.get_close_matches(name, known, n=_NEAR)
    if near:
        shown = [node for node in known if node in near]
        return f"did you mean {_join(shown).replace(' and ', ' or ')}?"
    return f"there are {_join(known) or 'none'}"


def _join(names: Sequence[str]) -> str:
    return join_some([quote(name) for name in names[:_LISTED]], total=len(names))


def _hint_forms(words: str) -> str:
    """Return the forms that begin like it, or else all."""
    begins = [form.shown.partition(" ")[0] for form in FORMS]
    near = difflib.get_close_matches(words.partition(" ")[0].lower(), begins, n=1)
    if near:
        alike = [quote(form.shown) for form in FORMS if form.shown.startswith(near[0])]
        return f"did you mean {' or '.join(alike)}?"
    forms = ", ".join(quote(form.shown) for form in FORMS)
    return f'there are {forms}, each with " at 30s" or without'


def _parse_at(text: str) -> timedelta:
    at = parse_duration(text)
    if at < timedelta(0):
        raise InvalidInput(f"at {text}: a time before the start")
    return at


def _count(what: str, text: str) -> int:
    count = parse_go_int(text)
    if not 0 <= count <= _MOST:
        raise InvalidInput(f"{what} must be from 0 to {_MOST}: {count}")
    return count
