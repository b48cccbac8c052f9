"""JSON of a HealthCheck → `HealthCheck`.

Other controllers may write its status. A status that cannot be read is no health: a bake does not
start by it, and its message says why.
"""

from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.model import names
from rollout_operator.model.decode.releases.head import read_body, read_head
from rollout_operator.model.decode.wire import JsonBytes, Wire
from rollout_operator.model.errors import DecodeError, InvalidInput
from rollout_operator.model.releases.health import HealthCheck, HealthCheckStatus
from rollout_operator.model.units import parse_duration

KIND: Final = "HealthCheck"

_DEFAULT_INTERVAL: Final = timedelta(seconds=30)
_LEAST_INTERVAL: Final = timedelta(seconds=5)
# Any client may write them, and each stands in several places of the status of a Rollout.
LONGEST_MESSAGE: Final = 1024
_DEFAULT_GRACE: Final = timedelta(minutes=2)


class _Spec(Wire):
    check_class: str | None = msgspec.field(default=None, name="class")


class _WithSpec(Wire):
    spec: _Spec | None = None


class _WithStatus(Wire):
    status: HealthCheckStatus | None = None


_SPEC: Final = msgspec.json.Decoder(_WithSpec)
_STATUS: Final = msgspec.json.Decoder(_WithStatus)


def decode_health_check(raw: JsonBytes) -> HealthCheck:
    """Return a HealthCheck. Raises DecodeError where its metadata or class cannot be read."""
    read = read_head(KIND, raw)
    spec = read_body(KIND, raw, _SPEC).spec or _Spec()
    try:
        status = read_body(KIND, raw, _STATUS).status or HealthCheckStatus()
    except DecodeError as error:
        status = HealthCheckStatus(message=str(error))
    message = None if status.message is None else status.message[:LONGEST_MESSAGE]
    status = msgspec.structs.replace(
        status, status=status.status[:LONGEST_MESSAGE], message=message
    )
    return HealthCheck(
        head=read.head,
        labels=read.labels,
        check_class=spec.check_class or "",
        kustomization=read.annotation(names.CHECKED_KUSTOMIZATION),
        rollout_group=read.annotation(names.CHECKED_GROUP),
        policy=read.annotation(names.CHECKED_POLICY),
        interval=parse_check_interval(read.annotation(names.CHECK_INTERVAL)),
        failure_grace=_parse_span(read.annotation(names.FAILURE_GRACE), _DEFAULT_GRACE),
        status=status,
    )


def parse_check_interval(text: str | None) -> timedelta:
    """Return the time between two evaluations, by the annotation (RT-135)."""
    return max(_parse_span(text, _DEFAULT_INTERVAL), _LEAST_INTERVAL)


def _parse_span(text: str | None, default: timedelta) -> timedelta:
    try:
        return default if text is None else max(parse_duration(text), timedelta(0))
    except InvalidInput:
        return default
