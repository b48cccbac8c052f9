"""What HealthChecks find, and what becomes of their status: a case a line, in `tables`.

An object is its kind, conditions with reason and minute, and fields of its status by name:
`Kustomization -Ready:BuildFailed@1 meta.generation=3 observedGeneration=2`.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.outcome import Code, Reason
from rollout_operator.model.units import format_rfc3339
from rollout_operator.releases.model.plan import (
    CheckClass,
    CheckFinding,
    HealthCheckStatus,
    HealthStatus,
    ObjectStatus,
    StatusVerdict,
)
from rollout_operator.releases.model.releases import BakeStatus, CheckSelector, ReleaseStatus
from rollout_operator.releases.planning.flux import assess_status, get_failure_time
from rollout_operator.releases.planning.health_checks import (
    FluxFailure,
    InventoryFinding,
    assess_group,
    assess_held,
    assess_kustomization,
    assess_object,
    assess_policy,
    describe_stall,
    find_class,
    find_flux_blocker,
    find_reset,
    has_lasted,
    needs_read,
    next_read,
    parse_check_reference,
    parse_inventory_id,
    record_finding,
    track_failure,
)
from tests.planning.releases.builders import (
    ALL_CHECKS,
    MINUTE,
    at,
    check,
    entry,
    read_minutes,
    rollout,
    show_minutes,
)
from tests.stories import check_tables

API: Final = {
    **dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"), "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    **dict.fromkeys(("Pod", "PersistentVolumeClaim", "Service", "Secret"), "v1"),
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "Kustomization": "kustomize.toolkit.fluxcd.io/v1",
}
COUNTS: Final = ("replicas", *(f"{one}Replicas" for one in
                 ("ready", "current", "updated", "available", "fullyLabeled")))  # fmt: skip
DAEMONS: Final = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled",
                  "numberAvailable", "numberReady")  # fmt: skip
STATES: Final = {"+": "True", "-": "False", "?": "Unknown"}
CONDITION: Final = re.compile(r"([+?-])(\w+)(?::(\w+))?(?:@(.+))?")
GRACE: Final = timedelta(minutes=2)
HOLD: Final = CheckFinding(status=HealthStatus.PENDING, text="waiting for Flux")
STALL: Final = CheckFinding(status=HealthStatus.UNHEALTHY, text="stalled", failed_at=at(0))


def read_object(words: Sequence[str]) -> dict[str, Any]:
    kind, _, api = words[0].partition("@")
    status: dict[str, Any] = {}
    tree: dict[str, Any] = {
        "apiVersion": api or API.get(kind, "example.com/v1"),
        "kind": kind,
        "metadata": {"name": "db-a", "generation": 1},
        "spec": {},
        "status": status,
    }
    for word in words[1:]:
        if found := CONDITION.fullmatch(word):
            status.setdefault("conditions", []).append(_read_condition(found))
            continue
        key, _, text = word.partition("=")
        if key in ("counts", "daemons"):
            names = COUNTS if key == "counts" else DAEMONS
            numbers = map(int, text.split(","))
            both = {"currentRevision": "a", "updateRevision": "a"} if key == "counts" else {}
            status.update({**dict(zip(names, numbers, strict=False)), **both})
            continue
        *path, last = key.replace("meta", "metadata", 1).split(".")
        place = tree if path or last in tree else status
        for one in path:
            place = place.setdefault(one, {})
        place[last] = _read_value(text)
    return {} if kind == "none" else tree


def _read_condition(found: re.Match[str]) -> dict[str, str]:
    sign, kind, reason, minute = found.groups()
    since = "never" if minute == "never" else format_rfc3339(at(float(minute or 0)))
    return {
        "type": kind,
        "status": STATES[sign],
        "reason": reason or "",
        "message": "m",
        "lastTransitionTime": since,
    }


def _read_value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def show_object(text: str) -> str:
    words = text.split()
    [now] = [word[4:] for word in words if word.startswith("now=")] or ["0"]
    tree = read_object([word for word in words if not word.startswith("now=")])
    verdict = assess_status(tree, at(float(now)))
    return f"{verdict.status}: {verdict.text}".removesuffix(": ")


def show_time(text: str) -> str:
    return show_minutes(get_failure_time(read_object(text.split()))) or "none"


def show_failure(text: str) -> str:
    known: FluxFailure | None = None
    tree: dict[str, Any] = {}
    now = at(0)
    for read in text.split("; "):
        minute, *words = read.split()
        tree, now = read_object(words), at(float(minute))
        known = track_failure(tree, known, now)
    lasts = has_lasted(known, now, GRACE)
    found = assess_object("app", tree, now, known if lasts else None)
    assert found.verdict is not None
    parts = [f"{found.verdict.status}: {found.verdict.text}"]
    parts += [f"failed {show_minutes(found.failed_at)}"] if found.failed_at else []
    if known is not None:
        parts.append(f"{known.text} since {show_minutes(known.since)}")
        wait = next_read([known, replace(known, since=now)], now, GRACE)
        assert wait is not None
        assert next_read([known], now, GRACE) == (None if lasts else wait)
        parts += [] if lasts else [f"again in {wait / MINUTE:.3g}"]
    return "; ".join(parts)


def show_inventory(text: str) -> str:
    words = text.split()
    [unread] = [int(word[7:]) for word in words if word.startswith("unread=")] or [0]
    findings = [_read_finding(word) for word in words if not word.startswith(("unread=", "held"))]
    if "held" in words:
        return _show(assess_held(HOLD, findings[0]))
    return _show(assess_kustomization(findings[0], findings[1:], unread))


def _read_finding(word: str) -> InventoryFinding:
    name, sign, text = next(
        word.partition(sign) for sign in "=!?" if re.match(rf"\w+\{sign}", word)
    )
    text = text.replace("_", " ") if sign != "=" else text
    if sign != "=":
        return InventoryFinding(name=name, problem=text, may_pass=sign == "?")
    text, _, failed = text.partition("@")
    status, _, said = text.partition(":")
    if status == "gone":
        return InventoryFinding(name=name)
    verdict = StatusVerdict(ObjectStatus(status), said.replace("_", " "))
    failed_at = at(float(failed)) if failed else None
    return InventoryFinding(name=name, verdict=verdict, failed_at=failed_at)


def show_zones(text: str) -> str:
    kind, *words = text.split()
    if kind == "waits":
        found = describe_stall([Reason(code=Code[words[0].upper()], text="why")], at(3))
        return "none" if found is None else _show(found)
    sets = [_read_zone(word[5:]) for word in words if word.startswith("zone=")]
    rest = [word for word in words if not word.startswith("zone=")]
    if kind == "group":
        return _show(assess_group(sets, at(5), STALL if "stalled" in rest else None))
    own = read_object(["MultiAZRollout@rollout.grafana.com/v1alpha1", *rest])
    return _show(assess_policy(own, sets, at(5)))


def _read_zone(text: str) -> dict[str, Any]:
    updated, ready = text.split(",")
    words = f"readyReplicas={ready} updatedReplicas={updated} replicas=3 observedGeneration=1"
    spec = "spec.replicas=3 spec.updateStrategy.type=OnDelete"
    return read_object(f"StatefulSet {spec} {words}".split())


def _show(found: CheckFinding) -> str:
    failed = "" if found.failed_at is None else f" (failed {show_minutes(found.failed_at)})"
    return f"{found.status}: {found.text}{failed}".rstrip()


def show_record(text: str) -> str:
    before, _, after = text.partition(" to ")
    status, *words = after.split()
    failed = _times(words).get("failed")
    finding = CheckFinding(status=HealthStatus(status), text="m", failed_at=failed)
    old, *words = shlex.split(before)
    times = _times(words)
    known = HealthCheckStatus(
        status=old,
        last_change_time=times.get("change"),
        last_error_time=times.get("error"),
        message="m",
    )
    return _show_status(record_finding(known, finding, at(9)))


def _times(words: Sequence[str]) -> Mapping[str, datetime]:
    return {key: at(read_minutes(text)) for key, text in (word.split("=") for word in words)}


def _show_status(one: HealthCheckStatus) -> str:
    times = (("change", one.last_change_time), ("error", one.last_error_time))
    shown = [f"{name}={show_minutes(when)}" for name, when in times if when is not None]
    return " ".join([one.status, *shown, *[f'"{one.message}"'] * (one.message != "m")])


def show_reset(text: str) -> str:
    words = text.split()
    given = dict(word.split("=") for word in words if "=" in word)
    minutes = {key: read_minutes(given[key]) for key in ("change", "error", "deployed", "retry")
               if key in given}  # fmt: skip
    known = check(
        status="Unhealthy",
        change=minutes.get("change"),
        error=minutes.get("error"),
        message="down",
        namespace=given.get("namespace", "prod"),
    )
    everywhere = CheckSelector(selector=LabelSelector(), namespaces=LabelSelector())
    selectors = {"none": None, "everywhere": everywhere}
    past = entry(
        "1.0.0",
        BakeStatus(given.get("bake", "Succeeded")),
        minutes.get("deployed", 0),
        last_retry_timestamp=at(minutes["retry"]) if "retry" in given else None,
        bake_start_time=at(121) if "started" in words else None,
    )
    status = ReleaseStatus(history=(past,) if "deployed" in given else ())
    owner = rollout(status=status, checks=selectors.get(given.get("checks", ""), ALL_CHECKS))
    spaces = {"prod": {}, "infra": {"team": "platform"}}
    anew = find_reset(known, (owner,), spaces, at(180))
    waits = {"prod/app": "it has fetched 0"} if "waits" in words else {}
    blocker = find_flux_blocker(known, (owner,), spaces, waits)
    parts = ["stays" if anew is None else _show_status(anew)]
    return "; ".join([*parts, *([_show(blocker)] if blocker else [])])


def show_name(text: str) -> str:
    kind, *rest = shlex.split(text)
    try:
        if kind == "class":
            return find_class(replace(check(), check_class=rest[0])) or "none"
        if kind == "id":
            found = parse_inventory_id(rest[0])
            read = "read" if needs_read(found) else "not read"
            return f"{found.key}{f' of {found.group}' if found.group else ''}; {read}"
        named = replace(check(), named={kind: rest[0]} if rest else {})
        place = parse_check_reference(named, CheckClass(kind))
    except InvalidInput as error:
        return str(error)
    return f"{place.kind} {place.namespace}/{place.name}"


test_case = check_tables(
    __file__,
    "tables",
    objects=show_object,
    times=show_time,
    failures=show_failure,
    inventories=show_inventory,
    zones=show_zones,
    records=show_record,
    resets=show_reset,
    names=show_name,
)
