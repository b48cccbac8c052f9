"""Short builders of counts to be planned, and the short form of a plan of counts.

`counted("b", 3, follows="a")` is zone-b with three ready pods that follows zone-a; `mirroring("b",
3)` mirrors the `Scale` of DEMO. `delayed("b", 5)` mirrors it with a delay of an hour.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
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
from rollout_operator.model.outcome import Reason
from rollout_operator.model.scaling import (
    CallPods,
    NoScale,
    PodAnswer,
    PodCalls,
    Reading,
    Reference,
    Scale,
    ScalingPlan,
    ScalingSnapshot,
    Written,
)
from rollout_operator.model.units import format_next_second, parse_prometheus_duration
from rollout_operator.planning.scaling import plan_scaling
from tests.builders import NOW, group, sts_uid, unreadable, with_pods, zone
from tests.planning.tables import change_pods, read_arguments

HOUR: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)
DEMO: Final = Reference("rollout-operator.grafana.com", "ReplicaTemplate", "demo")
SHOWN: Final = "ReplicaTemplate.rollout-operator.grafana.com demo"
URL: Final = "http://pod/prepare-delayed-downscale"
FORCED: Final = "forced by grafana.com/rollout-force-replicas"

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
    """Return a zone that mirrors DEMO."""
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
    """Return the zone with its StatefulSet changed."""
    return structs.replace(base, sts=replace(base.sts, **changes))


def guarded(base: Zone) -> Zone:
    """Return the zone with the label of prepare-downscale."""
    return changed(base, labels={**base.sts.labels, PREPARE_DOWNSCALE: "true"})


def snapshot(
    *zones: Zone,
    scale: str | NoScale | None = None,
    answers: Mapping[str, PodAnswer] | None = None,
    stay: Mapping[str, PodCalls] | None = None,
    written: Mapping[str, int] | None = None,
    seen: Mapping[str, timedelta] | None = None,
    deletions: Mapping[str, Deletion] | None = None,
    unreadable: tuple[Unreadable, ...] = (),
    downscale: Underway | None = None,
    snapshot_age: timedelta = timedelta(0),
    now: datetime = NOW,
) -> ScalingSnapshot:
    """Return what a plan is made of.

    `scale` is as `5/2`, spec and status of DEMO; `words` and `stay` are by pod as `b-4`, `written`
    by letter, `seen` is how long ago we saw zones go; the last four are those of the group.
    """
    readings: dict[Reference, Reading] = {}
    if isinstance(scale, NoScale):
        readings[DEMO] = scale
    elif scale is not None:
        spec, _, status = scale.partition("/")
        readings[DEMO] = Scale(replicas=int(spec), status_replicas=int(status))
    pod_calls = {
        Uid(f"uid-{pod}"): PodCalls(answer=answer) for pod, answer in (answers or {}).items()
    }
    pod_calls |= {Uid(f"uid-{pod}"): calls for pod, calls in (stay or {}).items()}
    return ScalingSnapshot(
        group=structs.replace(
            group(*zones, deletions=deletions),
            unreadable=unreadable,
            downscale=downscale,
            snapshot_age=snapshot_age,
            now=now,
        ),
        times={sts_uid(letter): NOW - ago for letter, ago in (seen or {}).items()},
        scales=readings,
        pod_calls=pod_calls,
        written={
            sts_uid(letter): Written(replicas=count, generation=2)
            for letter, count in (written or {}).items()
        },
    )


def read_snapshot(text: str) -> ScalingSnapshot:
    """Return a view such as `a 2 ago=1h; b 3 follows=a label=12h; mirroring c 3; scale 5/2`.

    Words before a letter: `mirroring`, `delayed` and `guarded`; `going` is a set being deleted.
    After it annotations by their short names, and fields of the set. Below the zones stand, each
    for itself, `written b 4`, `downscale b 5 3`, `stale 61`, `seen c 1h`, `accepted b-1`,
    `unreadable zone-x`, `scale lasting why it is none`; of pods `pod b-4 phase=Pending`,
    `lost b-4`, `says b-4 70m called=20s`, `failed b-4 why it gave no time`, and `stay b-0 b-1`.
    """
    zones: list[Zone] = []
    more: dict[str, Any] = {key: {} for key in ("answers", "stay", "written", "seen", "deletions")}
    for statement in filter(None, text.split("; ")):
        plain = [one for one in statement.split() if "=" not in one]
        annotations = dict(one.split("=", 1) for one in statement.split() if "=" in one)
        match plain:
            case ["scale", "lasting" | "passing" as kind, *why]:
                more["scale"] = NoScale(why=" ".join(why), is_lasting=kind == "lasting")
            case ["scale", counts]:
                more["scale"] = counts
            case ["written", letter, count]:
                more["written"][letter] = int(count)
            case ["downscale", letter, before, after]:
                more["downscale"] = Underway(
                    zone=f"zone-{letter}", replicas_from=int(before), replicas_to=int(after)
                )
            case ["stale", seconds]:
                more["snapshot_age"] = int(seconds) * SECOND
            case ["seen", letter, ago]:
                more["seen"][letter] = _read_span(ago)
            case ["accepted" | "unknown" as kind, pod]:
                more["deletions"][f"zone-{pod}"] = Deletion(kind)
            case ["unreadable", name]:
                more["unreadable"] = (unreadable("StatefulSet", name),)
            case ["says", pod, since]:
                begun = None if since == "-" else _read_span(since)
                called_ago = _read_span(annotations.get("called", "1s"))
                more["answers"][pod] = answer(begun, ago=called_ago)
            case ["failed", pod, *why]:
                more["answers"][pod] = answer(None, problem=" ".join(why))
            case ["stay", *pods]:
                more["stay"] |= called(*pods)
            case ["pod", *pods]:
                names = [f"zone-{pod}" for pod in pods]
                _, fields = read_arguments(statement)
                zones = [change_pods(one, names, fields) for one in zones]
            case ["lost", pod]:
                lost = unreadable("Pod", f"zone-{pod}", owner=pod[0] if not annotations else None)
                zones = [
                    structs.replace(one, unreadable_pods=(*one.unreadable_pods, lost))
                    if one.sts.name[-1] == pod[0]
                    else one
                    for one in zones
                ]
            case [*words, letter, replicas]:
                zones.append(_read_zone(words, letter, int(replicas), annotations))
            case _:
                raise ValueError(statement)
    return snapshot(*zones, **more)


_SET_FIELDS: Final = {
    "generation", "observed_generation", "replicas", "status_replicas", "ready_replicas",
    "first_ordinal", "current_revision", "update_revision",
}  # fmt: skip


def _read_zone(words: list[str], letter: str, replicas: int, given: Mapping[str, str]) -> Zone:
    make = delayed if "delayed" in words else mirroring if "mirroring" in words else counted
    annotations: dict[str, Any] = {
        key: text for key, text in given.items() if key not in _SET_FIELDS
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


def outline(plan: ScalingPlan) -> list[str]:
    """Return the whole plan as short lines, but for the times of the next reconciles."""
    lines = [f"{one.reason.code}: {one.reason.text}" for one in plan.scale]
    lines += [f"publish {one.replicas} to {one.reference}" for one in plan.publish]
    lines += [_outline_calls(calls) for calls in plan.pod_calls]
    lines += [_outline_reason("wait", reason) for reason in plan.waits]
    lines += [_outline_reason("problem", reason) for reason in plan.problems]
    return [*lines, *(f"failed {name}" for name in sorted(plan.failed))]


def show(*zones: Zone, scale: str | None = None) -> list[str]:
    """Return the outline of the plan for such a view."""
    return outline(plan_scaling(snapshot(*zones, scale=scale)))


def outline_snapshot(scaling: ScalingSnapshot, *, short: bool = False) -> list[str]:
    """Return the outline of the plan for a view, `nothing` where that is empty.

    `short`: `b: ` for `zone-b mirrors ... demo: `, FORCED and DEMO for what they stand for.
    """
    lines = outline(plan_scaling(scaling)) or ["nothing"]
    if short:
        lines = [_MIRRORS.sub(r"\1:", line) for line in lines]
        lines = [line.replace(FORCED, "FORCED").replace(SHOWN, "DEMO") for line in lines]
    return lines


_MIRRORS: Final = re.compile(rf"zone-(\w) mirrors {re.escape(SHOWN)}:")


def counts(plan: ScalingPlan) -> dict[str, int]:
    """Return the new counts by zone."""
    return {one.zone.name: one.replicas for one in plan.scale}


def codes(plan: ScalingPlan) -> list[str]:
    """Return what is waited for and what is wrong, as codes with zones."""
    return [f"{reason.code} {reason.zone}" for reason in (*plan.waits, *plan.problems)]


def _outline_reason(kind: str, reason: Reason) -> str:
    return f"{kind} {reason.code} {reason.zone}: {reason.text}"


def _outline_calls(calls: CallPods) -> str:
    """Return a line such as `call zone-b: stay 0 1 2, prepare 4 3`."""
    stay = sorted(calls.cancel, key=lambda endpoint: endpoint.pod)
    parts = [f"stay {_outline_pods(stay)}"] if stay else []
    parts += [f"prepare {_outline_pods(calls.post)}"] if calls.post else []
    return f"call {calls.zone.name}: {', '.join(parts)}"


def _outline_pods(endpoints: Iterable[Endpoint]) -> str:
    return " ".join(endpoint.pod.rpartition("-")[2] for endpoint in endpoints)


def called(*pods: str) -> dict[str, PodCalls]:
    """Return that these pods, such as `b-0`, were un-prepared a minute ago."""
    return dict.fromkeys(pods, PodCalls(cancelled_at=NOW - MINUTE))
