"""Judge how far an operator reaches: into webhook configurations, to pods, and over the cluster.

Pure but for `judge_outreach`. Connections to places that are no pod are `egress.EgressTrap`'s.
"""

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from datetime import timedelta
from typing import Final

import msgspec

from tests.judge.book import Write
from tests.judge.objects import Json, Pod
from tests.judge.promises import Violation
from tests.world.hooks import INJECT_LABEL, NAMESPACE_LABEL
from tests.world.judge import HOOKS, Judge
from tests.world.observed import Request
from tests.world.webpods import PodCall

CREDENTIALS: Final = ("authorization", "cookie", "proxy-authorization", "proxy-connection")
METHODS: Final = ("DELETE", "GET", "POST")
# What the server itself counts up when anything changes.
COUNTED: Final = ("resourceVersion", "generation", "managedFields")


class HookWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A successful write of a webhook configuration."""

    user: str
    verb: str
    plural: str
    name: str
    after: Json
    """Empty after a deletion."""

    @property
    def version(self) -> int:
        """Return its place among all writes of the store; zero for a deletion."""
        return int(self.after.get("metadata", {}).get("resourceVersion", "0"))


async def judge_outreach(
    judge: Judge, calls: Sequence[PodCall], paths: Sequence[str]
) -> list[Violation]:
    """Return what SI-20, SI-21 and SI-24 have against all that happened so far.

    `paths` are those at which the test's pods may be called, with the leading slash.
    """
    writes = read_hook_writes(await judge.writes())
    return [
        *list_foreign_edits(writes, judge.operator_user, judge.namespace),
        *list_stray_calls(calls, judge.changes, judge.namespace, paths),
        *list_foreign_calls(await judge.calls(), judge.namespace),
    ]


def read_hook_writes(entries: Sequence[Json]) -> list[HookWrite]:
    """Return the successful writes of webhook configurations in an audit log, in their order."""
    found = [
        HookWrite(
            user=entry["user"].get("username", ""),
            verb=entry["verb"],
            plural=entry["objectRef"]["resource"],
            name=entry["objectRef"].get("name") or _answered_name(entry),
            after={} if "delete" in entry["verb"] else entry.get("responseObject") or {},
        )
        for entry in entries
        if entry["objectRef"]["resource"] in HOOKS
        and entry["verb"] in ("create", "update", "patch", "delete", "deletecollection")
        and entry["stage"] == "ResponseComplete"
        and entry.get("responseStatus", {}).get("code") in (200, 201)
        and "dryRun=" not in entry["requestURI"]
    ]
    return sorted(found, key=lambda each: each.version)


def list_foreign_edits(
    writes: Sequence[HookWrite], operator_user: str, namespace: str
) -> Iterator[Violation]:
    """Yield the operator's writes of anything but the caBundle of its own ones (SI-20)."""
    present: dict[tuple[str, str], Json] = {}
    for write in writes:
        key = (write.plural, write.name)
        before = present.get(key)
        if write.user == operator_user:
            for text in _wrong_edit(write, before, namespace):
                named = f"{write.verb} of {write.plural}/{write.name}: {text}"
                yield Violation(invariant="SI-20", text=named, at=timedelta(0))
        present[key] = write.after


def list_stray_calls(
    calls: Sequence[PodCall], changes: Sequence[Write], namespace: str, paths: Sequence[str]
) -> Iterator[Violation]:
    """Yield requests to pods that must not be sent (SI-21)."""
    owned = {
        pod.uid
        for change in changes
        for pod in (change.before, change.now)
        if isinstance(pod, Pod) and pod.owner
    }
    for call in calls:
        for text in _stray(call, owned, namespace, paths):
            named = f"{call.method} {call.path} at {call.pod}: {text}"
            yield Violation(invariant="SI-21", text=named, at=timedelta(seconds=call.at))


def list_foreign_calls(calls: Sequence[Request], namespace: str) -> Iterator[Violation]:
    """Yield the operator's requests beyond its namespace and the configurations (SI-24).

    Refused ones count: no well configured client sends them.
    """
    for call in calls:
        is_about_nothing = not call.resource  # such as the server's version
        is_home = call.namespace == namespace and call.resource != "namespaces"
        if not (is_about_nothing or is_home or call.resource in HOOKS):
            where = call.namespace or "the whole cluster"
            text = f"{call.verb} of {call.resource} {call.name or '(all)'} in {where}: {call.code}"
            yield Violation(invariant="SI-24", text=text, at=timedelta(0))


def _wrong_edit(write: HookWrite, before: Json | None, namespace: str) -> Iterator[str]:
    if not write.after:
        yield "it is gone"
        return
    if before is None:
        yield "no other client had written it"
        return
    labels = before["metadata"].get("labels") or {}
    if labels.get(INJECT_LABEL) != "true" or labels.get(NAMESPACE_LABEL) != namespace:
        yield f"it carries no labels of ours: {labels}"
    if _without_bundles(before) != _without_bundles(write.after):
        yield "something else than the caBundle is changed"


def _without_bundles(configuration: Json) -> Json:
    bare = deepcopy(configuration)
    for key in COUNTED:
        bare["metadata"].pop(key, None)
    for webhook in bare.get("webhooks", ()):
        webhook["clientConfig"].pop("caBundle", None)
    return bare


def _stray(call: PodCall, owned: set[str], namespace: str, paths: Sequence[str]) -> Iterator[str]:
    if call.uid not in owned:
        yield "it belongs to no StatefulSet"
    if call.method not in METHODS:
        yield "no such method is used"
    if call.path not in paths:
        yield f"the path is none of {list(paths)}"
    host = rf"{re.escape(call.pod)}\.[a-z0-9-]+\.{re.escape(namespace)}\.svc\.[a-z0-9.-]+:[0-9]+"
    if not re.fullmatch(host, call.host):
        yield f"the host {call.host} is not the pod's name"
    if carried := [name for name in CREDENTIALS if name in call.headers]:
        yield f"it carries {carried}"


def _answered_name(entry: Json) -> str:
    return str((entry.get("responseObject") or {}).get("metadata", {}).get("name", ""))
