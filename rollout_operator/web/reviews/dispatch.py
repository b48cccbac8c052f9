"""One review in, one answer out, in time: what stands between a server and the hooks.

Decides when the answer must be out, and what the answer is where a hook is late or breaks: always a
refusal. The hooks decide what a verdict says, `answer` how it reads, and the server what is a
review at all.
"""

import asyncio
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import parse_qs

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.review import Review, Scalable, Unusable
from rollout_operator.model.units import format_duration, parse_duration
from rollout_operator.planning.downscales.request import RETRY, refuse
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.spans import Attribute, SpanRole, tracing
from rollout_operator.web.reviews.answer import render_answer

# The API server stops waiting at its own limit; the answer has a tenth of the time for its way.
SHARE: Final = 0.9

_BUG: Final = "the review failed by a bug; see the operator's log"


class ReviewHook(Protocol):
    """Answers the reviews of one path."""

    async def review(self, review: Review, until: timedelta) -> Verdict | bytes:
        """Return the verdict, or the body of another replica's answer, before `until`.

        That is on `clock.elapsed()`. Cancelled then, and where the client has gone: in both cases
        the request that is under review does not happen by this review.
        """
        ...


class Deadline(msgspec.Struct, frozen=True):
    """When an answer must be out, on `clock.elapsed()`, and how long that is after the request."""

    until: timedelta
    span: timedelta


class Reviewer(msgspec.Struct, frozen=True, kw_only=True):
    """Answers the reviews of one operator."""

    hooks: Mapping[str, ReviewHook]
    """By path."""
    request_timeout: timedelta
    """How long the answer to any request may take at most."""
    clock: Clock
    keeps: Callable[[str], bool] = lambda path: False
    """Says whether reviews on a path hold what was sent, to be passed on."""
    may_patch: Callable[[str], bool] = lambda path: False
    """Says whether the webhook of a path takes patches: a mutating webhook does."""
    on_verdict: Callable[[str, Review, Verdict], None] = lambda path, review, verdict: None
    """Called with the path for each review that is answered."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths that are answered."""
        return tuple(self.hooks)

    def set_deadline(self, begin: timedelta, query: str) -> Deadline:
        """Return when the answer must be out to a request with this query that began then."""
        wanted = _read_timeout(query) if query else None
        most = self.request_timeout
        span = (most if wanted is None or wanted > most else wanted) * SHARE
        return Deadline(begin + span, span)

    async def answer(
        self,
        path: str,
        review: Review,
        deadline: Deadline,
        keep_trace: Callable[[Mapping[str, str]], None] = lambda keys: None,
    ) -> bytes:
        """Return the body of the answer, in time; `keep_trace` gets the keys of its trace."""
        with tracing.spans.begin("review", SpanRole.SERVER) as span:
            verdict = await self._review(path, review, deadline)
            if span.is_recorded:
                span.set_attributes(_describe_review(path, review, verdict))
                keep_trace(span.log_keys)
        if isinstance(verdict, bytes):
            return verdict  # logged and counted by the replica that has decided
        _log_verdict(path, review, verdict, span.log_keys)
        self.on_verdict(path, review, verdict)
        # Only where there is something to patch: it searches all configurations.
        may_patch = bool(verdict.annotations) and self.may_patch(path)
        return render_answer(review, verdict, may_patch=may_patch)

    async def _review(self, path: str, review: Review, deadline: Deadline) -> Verdict | bytes:
        left = deadline.until - self.clock.elapsed()
        try:
            async with asyncio.timeout(left.total_seconds()):
                return await self._review_guarded(path, review, deadline.until)
        except TimeoutError:
            text = f"no answer within {format_duration(deadline.span)}"
            return refuse(Code.REVIEW_TIMED_OUT, text, status=RETRY)

    async def _review_guarded(self, path: str, review: Review, until: timedelta) -> Verdict | bytes:
        try:
            return await self.hooks[path].review(review, until)
        except Exception as error:
            # A bug in a hook costs this review, and fails closed; the process has others to answer.
            stack = "".join(traceback.format_exception(error))
            log.error(
                "Review failed by a bug",
                hook=path, uid=review.uid, user=review.user, err=error, stack=stack,
            )  # fmt: skip
            return refuse(Code.CANNOT_CHECK, _BUG, status=503)


@lru_cache(maxsize=32)
def _read_timeout(query: str) -> timedelta | None:
    """Return the `timeout` that the API server appends to the path, None where there is none."""
    try:
        span = parse_duration(parse_qs(query, max_num_fields=16).get("timeout", [""])[0])
    except (InvalidInput, ValueError):
        return None
    return span if span > timedelta(0) else None


def _describe_review(
    path: str, review: Review, verdict: Verdict | bytes
) -> Mapping[str, Attribute]:
    """Return what a trace shows of a review and its answer."""
    attributes: dict[str, Attribute] = {
        "hook": path,
        "operation": review.operation,
        "resource": _name_resource(review),
        "namespace": review.namespace,
        "name": review.name,
        "dry_run": review.dry_run,
    }
    if isinstance(verdict, bytes):
        return {**attributes, "forwarded": True}
    reason = verdict.reason
    text = reason.text or "; ".join(verdict.warnings)
    return {**attributes, "allowed": verdict.is_allowed, "reason": reason.code.value, "why": text}


def _name_resource(review: Review) -> str:
    return f"{review.resource}/{review.subresource}" if review.subresource else review.resource


def _log_verdict(path: str, review: Review, verdict: Verdict, keys: Mapping[str, str]) -> None:
    """Log one decision; `keys` are those of its trace."""
    is_news = verdict.reason.code is Code.PODS_PREPARED or bool(verdict.warnings)
    write = log.debug if verdict.is_allowed and not is_news else log.info
    write(
        "Allowing change" if verdict.is_allowed else "Refusing change",
        hook=path,
        operation=review.operation,
        resource=_name_resource(review),
        namespace=review.namespace,
        name=review.name,
        replicas_from=_replicas(review.old),
        replicas_to=_replicas(review.new),
        dry_run=review.dry_run,
        user=review.user,
        reason=verdict.reason.code,
        why=verdict.reason.text or "; ".join(verdict.warnings),
        **keys,
    )


def _replicas(scaled: Scalable | Unusable) -> int | None:
    return scaled.replicas if isinstance(scaled, Scalable) else None
