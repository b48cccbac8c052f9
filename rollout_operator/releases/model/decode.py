"""JSON of the objects of `kuberik.com` → `model.releases`, or why an object is refused.

Decides what an absent field means and what is refused, as the schemas do; absent, null and an empty
list are the same. An object whose metadata cannot be read raises DecodeError; one whose spec cannot
be read still counts, and its status says so. A Rollout whose status cannot be read is unreadable as
a whole: an empty status would be that of a first deployment, which no gate holds back. A gate that
cannot be read does not pass, and a HealthCheck whose status cannot be read is not healthy.
"""

import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from rollout_operator.model import names
from rollout_operator.model.decode.installation import Shape
from rollout_operator.model.decode.objects import ReadHead, read_head
from rollout_operator.model.decode.wire import (
    JsonBytes,
    Wire,
    WireSelector,
    convert_selector,
    decode_shallow,
    decoder_of,
    explain,
)
from rollout_operator.model.names import GATE_DESCRIPTION, PRETTY_NAME, DecodeError, InvalidInput
from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.policy import SelectorRefused, check_selector
from rollout_operator.model.units import parse_duration, quote
from rollout_operator.releases.model.plan import CHECKED, HealthCheck, HealthCheckStatus
from rollout_operator.releases.model.releases import (
    CLUSTER_SCHEDULE,
    INTENTS,
    SCHEDULE,
    WEEKDAYS,
    CheckSelector,
    DateRange,
    GateOrigin,
    LabelledNamespace,
    MinuteRange,
    OwnerReference,
    RefusedRelease,
    ReleaseGate,
    ReleaseRollout,
    ReleaseSchedule,
    ReleaseSpec,
    ReleaseStatus,
    ScheduleAction,
    ScheduleObject,
    ScheduleRule,
    ScheduleStatus,
    check_tag,
)

_Wired = TypeVar("_Wired")
_Part = TypeVar("_Part")

_ROLLOUT_KIND: Final = "Rollout"

# Registries are not called more often than this, whatever a Rollout says.
_LEAST_INTERVAL: Final = timedelta(seconds=5)
_DURATION: Final = re.compile(r"([0-9]+(\.[0-9]+)?(ms|s|m|h))+")

_Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]

# Each rule is evaluated for each of 400 days: a tenant's object must not stop the process
# meanwhile.
MOST_RULES: Final = 256

# `[0-9]`, and not `\d`: digits of other scripts are none of the schema's.
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

_GATE_KIND: Final = "RolloutGate"

_LABELS: Final = (
    *(names.SCHEDULE_NAME, names.SCHEDULE_NAMESPACE, names.SCHEDULE_KIND),
    *(names.GATED_ROLLOUT, names.MANAGED_BY),
)

_HEALTH_CHECK_KIND: Final = "HealthCheck"

_DEFAULT_INTERVAL: Final = timedelta(seconds=30)
_LEAST_CHECK_INTERVAL: Final = timedelta(seconds=5)
# Any client may write them, and each stands in several places of the status of a Rollout.
_LONGEST_MESSAGE: Final = 1024
_DEFAULT_GRACE: Final = timedelta(minutes=2)


class _Specified(Wire, Generic[_Part]):
    spec: _Part


class _Reported(Wire, Generic[_Part]):
    status: _Part | None = None


def read_body(kind: str, raw: JsonBytes, shape: type[_Wired]) -> _Wired:
    """Return other fields of an object. Raises DecodeError naming object, field and value."""
    try:
        found: _Wired = decode_shallow(decoder_of(shape), raw)
        return found
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise explain(kind, raw, str(error)) from error


def _parse_selector(wire: WireSelector | None, path: str) -> LabelSelector | None:
    if wire is None:
        return None
    selector = convert_selector(wire)
    try:
        check_selector(selector)
    except SelectorRefused as error:
        raise InvalidInput(f"{path}{error.below}: {error}") from error
    return selector


def decode_labelled_namespace(raw: JsonBytes) -> LabelledNamespace:
    read = read_head("Namespace", raw)
    return LabelledNamespace(head=read.head, labels=read.labels)


class _PolicyRef(Wire):
    name: str = ""
    namespace: str | None = None


class _Checks(WireSelector):
    selector: WireSelector | None = None
    namespace_selector: WireSelector | None = None


class _RolloutSpec(Wire):
    releases_image_policy: _PolicyRef
    wanted_version: str | None = None
    version_history_limit: _Count | None = None
    available_releases_retention_days: _Count | None = None
    available_releases_min_count: _Count | None = None
    bake_time: str | None = None
    deploy_timeout: str | None = None
    health_check_selector: _Checks | None = None
    release_update_interval: str | None = None
    suspend: bool | None = None


class _Announced(Wire):
    releases_image_policy: _PolicyRef


def decode_rollout(raw: JsonBytes) -> ReleaseRollout | RefusedRelease:
    """Return a Rollout, or why it cannot be obeyed.

    Raises DecodeError naming object, field and value where metadata or status cannot be read.
    """
    read = read_head(_ROLLOUT_KIND, raw)
    status = read_body(_ROLLOUT_KIND, raw, _Reported[ReleaseStatus]).status or ReleaseStatus()
    try:
        spec = _convert_spec(read_body(_ROLLOUT_KIND, raw, _Specified[_RolloutSpec]).spec)
    except (DecodeError, InvalidInput) as error:
        # A DecodeError names its object already.
        own = "" if isinstance(error, DecodeError) else f"{_ROLLOUT_KIND} {read.head.key}: "
        problem = f"{own}{error}"
        return RefusedRelease(
            head=read.head,
            problem=problem,
            status=status,
            labels=read.labels,
            announced=_read_announced(raw, read, status),
        )
    return ReleaseRollout(
        head=read.head,
        spec=spec,
        intents={key: text for key in INTENTS if (text := read.annotation(key)) is not None},
        status=status,
        waits_for_flux=read.annotation(names.WAIT_FOR_FLUX) != "false",
        labels=read.labels,
    )


def _read_announced(raw: JsonBytes, read: ReadHead, status: ReleaseStatus) -> ReleaseRollout | None:
    try:
        policy = read_body(_ROLLOUT_KIND, raw, _Specified[_Announced]).spec.releases_image_policy
    except DecodeError:
        return None
    spec = ReleaseSpec(policy_name=policy.name, policy_namespace=policy.namespace or "")
    return ReleaseRollout(head=read.head, spec=spec, status=status, labels=read.labels)


def _convert_spec(wire: _RolloutSpec) -> ReleaseSpec:
    policy, default = wire.releases_image_policy, ReleaseSpec(policy_name="")
    days = wire.available_releases_retention_days
    try:
        wanted = None if wire.wanted_version is None else check_tag(wire.wanted_version)
    except InvalidInput as error:
        raise InvalidInput(f"spec.wantedVersion: {error}") from error
    return ReleaseSpec(
        policy_name=policy.name,
        policy_namespace=policy.namespace or "",
        wanted_version=wanted,
        history_limit=wire.version_history_limit or default.history_limit,
        # More days than there are since the year 1 are as good as all.
        retention=default.retention if days is None else timedelta(days=min(days, 10**6)),
        least_available=wire.available_releases_min_count or default.least_available,
        bake_time=_parse_duration(wire.bake_time, "bakeTime"),
        deploy_timeout=_parse_duration(wire.deploy_timeout, "deployTimeout"),
        checks=_convert_checks(wire.health_check_selector),
        update_interval=max(
            _parse_duration(wire.release_update_interval, "releaseUpdateInterval")
            or default.update_interval,
            _LEAST_INTERVAL,
        ),
        is_suspended=bool(wire.suspend),
    )


def _convert_checks(wire: _Checks | None) -> CheckSelector | None:
    """Return the selector, also from where kuberik's examples write it (RELB-02)."""
    if wire is None:
        return None
    path = "spec.healthCheckSelector"
    is_direct = wire.match_labels is not None or wire.match_expressions is not None
    if is_direct and wire.selector is not None:
        raise InvalidInput(f"{path}: it has labels both by themselves and below selector")
    inner, inner_path = (wire, path) if is_direct else (wire.selector, f"{path}.selector")
    return CheckSelector(
        selector=_parse_selector(inner, inner_path),
        namespaces=_parse_selector(wire.namespace_selector, f"{path}.namespaceSelector"),
    )


def _parse_duration(text: str | None, name: str) -> timedelta | None:
    if text is None:
        return None
    if not _DURATION.fullmatch(text):
        raise InvalidInput(f"spec.{name}: {quote(text)} is no duration such as 1h30m")
    try:
        return parse_duration(text)
    except InvalidInput as error:
        raise InvalidInput(f"spec.{name}: {error}") from error


class _Range(Wire):
    start: str
    end: str


class _Rule(Wire):
    name: str | None = None
    time_range: _Range | None = None
    days_of_week: list[str] | None = None
    date_range: _Range | None = None


class _Selectors(Wire):
    rollout_selector: WireSelector
    namespace_selector: WireSelector | None = None


class _ScheduleSpec(Wire):
    rules: Annotated[list[_Rule], Meta(min_length=1, max_length=MOST_RULES)]
    timezone: str | None = None
    action: str | None = None


def decode_schedule(kind: str, raw: JsonBytes) -> ScheduleObject:
    """Return a schedule of `SCHEDULE` or `CLUSTER_SCHEDULE`; an invalid schedule says why.

    Raises DecodeError where its metadata cannot be read. A status that cannot be read is replaced:
    no gate depends on it.
    """
    read = read_head(kind, raw)
    try:
        status = read_body(kind, raw, _Reported[ScheduleStatus]).status or ScheduleStatus()
    except DecodeError:
        status = ScheduleStatus()
    decoded = ScheduleObject(
        kind=kind,
        head=read.head,
        pretty_name=read.annotation(PRETTY_NAME),
        description=read.annotation(GATE_DESCRIPTION),
        status=status,
    )
    try:
        selectors = read_body(kind, raw, _Specified[_Selectors]).spec
        decoded = msgspec.structs.replace(
            decoded,
            rollouts=_parse_selector(selectors.rollout_selector, "spec.rolloutSelector"),
            namespaces=_parse_selector(selectors.namespace_selector, "spec.namespaceSelector"),
        )
        schedule = _convert_schedule(read_body(kind, raw, _Specified[_ScheduleSpec]).spec)
    except DecodeError as error:
        return msgspec.structs.replace(decoded, problem=str(error))
    except InvalidInput as error:
        return msgspec.structs.replace(decoded, problem=f"{kind} {read.head.key}: {error}")
    return msgspec.structs.replace(decoded, schedule=schedule)


def _convert_schedule(wire: _ScheduleSpec) -> ReleaseSchedule:
    return ReleaseSchedule(
        rules=tuple(
            _convert_rule(rule, f"spec.rules[{place}]") for place, rule in enumerate(wire.rules)
        ),
        time_zone=wire.timezone or "UTC",
        # What is unknown denies, as in the original (REL-97).
        action=ScheduleAction.ALLOW if wire.action == "Allow" else ScheduleAction.DENY,
    )


def _convert_rule(rule: _Rule, path: str) -> ScheduleRule:
    times, dates = rule.time_range, rule.date_range
    return ScheduleRule(
        name=rule.name or "",
        times=None
        if times is None
        else MinuteRange(
            _parse_time(times.start, f"{path}.timeRange.start"),
            _parse_time(times.end, f"{path}.timeRange.end"),
        ),
        weekdays=frozenset(
            _parse_weekday(day, f"{path}.daysOfWeek[{place}]")
            for place, day in enumerate(rule.days_of_week or ())
        ),
        dates=None if dates is None else _convert_dates(dates, f"{path}.dateRange"),
    )


def _convert_dates(dates: _Range, path: str) -> DateRange:
    first = _parse_date(dates.start, f"{path}.start")
    last = _parse_date(dates.end, f"{path}.end")
    if last < first:
        raise InvalidInput(f"{path}.end: {last} is before the start, {first}")
    return DateRange(first, last)


def _parse_time(text: str, path: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{path}: {quote(text)} is no time from 00:00 to 23:59")
    return int(match[1]) * 60 + int(match[2])


def _parse_date(text: str, path: str) -> date:
    if not _DATE.fullmatch(text):
        raise InvalidInput(f"{path}: {quote(text)} is no date such as 2025-12-24")
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{path}: no calendar has {quote(text)}") from error


def _parse_weekday(text: str, path: str) -> int:
    if text not in WEEKDAYS:
        raise InvalidInput(f"{path}: {quote(text)} is none of {', '.join(WEEKDAYS)}")
    return WEEKDAYS.index(text)


class _RolloutRef(Wire):
    name: str = ""


class _Named(Wire):
    rollout_ref: _RolloutRef


class _GateSpec(Wire):
    passing: bool | None = None
    allowed_versions: list[str] | None = None


class _Owned(Wire):
    owner_references: tuple[OwnerReference, ...] | None = None


class _WithOwners(Wire):
    metadata: _Owned


def decode_gate(raw: JsonBytes) -> ReleaseGate:
    """Return a gate. Raises DecodeError where it does not even say which Rollout it holds."""
    read = read_head(_GATE_KIND, raw)
    head, origin = read.head, _read_origin(read, raw)
    rollout = read_body(_GATE_KIND, raw, _Specified[_Named]).spec.rollout_ref.name
    try:
        spec = read_body(_GATE_KIND, raw, _Specified[_GateSpec]).spec
    except DecodeError as error:
        return ReleaseGate(
            head=head, rollout=rollout, is_passing=False, problem=str(error), origin=origin
        )
    allowed = spec.allowed_versions
    return ReleaseGate(
        head=head,
        rollout=rollout,
        is_passing=spec.passing is not False,
        allowed_versions=None if allowed is None else tuple(allowed),
        origin=origin,
    )


def _read_origin(read: ReadHead, raw: JsonBytes) -> GateOrigin:
    return GateOrigin(
        labels={key: read.labels[key] for key in _LABELS if key in read.labels},
        pretty_name=read.annotation(names.PRETTY_NAME),
        description=read.annotation(names.GATE_DESCRIPTION),
        owners=read_body(_GATE_KIND, raw, _WithOwners).metadata.owner_references or (),
    )


class _CheckSpec(Wire):
    check_class: str | None = msgspec.field(default=None, name="class")


class _WithCheckSpec(Wire):
    spec: _CheckSpec | None = None


def decode_health_check(raw: JsonBytes) -> HealthCheck:
    """Return a HealthCheck. Raises DecodeError where its metadata or class cannot be read."""
    read = read_head(_HEALTH_CHECK_KIND, raw)
    spec = read_body(_HEALTH_CHECK_KIND, raw, _WithCheckSpec).spec or _CheckSpec()
    try:
        status = (
            read_body(_HEALTH_CHECK_KIND, raw, _Reported[HealthCheckStatus]).status
            or HealthCheckStatus()
        )
    except DecodeError as error:
        status = HealthCheckStatus(message=str(error))
    message = None if status.message is None else status.message[:_LONGEST_MESSAGE]
    status = msgspec.structs.replace(
        status, status=status.status[:_LONGEST_MESSAGE], message=message
    )
    return HealthCheck(
        head=read.head,
        labels=read.labels,
        check_class=spec.check_class or "",
        named={
            kind: text
            for kind, key in CHECKED.items()
            if (text := read.annotation(key)) is not None
        },
        interval=max(
            _parse_span(read.annotation(names.CHECK_INTERVAL), _DEFAULT_INTERVAL),
            _LEAST_CHECK_INTERVAL,
        ),
        failure_grace=_parse_span(read.annotation(names.FAILURE_GRACE), _DEFAULT_GRACE),
        status=status,
    )


def _parse_span(text: str | None, default: timedelta) -> timedelta:
    try:
        return default if text is None else max(parse_duration(text), timedelta(0))
    except InvalidInput:
        return default


_SCHEDULE_FIELDS: Final[Mapping[str, Shape | None]] = {
    "rolloutSelector": WireSelector,
    "rules": _Rule,
    **dict.fromkeys(("timezone", "action")),
}
DEFINED: Final[Mapping[str, Mapping[str, Shape]]] = {
    _ROLLOUT_KIND: {"spec": _RolloutSpec, "status": ReleaseStatus},
    _GATE_KIND: {
        "spec": {"rolloutRef": _RolloutRef, **dict.fromkeys(("passing", "allowedVersions"))}
    },
    _HEALTH_CHECK_KIND: {"spec": _CheckSpec, "status": HealthCheckStatus},
    SCHEDULE: {"spec": _SCHEDULE_FIELDS, "status": ScheduleStatus},
    CLUSTER_SCHEDULE: {
        "spec": {**_SCHEDULE_FIELDS, "namespaceSelector": WireSelector},
        "status": ScheduleStatus,
    },
}
"""The fields of a kind that are read or written, for a comparison with its definition."""
