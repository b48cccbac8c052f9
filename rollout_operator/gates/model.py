"""A RolloutHealthCheck: JSON → what it says, or why it is refused.

Fields, defaults and refusals are those of grafana/rollout-operator#469; `http`, `firstZonePods`,
`onMisconfigured`, `secretRef` and the status are ours. Absent and null are the same. Watched
objects and objects under review are refused in the same words.

Any client may have written a status. One that is not ours counts as empty: the counters begin anew,
and until then the gate holds.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Annotated, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from rollout_operator.model.decode.installation import Shape
from rollout_operator.model.decode.objects import read_head, watch_as
from rollout_operator.model.decode.wire import (
    LONGEST_VALUE,
    SMALL,
    Fields,
    JsonBytes,
    Wire,
    as_fields,
    decode_shallow,
    show_value,
)
from rollout_operator.model.names import LONGEST_NAME, InvalidInput, Uid
from rollout_operator.model.objects import AnyWatched, LabelSelector, WatchedHead, WatchedObject
from rollout_operator.model.units import find_url_problem, parse_duration, quote

KIND: Final = "RolloutHealthCheck"

TARGET_MATCHERS: Final = "${targetMatchers}"
RANGE: Final = "${range}"
CURRENT: Final = "${current}"
BASELINE: Final = "${baseline}"

# Each is three questions to Prometheus, one after another.
MOST_CHECKS: Final = 32
_LONGEST_QUERY: Final = LONGEST_VALUE
_MOST_TIMES: Final = 2**31 - 1
# No API server stores a longer one.
_LONGEST_STATUS: Final = 24 * SMALL
# At rest each takes some bytes alone, and all are lost together.
_MOST_GROUPS: Final = 20_000
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

_Tree = Mapping[str, object]
_Value = TypeVar("_Value")
_Default = TypeVar("_Default")
_Time = Annotated[datetime, Meta(tz=True)]
_Count = Annotated[int, Meta(ge=0)]


@unique
class Action(StrEnum):
    """What a failure leads to in the end."""

    PAUSE = "Pause"
    WARN = "Warn"
    DISABLED = "Disabled"


@unique
class OnMisconfigured(StrEnum):
    """What becomes of a rollout whose health check is broken."""

    PROCEED = "Proceed"
    PAUSE = "Pause"


@unique
class Result(StrEnum):
    """Of one evaluation; values of the metric's label."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    NO_DATA = "no_data"
    ERROR = "error"
    SKIPPED = "skipped"


class Number(msgspec.Struct, frozen=True):
    """An answer that can be compared; an HTTP status for a check by URL."""

    value: float


class NoData(msgspec.Struct, frozen=True):
    """An answer without a sample, or with one that is no number."""


class QueryError(msgspec.Struct, frozen=True):
    """No answer, or none that is of use."""

    text: str


Answer: TypeAlias = Number | NoData | QueryError


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """For errors, or for answers without data."""

    retry_interval: timedelta
    max_attempts: int = 3
    exhausted_action: Action = Action.PAUSE


class FailurePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """For checks that pass or fail."""

    reevaluation_interval: timedelta = timedelta(minutes=2, seconds=30)
    consecutive_failures: int = 3
    consecutive_successes: int = 1
    exceeded_action: Action = Action.PAUSE


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Two queries, or a URL."""

    name: str
    query: str = ""
    success_query: str = ""
    http: str = ""
    """A URL that answers 2xx; empty for a check by queries."""
    current_range: timedelta = timedelta(minutes=5)
    baseline_range: timedelta = timedelta(minutes=10)
    disabled: bool = False
    error_policy: RetryPolicy = RetryPolicy(retry_interval=timedelta(seconds=10))
    no_data_policy: RetryPolicy = RetryPolicy(retry_interval=timedelta(seconds=30))
    failure_policy: FailurePolicy = FailurePolicy()

    @property
    def shown_url(self) -> str:
        """Return its URL without the query, which may hold a token."""
        return self.http.partition("?")[0]


class SetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Since when pods need the update revision of a StatefulSet."""

    name: str
    update_revision: str
    seen_at: _Time
    stable_revision: str = ""
    """What its pods ran then: to go back to it is a rollback."""
    passed_at: _Time | None = None
    """When the gate let it begin; or since when it is known here, after one left the group."""


class CheckStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Of one check of a group: its last evaluation, and how many were alike in a row."""

    name: str
    successes: _Count = 0
    failures: _Count = 0
    error_attempts: _Count = 0
    no_data_attempts: _Count = 0
    result: Result | None = None
    current: str = ""
    """As `format_number` writes it, and so is `baseline`; empty if unknown."""
    baseline: str = ""
    message: str = ""
    evaluated_at: _Time | None = None
    next_at: _Time | None = None
    """When it is evaluated again at the earliest."""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    group: str
    stateful_sets: tuple[SetStatus, ...] = ()
    """None where nothing is rolled out."""
    late: bool = False
    """Its rollout had begun before: all pods at an update revision count as updated."""
    left_at: _Time | None = None
    """When one that was let begin was last known to count here, of those that left the group."""
    checks: Annotated[tuple[CheckStatus, ...], Meta(max_length=MOST_CHECKS)] = ()


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Of each rollout group that is bound to the health check."""

    observed_generation: int = 0
    groups: Annotated[tuple[GroupStatus, ...], Meta(max_length=_MOST_GROUPS)] = ()

    def find(self, group: str) -> GroupStatus:
        """Return what is recorded of a group, perhaps nothing."""
        return next((each for each in self.groups if each.group == group), GroupStatus(group=group))


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A valid one, with defaults filled in."""

    head: WatchedHead
    selector: LabelSelector
    """Of the StatefulSets that may be bound to it; never empty."""
    checks: tuple[Check, ...]
    prometheus_url: str = ""
    """Empty if all checks are URLs."""
    on_misconfigured: OnMisconfigured = OnMisconfigured.PROCEED
    first_zone_pods: int | None = None
    """Where the first zone stops until the gate has passed; None for nowhere."""
    secret: str | None = None
    """Whose credentials Prometheus gets."""
    status: Status = Status()


class FlawedHealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One that cannot be obeyed."""

    head: WatchedHead
    problem: str
    on_misconfigured: OnMisconfigured = OnMisconfigured.PROCEED
    """As far as it can be read."""


_RETRIES: Final[Shape] = dict.fromkeys(("retryInterval", "maxAttempts", "exhaustedAction"))
DEFINED: Final[Mapping[str, Mapping[str, Shape]]] = {
    KIND: {
        "spec": {
            **dict.fromkeys(("prometheusURL", "onMisconfigured", "firstZonePods")),
            "selector": {"matchLabels": None},
            "secretRef": {"name": None},
            "checks": {
                **dict.fromkeys(("name", "query", "successQuery", "disabled")),
                **dict.fromkeys(("currentRange", "baselineRange")),
                "http": {"url": None},
                "errorPolicy": _RETRIES,
                "noDataPolicy": _RETRIES,
                "failurePolicy": {
                    **dict.fromkeys(("reevaluationInterval", "exceededAction")),
                    **dict.fromkeys(("consecutiveFailures", "consecutiveSuccesses")),
                },
            },
        },
        "status": Status,
    }
}
"""The fields that are read or written, for a comparison with its definition."""


class _Reported(Wire):
    status: Status | None = None


# The default of each field.
_CHECK: Final = Check(name="")

_SPEC: Final = Fields({"kind": LONGEST_VALUE, "spec": SMALL})
_STATUS: Final = Fields({"status": _LONGEST_STATUS})
_STATUS_DECODER: Final = msgspec.json.Decoder(_Reported)


def format_number(number: float) -> str:
    """Return a number as PromQL reads it, such as `0.05`, `1e-07`, `12` or `+Inf`."""
    if number in (float("inf"), float("-inf")):
        return "+Inf" if number > 0 else "-Inf"
    return repr(number).removesuffix(".0")


def decode_health_check(raw: JsonBytes) -> HealthCheck | FlawedHealthCheck:
    """Return a health check, also where it is flawed.

    Raises DecodeError naming object, field and value where not even its metadata can be read.
    """
    head = read_head(KIND, raw).head
    try:
        return msgspec.structs.replace(parse_spec(raw), head=head, status=_read_status(raw))
    except InvalidInput as error:
        return FlawedHealthCheck(
            head=head, problem=str(error), on_misconfigured=_salvage_choice(raw)
        )


watch_health_check: Final = watch_as(decode_health_check)


def read_watched(watched: AnyWatched) -> HealthCheck | FlawedHealthCheck:
    """Return what a watch has kept, also of what could not be decoded at all."""
    if isinstance(watched, WatchedObject):
        assert isinstance(watched.decoded, HealthCheck | FlawedHealthCheck), "kept by us"
        return watched.decoded
    head = WatchedHead(
        namespace=watched.namespace,
        name=watched.name,
        uid=watched.uid,
        resource_version=watched.resource_version,
    )
    # Perhaps this one message alone was broken, and the object lets nothing begin.
    return FlawedHealthCheck(
        head=head, problem=watched.error, on_misconfigured=OnMisconfigured.PAUSE
    )


def parse_spec(raw: JsonBytes) -> HealthCheck:
    """Return a health check without its metadata: under review that is not whole yet.

    Raises InvalidInput with the first thing that is wrong with it.
    """
    tree = _excerpt(raw)
    if tree.get("kind") != KIND:
        raise InvalidInput(f"unexpected object kind - expecting {KIND}")
    spec = tree.get("spec")
    if spec is not None and not isinstance(spec, dict):
        raise InvalidInput(f"invalid value: spec must be an object, got {show_value(spec)}")
    spec = as_fields(spec)
    url = _read_prometheus_url(spec)
    found = spec.get("checks")
    needs_url = not isinstance(found, list) or any(not as_fields(one).get("http") for one in found)
    if needs_url and not url:
        raise InvalidInput("invalid value: prometheusURL is required")
    selector = LabelSelector(labels=_read_labels(spec))
    checks = _read_checks(spec)
    return HealthCheck(
        head=WatchedHead(namespace="", name="", uid=Uid(""), resource_version=""),
        selector=selector,
        checks=checks,
        prometheus_url=url,
        on_misconfigured=_read(spec, "onMisconfigured", _as_choice, OnMisconfigured.PROCEED),
        first_zone_pods=_read(spec, "firstZonePods", _as_count, None),
        secret=_read(spec, "secretRef", _as_secret, None),
    )


def _excerpt(raw: JsonBytes) -> _Tree:
    try:
        tree: object = msgspec.json.decode(_SPEC.excerpt(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"invalid value: {error}") from error
    return as_fields(tree)


def _read_status(raw: JsonBytes) -> Status:
    try:
        excerpt = _STATUS.excerpt(raw, 2 * _LONGEST_STATUS)
        return decode_shallow(_STATUS_DECODER, excerpt).status or Status()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Status()


def _salvage_choice(raw: JsonBytes) -> OnMisconfigured:
    try:
        spec = as_fields(_excerpt(raw).get("spec"))
        return _read(spec, "onMisconfigured", _as_choice, OnMisconfigured.PROCEED)
    except InvalidInput:
        return OnMisconfigured.PROCEED


def _read_prometheus_url(spec: _Tree) -> str:
    value = spec.get("prometheusURL")
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"invalid prometheusURL: expected string, got {show_value(value)}")
    return _check_url((value or "").strip(), "prometheusURL", may_have_query=False)


def _check_url(url: str, field: str, *, may_have_query: bool) -> str:
    """Return a URL, perhaps empty. Raises InvalidInput."""
    if not url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidInput(f"invalid value: {field} is not a valid URL: {error}") from error
    if parts.scheme not in ("http", "https"):
        raise InvalidInput(f"invalid value: {field} scheme must be http or https")
    if not parts.netloc:
        raise InvalidInput(f"invalid value: {field} must include a host")
    # The object is shown to many, and a Secret to few.
    if "@" in parts.netloc:
        raise InvalidInput(f"invalid value: {field} must not contain credentials, see secretRef")
    if parts.fragment or (parts.query and not may_have_query):
        raise InvalidInput(f"invalid value: {field} must end with its path")
    if len(url) > _LONGEST_QUERY:
        raise InvalidInput(f"invalid value: {field} is longer than {_LONGEST_QUERY} characters")
    problem = find_url_problem(url, ("http", "https"))
    # A proxy might read an escaped host as another one than is allowed.
    if "%" in parts.netloc:
        problem = "has an invalid host"
    if problem:
        raise InvalidInput(f"invalid value: {field} {problem}")
    return url


def _read_labels(spec: _Tree) -> Mapping[str, str]:
    selector = spec.get("selector")
    labels = as_fields(selector).get("matchLabels")
    if not isinstance(selector, dict | None) or not isinstance(labels, dict | None):
        raise InvalidInput(f"invalid value: selector is not valid, got {show_value(selector)}")
    if not labels:
        raise InvalidInput("invalid value: selector.matchLabels is required")
    for key, value in labels.items():
        if not isinstance(value, str):
            raise InvalidInput(
                f"invalid value: selector is not valid, got {show_value(value)} under {quote(key)}"
            )
    return labels


def _read_checks(spec: _Tree) -> tuple[Check, ...]:
    found = spec.get("checks")
    if found is not None and not isinstance(found, list):
        raise InvalidInput(f"invalid checks: expected a list, got {show_value(found)}")
    if not found:
        raise InvalidInput("invalid value: checks must contain at least one entry")
    if len(found) > MOST_CHECKS:
        raise InvalidInput(f"invalid value: checks has {len(found)} entries, at most {MOST_CHECKS}")
    checks: dict[str, Check] = {}
    for index, item in enumerate(found):
        path = f"checks[{index}]"
        if not isinstance(item, dict):
            raise InvalidInput(f"invalid value: {path} must be an object")
        check = _read_check(item, f"{path}.")
        if check.name in checks:
            raise InvalidInput(f"invalid value: duplicate check name {quote(check.name)}")
        checks[check.name] = check
    return tuple(checks.values())


def _read_check(tree: _Tree, path: str) -> Check:
    name = _require_text(tree, f"{path}name").strip()
    if len(name) > LONGEST_NAME:
        raise InvalidInput(f"invalid value: {path}name is longer than {LONGEST_NAME} characters")
    if not name.isprintable():
        raise InvalidInput(f"invalid value: {path}name contains a control character")
    http = tree.get("http")
    if http is not None and (tree.get("query") or tree.get("successQuery")):
        raise InvalidInput(f"invalid value: {path}http cannot be set beside a query")
    by_query = http is None
    return Check(
        name=name,
        query=_require_query(tree, f"{path}query", TARGET_MATCHERS, RANGE) if by_query else "",
        success_query=(
            _require_query(tree, f"{path}successQuery", CURRENT, BASELINE) if by_query else ""
        ),
        http="" if by_query else _as_http(http, f"{path}http"),
        current_range=_read(tree, f"{path}currentRange", _as_duration, _CHECK.current_range),
        baseline_range=_read(tree, f"{path}baselineRange", _as_duration, _CHECK.baseline_range),
        disabled=_read(tree, f"{path}disabled", _as_bool, _CHECK.disabled),
        error_policy=_read_retries(tree, f"{path}errorPolicy", _CHECK.error_policy),
        no_data_policy=_read_retries(tree, f"{path}noDataPolicy", _CHECK.no_data_policy),
        failure_policy=_read_failures(tree, f"{path}failurePolicy", _CHECK.failure_policy),
    )


def _read_retries(tree: _Tree, path: str, default: RetryPolicy) -> RetryPolicy:
    policy = _read(tree, path, _as_object, {})
    return RetryPolicy(
        retry_interval=_read(policy, f"{path}.retryInterval", _as_duration, default.retry_interval),
        max_attempts=_read(policy, f"{path}.maxAttempts", _as_count, default.max_attempts),
        exhausted_action=_read(
            policy, f"{path}.exhaustedAction", _as_action, default.exhausted_action
        ),
    )


def _read_failures(tree: _Tree, path: str, default: FailurePolicy) -> FailurePolicy:
    policy = _read(tree, path, _as_object, {})
    return FailurePolicy(
        reevaluation_interval=_read(
            policy, f"{path}.reevaluationInterval", _as_duration, default.reevaluation_interval
        ),
        consecutive_failures=_read(
            policy, f"{path}.consecutiveFailures", _as_count, default.consecutive_failures
        ),
        consecutive_successes=_read(
            policy, f"{path}.consecutiveSuccesses", _as_count, default.consecutive_successes
        ),
        exceeded_action=_read(
            policy, f"{path}.exceededAction", _as_action, default.exceeded_action
        ),
    )


def _read(
    tree: _Tree, path: str, parse: Callable[[object, str], _Value], default: _Default
) -> _Value | _Default:
    """Return the field at the end of `path`."""
    value = tree.get(path.rpartition(".")[2])
    return default if value is None else parse(value, path)


def _require_text(tree: _Tree, path: str) -> str:
    value = tree.get(path.rpartition(".")[2])
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"invalid value: {path} is required")
    return value


def _require_query(tree: _Tree, path: str, *placeholders: str) -> str:
    query = _require_text(tree, path)
    if len(query) > _LONGEST_QUERY:
        raise InvalidInput(f"invalid value: {path} is longer than {_LONGEST_QUERY} characters")
    for placeholder in placeholders:
        if placeholder not in query:
            raise InvalidInput(f"invalid value: {path} must contain {placeholder}")
    return query


def _as_object(value: object, path: str) -> _Tree:
    if not isinstance(value, dict):
        raise InvalidInput(f"invalid value: {path} must be an object")
    return value


def _as_http(value: object, path: str) -> str:
    url = _require_text(_as_object(value, path), f"{path}.url").strip()
    return _check_url(url, f"{path}.url", may_have_query=True)


def _as_secret(value: object, path: str) -> str:
    name = _require_text(_as_object(value, path), f"{path}.name")
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise InvalidInput(f"invalid value: {path}.name is no name of a Secret: {show_value(name)}")
    return name


def _as_duration(value: object, path: str) -> timedelta:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"invalid value: {path} must be a duration string")
    try:
        span = parse_duration(value)
    except InvalidInput as error:
        raise InvalidInput(f"invalid value: {path} is not a valid duration: {error}") from error
    if span <= timedelta(0):
        raise InvalidInput(f"invalid value: {path} must be > 0")
    return span


def _as_bool(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"invalid value: {path} must be a boolean")
    return value


def _as_count(value: object, path: str) -> int:
    # A whole number may be written as `3.0`.
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 or value < 1:
        raise InvalidInput(f"invalid value: {path} must be >= 1")
    if value > _MOST_TIMES:
        raise InvalidInput(f"invalid value: {path} must be <= {_MOST_TIMES}")
    return int(value)


def _as_action(value: object, path: str) -> Action:
    if not isinstance(value, str):
        raise InvalidInput(f"invalid value: {path} must be a string")
    if value not in list(Action):
        raise InvalidInput(f"invalid value: {path} must be Pause, Warn, or Disabled")
    return Action(value)


def _as_choice(value: object, path: str) -> OnMisconfigured:
    if not isinstance(value, str) or value not in list(OnMisconfigured):
        raise InvalidInput(f"invalid value: {path} must be Proceed or Pause")
    return OnMisconfigured(value)
