"""The hook rollout-health-check-validation: refuse a health check that could not be obeyed.

It judges the object alone, has no side effects and makes no calls. A URL that may not be called is
a warning only: the flag of this replica may change before the health check is used.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from rollout_operator.gates.model import HealthCheck, parse_spec
from rollout_operator.gates.prometheus import AllowedUrls
from rollout_operator.model.decode.wire import Wire
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import Review
from rollout_operator.planning.requests import allow, refuse

_JUDGED: Final = frozenset({"CREATE", "UPDATE"})
_INVALID: Final = 400


class _Head(Wire):
    deletion_timestamp: str | None = None


class _Terminating(Wire):
    metadata: _Head | None = None


_DECODER: Final = msgspec.json.Decoder(_Terminating)


def review_health_check(review: Review, allowed: AllowedUrls) -> Verdict:
    if review.operation not in _JUDGED or review.subresource or _is_terminating(review.body):
        return allow(Code.HEALTH_CHECK_VALID)
    try:
        check = parse_spec(review.body)
    except InvalidInput as error:
        return refuse(Code.HEALTH_CHECK_INVALID, str(error), status=_INVALID)
    warnings = _list_refused_urls(check, allowed, review.namespace)
    return allow(Code.HEALTH_CHECK_VALID, warning=next(warnings, ""))


def _list_refused_urls(check: HealthCheck, allowed: AllowedUrls, namespace: str) -> Iterator[str]:
    urls = [("prometheusURL", check.prometheus_url)]
    urls += [(f"checks[{at}].http.url", each.http) for at, each in enumerate(check.checks)]
    for field, url in urls:
        try:
            if url:
                allowed.check(url, namespace)
        except InvalidInput as error:
            yield f"{field} would not be called: {error}"


def _is_terminating(body: bytes) -> bool:
    """Return whether it ends, by updates that take off its finalizers."""
    try:
        head = _DECODER.decode(body).metadata
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return head is not None and bool(head.deletion_timestamp)
