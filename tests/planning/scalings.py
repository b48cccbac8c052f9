"""Short builders of replicas to be planned, as calls and as text, and the short form of a plan.

`counted("b", 3, follows="a")` is zone-b with three ready pods that follows zone-a; `mirroring("b",
3)` mirrors the `Scale` of DEMO. `delayed("b", 5)` mirrors it with a delay of an hour.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    FORCE_REPLICAS,
    LAST_DOWNSCALE,
    LEADING_ZONE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    MIRROR_WRITE_BACK,
    PAUSED,
    PREPARE_DOWNSCALE,
    UPSCALE_WHEN_READY,
    Uid,
)
from rollout_operator.model.objects import Deletion, Endpoint, Underway, Unreadable, Zone
from rollout_operator.model.outcome import Reason, Severity
from rollout_operator.model.scaling import (
    CallPods,
    NoScale,
    PodAnswer,
    PodCalls,
    Reference,
    Scale,
    ScalingPlan,
    ScalingSnapshot,
    TimesSource,
    Written,
)
from rollout_operator.model.units import (
    format_duration,
    format_next_second,
    parse_prometheus_duration,
)
from tests.builders import NOW, group, sts_uid, with_pods, zone
from tests.planning.tables import LEFT_FOR, read_group

HOUR: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)
DEMO: Final = Reference("rollout-operator.grafana.com", "ReplicaTemplate", "demo")
URL: Final = "http://pod/prepare-delayed-downscale"

# Short names of annotations.
_KEYS: Final = {
    "leading": LEADING_ZONE,
    "gate": UPSCALE_WHEN_READY,
    "force": FORCE_REPLICAS,
    "last": LAST_DOWNSCALE,
    "span": MIN_TIME_BETWEEN_DOWNSCALES,
    "name": MIRROR_NAME,
    "kind": MIRROR_KIND,
    "version": MIRROR_API_VERSION,
    "write_back": MIRROR_WRITE_BACK,
    "delay": DOWNSCALE_DELAY,
    "url": DOWNSCALE_DELAY_URL,
    "paused": PAUSED,
}


def counted(
    letter: str,
    replicas: int,
    *,
    follows: str | None = None,
    ago: timedelta | None = None,
    label: str | None = None,
    pods: str | None = None,
    **annotations: str | None,
) -> Zone:
    """Return a zone of so many pods; `follows` is a letter, `ago` when it was scaled down last.

    `label` is how long to wait between zones, `pods` are as in `tests.builders.zone`, `annotations`
    are by their short names.
    """
    states = "l" * replicas if pods is None else pods
    up = sum(state in "plo" for state in states)
    base = zone(letter, states, ready=up, limit=None, service_name="pods")
    if follows is not None:
        annotations = {**annotations, "leading": f"zone-{follows}" if follows else ""}
    if ago is not None:
        annotations = {**annotations, "last": format_next_second(NOW - ago)}
    labels = {} if label is None else {MIN_TIME_BETWEEN_DOWNSCALES: label}
    return annotated(with_pods(changed(base, labels=labels), ip="10.0.0.1"), **annotations)


def mirroring(
    letter: str, replicas: int, *, pods: str | None = None, **annotations: str | None
) -> Zone:
    version = "rollout-operator.grafana.com/v1"
    usual = {"name": "demo", "kind": "ReplicaTemplate", "version": version}
    return annotated(counted(letter, replicas, pods=pods), **{**usual, **annotations})


def delayed(
    letter: str, replicas: int, *, pods: str | None = None, **annotations: str | None
) -> Zone:
    """Return a zone that mirrors DEMO with a delay of an hour."""
    return mirroring(letter, replicas, pods=pods, **{"delay": "1h", "url": URL, **annotations})


def annotated(base: Zone, **annotations: str | None) -> Zone:
    """Return the zone with more annotations, by the short names above."""
    more = {_KEYS[key]: text for key, text in annotations.items() if text is not None}
    return changed(base, annotations={**base.sts.annotations, **more})


def changed(base: Zone, **changes: object) -> Zone:
    return structs.replace(base, sts=replace(base.sts, **changes))


def guarded(base: Zone) -> Zone:
    """Return the zone with the label of prepare-downscale."""
    return changed(base, labels={**base.sts.labels, PREPARE_DOWNSCALE: "true"})


def snapshot(
    *zones: Zone,
    scale: str = "",
    answers: Mapping[str, PodAnswer] | None = None,
    written: Mapping[str, int] | None = None,
    seen: Mapping[str, timedelta] | None = None,
    deletions: Mapping[str, Deletion] | None = None,
    unreadable: tuple[Unreadable, ...] = (),
    downscale: Underway | None = None,
    snapshot_age: timedelta = timedelta(0),
) -> ScalingSnapshot:
    """Return what a plan is made of.

    `scale` is as `5/2`, spec and status of DEMO; `answers` are by pod as `b-4`, `written` by
    letter, `seen` is how long ago we saw zones go; the last four are those of the group.
    """
    spec, _, status = scale.partition("/")
    found = group(*zones, deletions=deletions)
    return ScalingSnapshot(
        group=structs.replace(
            found, unreadable=unreadable, downscale=downscale, snapshot_age=snapshot_age
        ),
        times={sts_uid(letter): NOW - ago for letter, ago in (seen or {}).items()},
        scales={DEMO: Scale(replicas=int(spec), status_replicas=int(status))} if scale else {},
        pod_calls={Uid(f"uid-{pod}"): PodCalls(answer=one) for pod, one in (answers or {}).items()},
        written={
            sts_uid(letter): Written(replicas=count, generation=2)
            for letter, count in (written or {}).items()
        },
    )


def read_snapshot(text: str) -> ScalingSnapshot:
    """Return a view such as `a 2 ago=1h; b 3 follows=a label=12h; mirroring c 3; scale 5/2`.

    Words before a letter: `mirroring`, `delayed` and `guarded`; `going` is a set being deleted,
    `left` one that left the group while it was short, `elsewhere` is of another group. After it
    annotations by their short names, and fields of the set. Below the zones stand, each for itself,
    `written b 4`, `seen c 1h`, `scale lasting why it is none`, `times why they are unknown`,
    `tracker`, `later 20s`, `late_calls 10s`; and what is known of calls to pods: `says b-4 70m
    called=20s`, `failed b-4 why it gave no time`, `stay b-0 b-1`, `tried b-1 1m tries=1`,
    `unanswered b-4 2s`. What else is of pods and of the group is as in `read_group`.
    """
    zones: list[Zone] = []
    departed: list[Zone] = []
    elsewhere: list[Zone] = []
    rest: list[str] = []
    calls: dict[Uid, PodCalls] = {}
    more: dict[str, Any] = {"written": {}, "seen": {}}
    changes: dict[str, Any] = {}

    def call(pod: str, **known: object) -> None:
        calls[Uid(f"uid-{pod}")] = replace(calls.get(Uid(f"uid-{pod}"), PodCalls()), **known)

    for statement in filter(None, text.split("; ")):
        words = shlex.split(statement)
        plain = [one for one in words if "=" not in one]
        given = dict(one.split("=", 1) for one in words if "=" in one)
        match plain:
            case ["scale", "lasting" | "passing" as kind, *why]:
                changes["scales"] = {DEMO: NoScale(why=" ".join(why), is_lasting=kind == "lasting")}
            case ["scale", counts]:
                more["scale"] = counts
            case ["written", letter, count]:
                more["written"][letter] = int(count)
            case ["seen", letter, ago]:
                more["seen"][letter] = _read_span(ago)
            case ["times", *why]:
                changes["times_problem"] = " ".join(why)
            case ["tracker"]:
                changes["source"] = TimesSource.TRACKER
            case ["late_calls", span]:
                changes["late_calls"] = _read_span(span)
            case ["later", span]:
                changes["now"] = NOW + _read_span(span)
            case ["says", *pods, since]:
                begun = None if since == "-" else _read_span(since)
                for pod in pods:
                    call(pod, answer=answer(begun, ago=_read_span(given.get("called", "1s"))))
            case ["failed", pod, *why]:
                call(pod, answer=answer(None, problem=" ".join(why)))
            case ["stay", *pods]:
                for pod in pods:
                    call(pod, cancelled_at=NOW - _read_span(given.get("ago", "1m")))
            case ["tried", pod, ago]:
                call(pod, tried_at=NOW - _read_span(ago), tries=int(given.get("tries", 0)))
            case ["unanswered", pod, ago]:
                call(pod, unanswered_at=NOW - _read_span(ago))
            case [word, *_] if word in _OF_GROUP:
                rest.append(statement)
            case [*kinds, letter, replicas]:
                zone = _read_zone(kinds, letter, int(replicas), given)
                place = (
                    departed if "left" in kinds else elsewhere if "elsewhere" in kinds else zones
                )
                place.append(zone)
            case _:
                raise ValueError(statement)
    found = read_group("; ".join(rest), *zones)
    scaling = snapshot(*found.zones, **more)
    left = tuple(structs.replace(one, counts_for=LEFT_FOR) for one in departed)
    whole = structs.replace(found, departed=left, now=changes.pop("now", NOW))
    others = tuple(one.sts for one in elsewhere)
    return structs.replace(scaling, group=whole, pod_calls=calls, elsewhere=others, **changes)


# What `read_group` reads.
_OF_GROUP: Final = {
    "accepted", "downscale", "lost", "pod", "stale", "twin", "unknown", "unreadable",
}  # fmt: skip
_SET_FIELDS: Final = {
    "generation", "observed_generation", "replicas", "status_replicas", "ready_replicas",
    "first_ordinal", "current_revision", "update_revision", "min_ready_seconds",
}  # fmt: skip


def _read_zone(words: list[str], letter: str, replicas: int, given: Mapping[str, str]) -> Zone:
    make = delayed if "delayed" in words else mirroring if "mirroring" in words else counted
    annotations: dict[str, Any] = {
        key: text.encode().decode("unicode_escape") if "\\" in text else text
        for key, text in given.items()
        if key not in _SET_FIELDS
    }
    if "ago" in annotations:
        annotations["ago"] = _read_span(annotations["ago"])
    fields: dict[str, object] = {
        key: int(text) if text.isdigit() else text
        for key, text in given.items()
        if key in _SET_FIELDS
    }
    zone = changed(make(letter, replicas, **annotations), is_terminating="going" in words, **fields)
    return guarded(zone) if "guarded" in words else zone


def _read_span(text: str) -> timedelta:
    span = parse_prometheus_duration(text.removeprefix("-"))
    return -span if text.startswith("-") else span


def answer(since: timedelta | None, *, ago: timedelta = SECOND, problem: str = "") -> PodAnswer:
    """Return the answer of a pod that is prepared for so long, given so long ago."""
    begun = None if since is None else NOW - since
    return PodAnswer(called_at=NOW - ago, since=begun, problem=problem)


SENTENCES: Final = {
    r"zone-(\w) mirrors ReplicaTemplate.rollout-operator.grafana.com demo:": r"\1:",
    "ReplicaTemplate.rollout-operator.grafana.com demo": "DEMO",
    r"(problem \w+ (zone-\w)): StatefulSet \2: annotation": r"\1:",
    "grafana.com/min-time-between-zones-downscale": "SPAN",
    "grafana.com/rollout-downscale-leader": "LEADER",
    "grafana.com/rollout-upscale-only-when-leader-ready": "GATE",
    "forced by grafana.com/rollout-force-replicas": "FORCED",
    "grafana.com/rollout-force-replicas": "FORCE",
    "grafana.com/rollout-mirror-replicas-from-resource": "MIRROR",
    "grafana.com/rollout-delayed-downscale": "DELAY",
    "grafana.com/rollout-prepare-delayed-downscale-url": "DELAY-URL",
}
"""Names and sentences that tables have in a short form."""


def show_plan(plan: ScalingPlan, *, stable: bool = False) -> list[str]:
    """Return the whole plan as short lines: `~` is no news, `+` records its time, `!` is exact.

    `stable`: texts without countdowns, as they are compared with those of before.
    """
    lines = [
        f"{one.reason.code}{'+' * one.keeps_time}{'!' * one.is_exact}: {one.reason.text}"
        for one in plan.scale
    ]
    lines += [f"{one.reason.code}: {one.reason.text}" for one in plan.publish]
    lines += [_show_calls(calls) for calls in plan.pod_calls]
    lines += [_show_reason("wait", reason, stable) for reason in plan.waits]
    lines += [_show_reason("problem", reason, stable) for reason in plan.problems]
    lines += [f"failed {name}" for name in sorted(plan.failed)]
    lines += [
        f"{word} {format_duration(span)}"
        for word, span in (("again", plan.requeue_after), ("next", plan.next_downscale))
        if span is not None and not stable
    ]
    for pattern, form in SENTENCES.items():
        lines = [re.sub(pattern, form, line) for line in lines]
    return lines


def counts(plan: ScalingPlan) -> dict[str, int]:
    """Return the new counts by zone."""
    return {one.zone.name: one.replicas for one in plan.scale}


def codes(plan: ScalingPlan) -> list[str]:
    """Return what is waited for and what is wrong, as codes with zones."""
    return [f"{reason.code} {reason.zone}" for reason in (*plan.waits, *plan.problems)]


def _show_reason(kind: str, reason: Reason, stable: bool) -> str:
    text = (reason.stable_text if stable else "") or reason.text
    kind += "~" * (reason.severity is Severity.DEBUG)
    return f"{kind} {reason.code} {reason.zone}: {text}"


def _show_calls(calls: CallPods) -> str:
    """Return a line such as `call zone-b: stay 0 1 2, prepare 4 3`."""
    stay = sorted(calls.cancel, key=lambda endpoint: endpoint.pod)
    parts = [f"stay {_show_pods(stay)}"] if stay else []
    parts += [f"prepare {_show_pods(calls.post)}"] if calls.post else []
    return f"call {calls.zone.name}: {', '.join(parts)}"


def _show_pods(endpoints: Sequence[Endpoint]) -> str:
    return " ".join(endpoint.pod.rpartition("-")[2] for endpoint in endpoints)
