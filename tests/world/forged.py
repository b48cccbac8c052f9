"""What would have been observed of a history that was built by hand."""

from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import structs
from rollout_lab.model.history import Called, Commit, PodCalled

from rollout_operator.kube.api import PODS, STATEFULSETS, ZONE_BUDGETS
from tests.judge.book import read_write
from tests.judge.builder import NAMESPACE, OPERATOR, HistoryBuilder
from tests.judge.objects import read_pod
from tests.world.observed import Delete, Observed, Request
from tests.world.webpods import PodCall

SEEN: Final = (PODS, STATEFULSETS, ZONE_BUDGETS)
WALL: Final = 1_000_000.0
"""From the clock of writes to that of requests."""


def observe(t: HistoryBuilder) -> Observed:
    """Return what an observer outside sees: no reads, no reviews, no faults."""
    called = t.history.list_all(Called)
    return Observed(
        changes=[read_write(one) for one in t.history.list_all(Commit) if one.resource in SEEN],
        deletes=[_delete(t, one) for one in called if one.actor == OPERATOR and _deletes(one)],
        evictions=[_request(one) for one in called if one.request.subresource == "eviction"],
        writes=[_request(one) for one in called if one.request.resource == STATEFULSETS],
        calls=[_pod_call(one) for one in t.history.list_all(PodCalled)],
        namespace=NAMESPACE,
        operator=OPERATOR,
        wall_offset=WALL,
    )


def _request(called: Called) -> Request:
    request = called.request
    return Request(
        verb=request.verb,
        resource=request.resource.plural,
        namespace=request.namespace,
        name=request.name,
        user=called.actor,
        code=called.status,
        uri="/?dryRun=All" if request.is_dry_run else "/",
        stamp="",
        received=called.begun.total_seconds() + WALL - 0.01,
        answered=called.at.total_seconds() + WALL + 0.01,
        body=request.body,
    )


def _deletes(called: Called) -> bool:
    request = called.request
    return request.verb == "delete" and request.resource == PODS


def _delete(t: HistoryBuilder, called: Called) -> Delete:
    commits = [one for one in t.history.list_all(Commit) if one.call == called.number]
    after = read_pod(commits[0].after) if commits and commits[0].after is not None else None
    body = called.request.body
    found = body.get("preconditions") if isinstance(body, dict) else None
    requested = found if isinstance(found, dict) else {}
    return Delete(
        **structs.asdict(_request(called)),
        required_uid=str(requested.get("uid", "")),
        required_version=str(requested.get("resourceVersion", "")),
        uid="" if after is None else after.uid,
        version=commits[0].revision if commits else 0,
    )


def _pod_call(called: PodCalled) -> PodCall:
    return PodCall(
        at=called.begun.total_seconds(),
        wall=datetime.now(UTC),
        pod=called.pod,
        uid=called.uid,
        address="127.1.1.1",
        method=called.method,
        path=called.path,
        headers={},
        status=called.status or None,
        done_at=(called.at + timedelta(milliseconds=1)).total_seconds() if called.status else None,
    )
