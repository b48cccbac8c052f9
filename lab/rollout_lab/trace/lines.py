"""What a reader is told of each record of a history: one line an event that matters.

Bookkeeping (status writes, reads, watches, what changed nothing) is left out. Of a Rollout its
status tells the story, as the operator records each step there before it acts. How lines are folded
and aligned is decided in `trace`.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

import msgspec

from rollout_lab.model.fields import (
    child,
    children,
    condition_of,
    controller_of,
    is_terminating,
    name_of,
    number,
    text,
    uid_of,
)
from rollout_lab.model.history import (
    Called,
    Commit,
    Fault,
    Lived,
    PodCalled,
    Record,
    Reviewed,
    Said,
)
from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    HEALTH_CHECKS,
    KUSTOMIZATIONS,
    MULTI_AZ_ROLLOUTS,
    OCI_REPOSITORIES,
    PODS,
    ROLLOUT_GATES,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
    STATEFULSETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.names import MAX_UNAVAILABLE, PAUSED, REVISION_LABEL
from rollout_operator.model.units import format_duration, parse_rfc3339

_KINDS: Final = {
    ROLLOUTS: "rollout",
    ROLLOUT_GATES: "gate",
    ROLLOUT_SCHEDULES: "schedule",
    CLUSTER_ROLLOUT_SCHEDULES: "schedule",
    HEALTH_CHECKS: "check",
    **dict.fromkeys(OCI_REPOSITORIES, "source"),
    **dict.fromkeys(KUSTOMIZATIONS, "kustomization"),
}
_ENDED: Final = {"Succeeded": "has succeeded", "Failed": "has failed", "Cancelled": "is cancelled"}
# Of no use to a reader, and too long for any line.
_DIGEST: Final = re.compile("@sha256:[0-9a-f]{64}")
_WAITING: Final = "waiting "
# Conditions of a Rollout that hold something, and what they have to say for it.
_HOLDS: Final = (
    ("GatesPassing", "False"),
    ("DeploymentBlocked", "True"),
    ("UpgradePathUnknown", "True"),
    ("WantedVersionFound", "False"),
    ("TargetConflict", "True"),
)
# What a person acts on; all else that makes it so has a line of its own.
_PROBLEMS: Final = frozenset({"InvalidSpec", "FluxNotInstalled", "RolloutFailed"})


def is_of_releases(resource: Resource) -> bool:
    """Return whether `list_release_changes` knows a kind."""
    return resource in _KINDS


def name_of_release(commit: Commit) -> str:
    """Return what a line about a write begins with."""
    return f"{_KINDS[commit.resource]} {commit.name}"


def list_release_changes(commit: Commit) -> Iterator[str]:
    """Yield a sentence for each thing that a write of such an object says first."""
    for sentence in _list_changes(commit):
        yield _DIGEST.sub("", sentence)


def _list_changes(commit: Commit) -> Iterator[str]:
    before, after = commit.before or {}, commit.after
    if after is None:
        yield "it is gone"
        return
    match _KINDS[commit.resource]:
        case "rollout":
            yield from _render_rollout(before, after)
        case "gate":
            yield from _render_gate(before, after)
        case "schedule":
            yield from _render_schedule(before, after)
        case "check":
            yield from _render_check(before, after)
        case "source":
            yield from _render_flux(before, after, ("artifact", "revision"), "has fetched")
        case _:
            yield from _render_flux(before, after, ("lastAppliedRevision",), "has applied")


def _render_rollout(before: JsonObject, after: JsonObject) -> Iterator[str]:
    known = {text(child, "tag") for child in children(before, "status", "availableReleases")}
    for release in children(after, "status", "availableReleases"):
        if text(release, "tag") not in known:
            yield f"{text(release, 'tag')} is announced"
    old = {entry.get("id"): entry for entry in children(before, "status", "history")}
    for entry in reversed(children(after, "status", "history")):
        yield from _render_entry(old.get(entry.get("id"), {}), entry)
    for kind, holds in _HOLDS:
        yield from _render_condition(before, after, kind, holds)
    if text(condition_of(after, "Ready"), "reason") in _PROBLEMS:
        yield from _render_condition(before, after, "Ready", "False")


def _render_entry(before: JsonObject, after: JsonObject) -> Iterator[str]:
    tag, status = text(after, "version", "tag"), text(after, "bakeStatus")
    if not before:
        person = child(after, "triggeredBy")
        by = f", by {text(person, 'name')}" if text(person, "kind") == "User" else ""
        yield f"deploys {tag}{by}: {text(after, 'message')}"
    elif before.get("lastRetryTimestamp") != after.get("lastRetryTimestamp"):
        yield f"{tag} is tried again"
    said = text(after, "bakeStatusMessage")
    if status == text(before, "bakeStatus") and said == text(before, "bakeStatusMessage"):
        return
    if status in _ENDED:
        yield f"{tag} {_ENDED[status]}{said and ': '}{said}"
    elif status == "InProgress":
        yield f"{tag} bakes: {said}"
    elif said:
        yield f"{tag} is {said}" if said.startswith(_WAITING) else f"{tag}: {said}"


def _render_condition(
    before: JsonObject, after: JsonObject, kind: str, holds: str
) -> Iterator[str]:
    was, now = condition_of(before, kind), condition_of(after, kind)
    if text(now, "status") != holds:
        return
    if (text(was, "status"), text(was, "message")) != (holds, text(now, "message")):
        yield f"{text(now, 'message')} [{text(now, 'reason')}]"


def _render_gate(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = child(before, "spec").get("passing"), child(after, "spec").get("passing")
    if was is not now:
        yield "is open" if now else "is closed"


def _render_schedule(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = child(before, "status"), child(after, "status")
    if was.get("active") is not now.get("active"):
        until = text(now, "nextTransition")
        state = "is active" if now.get("active") else "is not active"
        yield f"{state}{until and f' until {until}'}"
    yield from _render_condition(before, after, "Ready", "False")


def _render_check(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = child(before, "status"), child(after, "status")
    if text(was, "status") != text(now, "status"):
        said = text(now, "message")
        yield f"is {text(now, 'status')}{said and ': '}{said}"


def _render_flux(
    before: JsonObject, after: JsonObject, path: tuple[str, ...], verb: str
) -> Iterator[str]:
    tags = [text(version, "spec", "ref", "tag") for version in (before, after)]
    if before and tags[0] != tags[1]:
        yield f"is to have {tags[1]} instead of {tags[0] or 'none'}"
    variables = [child(version, "spec", "postBuild", "substitute") for version in (before, after)]
    for name, value in variables[1].items():
        if before and variables[0].get(name) != value:
            yield f"{name} is to be {value} instead of {variables[0].get(name, 'nothing')}"
    revision = text(after, "status", *path)
    if revision != text(before, "status", *path):
        yield f"{verb} {revision.partition('@')[0]}"
    yield from _render_condition(before, after, "Ready", "False")


_PAIR: Final = re.compile(r'([^\s="]+)=("(?:[^"\\]|\\.)*"|\S*)')
_ESCAPED: Final = re.compile(r"\\(.)")
_FRAME: Final = frozenset({"level", "ts", "msg", "caller"})
# Told by the message, or by another key: a zone names its group.
_SILENT: Final = frozenset({"why", "reason", "group"})
TERMINATING: Final = "Terminating pod"
OBEYING: Final = "Obeying budget"
WAITING: Final = "Group waits"
POLICY_WAITING: Final = "Policy waits"
# Told by what policies record, or by what a group waits for and finds odd.
_RECORDED: Final = frozenset(
    {
        *((POLICY_WAITING, code) for code in ("batch_open", "interval_wait", "up_to_date")),
        (WAITING, "driven_by_policy"),
        *(
            ("Health check", f"Rollout{why}")
            for why in ("BlockedByHealthCheck", "HealthCheckMisconfigured", "HealthCheckWarn")
        ),
    }
)
# Told by what comes of them, or of no use to who reads a story.
_MUTE: Final = frozenset(
    {
        "Allowing change",
        "Correcting gate",
        "Creating gate",
        "Deleting gate",
        "Listed",
        "Recording revision",
        "Refusing change",
        "Resetting HealthCheck",
        "Rollout operator is ready",
        "Rollout reports",
        "Writing an object of Flux",
    }
)


class LogLine(msgspec.Struct, frozen=True):
    message: str
    keys: dict[str, str]

    @property
    def is_mute(self) -> bool:
        """Return whether a story does without it."""
        is_recorded = (self.message, self.keys.get("reason")) in _RECORDED
        return is_recorded or self.message in _MUTE or self.keys.get("level") == "debug"

    @property
    def is_wait(self) -> bool:
        """Return whether it says what something waits for: worth telling only where it lasts."""
        return self.message in (WAITING, POLICY_WAITING)

    @property
    def deleted_pod(self) -> str:
        """Return the pod that it says is about to be deleted, empty where it says no such thing."""
        return self.keys.get("pod", "") if self.message == TERMINATING else ""

    def render(self) -> str:
        """Return it without what is the same everywhere."""
        why = self.keys.get("why", "")
        pod = self.deleted_pod
        if pod:
            why = why.removeprefix(f"{pod} is ") or self.keys.get("reason", "")
            return f"deletes {pod}: {why}"
        if self.is_wait:
            return f"waits: {why}"
        if self.message == OBEYING:
            pattern = self.keys.get("partition_pattern")
            within = f" in each partition of {pattern}" if pattern else ""
            limit = self.keys.get("max_unavailable", "")
            return f"obeys budget {self.keys.get('zpdb', '')}: at most {limit} unavailable{within}"
        shown = [
            f"{key} {value}" for key, value in self.keys.items() if key not in _FRAME | _SILENT
        ]
        whole = f"{self.message} ({', '.join(shown)})" if shown else self.message
        return f"{whole}: {why}" if why else whole


def read_log_line(text: str) -> LogLine | None:
    """Return the record of a line in logfmt, None where a person has said something."""
    keys = {key: _plain(value) for key, value in _PAIR.findall(text)} if "msg=" in text else {}
    return LogLine(keys["msg"], keys) if "msg" in keys else None


def strip_time(text: str) -> str:
    """Return a line without the time of the machine that wrote it, which no two runs share."""
    return re.sub(r"(^| )ts=\S+", "", text)


def _plain(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value


_BATCH: Final = ("status", "lastBatch")
_NEXT: Final = "nextBatchTime"
_COMPLETION: Final = "completionTime"


def list_policy_changes(before: JsonObject | None, after: JsonObject | None) -> Iterator[str]:
    """Yield a sentence for each thing that a write of a policy says first."""
    if before is None or after is None:
        yield "it is created" if after else "it is gone"
        return
    yield from _render_refusal(before, after)
    yield from _render_batch(before, after)
    yield from _render_end(before, after)


def _render_refusal(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = (condition_of(version, "Accepted") for version in (before, after))
    if text(now, "status") == "False" and text(was, "message") != text(now, "message"):
        yield f"it is refused: {text(now, 'message')} [{text(now, 'reason')}]"
    elif text(was, "status") == "False" and text(now, "status") == "True":
        yield "it is in service"


def _render_batch(before: JsonObject, after: JsonObject) -> Iterator[str]:
    old, new = child(before, *_BATCH), child(after, *_BATCH)
    batch = f"batch {number(new, 'number')}"
    is_same = number(old, "number") == number(new, "number")
    had_ended, has_ended = is_same and bool(old.get(_COMPLETION)), bool(new.get(_COMPLETION))
    names = [name_of({"metadata": pod}) for pod in children(new, "pods")]
    if new and (not is_same or len(names) != len(children(old, "pods"))):
        where = f"{text(new, 'statefulSet')} in zone {text(new, 'zone')}"
        yield f"{batch}, of {where}: {', '.join(names)}"
    pause = _describe_pause(before, after)
    if has_ended and not had_ended:
        yield f"{batch} is complete{pause and '; '}{pause}"
    elif had_ended and not has_ended:
        yield f"{batch} is open again, since a pod is down; its pause will begin anew"
    elif pause:
        yield pause


def _describe_pause(before: JsonObject, after: JsonObject) -> str:
    """Return how long nothing goes after the last batch, empty where that is no news."""
    old, new = (text(version, "status", _NEXT) for version in (before, after))
    begin = text(child(after, *_BATCH), _COMPLETION)
    if not new or old == new or not begin:
        return ""
    span = parse_rfc3339(new) - parse_rfc3339(begin)
    # Its end is rounded up.
    whole = span // timedelta(seconds=1) * timedelta(seconds=1)
    return f"a pause of {format_duration(whole)} follows"


def _render_end(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = (condition_of(version, "Stalled") for version in (before, after))
    if text(now, "status") == "True" != text(was, "status") and not _is_refused(after):
        yield f"it is stalled: {text(now, 'message')} [{text(now, 'reason')}]"
    was_done, is_done = (bool(text(version, "status", _COMPLETION)) for version in (before, after))
    if is_done and not was_done:
        yield f"rolled out: {number(after, 'status', 'updatedPods')} pods"


def _is_refused(policy: JsonObject) -> bool:
    return text(condition_of(policy, "Accepted"), "status") == "False"


WRITES: Final = frozenset({"create", "update", "patch", "delete"})
# Troubles of pods that are told when they begin; others are part of every start.
LOUD: Final = frozenset({"CrashLoopBackOff", "Failed"})
# A wait that is over sooner is a part of every rollout.
LASTING: Final = timedelta(seconds=5)
API_SERVER: Final = "api-server"
EVICTION: Final = "eviction"
_CONTAINERS: Final = ("spec", "template", "spec", "containers")
# Between the name of a webhook and what it says.
DENIED: Final = "denied the request: "
# What is said of a process that lives as long as its world.
WORLD_ENDED: Final = "killed"


class TraceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event. Lines that differ only in `what` are folded into one."""

    at: timedelta
    who: str
    what: str = ""
    """The pods that it is about, if any."""
    text: str


class Storyteller(msgspec.Struct):
    """Tells records in order: remembers what was said, so that nothing is told twice.

    Each record is noted before it is told; those noted by then decide what is worth telling.
    """

    _announced: set[tuple[str, str]] = set()
    """Processes, and the pods that they said they delete."""
    _calls: dict[int, Called] = {}
    _created: dict[str, list[timedelta]] = {}
    _tellers: set[str] = set()
    """Who is no controller of the simulated cluster."""
    _evictions: set[tuple[str, str, timedelta]] = set()
    """Who has evicted which pod, and when: its delete is a part of that."""
    _last: dict[str, Said] = {}
    _followed: dict[Said, timedelta] = {}
    """When the same process said the next thing."""
    _revisions: dict[str, None] = {}
    """Their names, in order: a reader needs no more than the hash of each."""

    def note(self, record: Record) -> None:
        """Remember what the telling of an earlier record depends on."""
        match record:
            case Called():
                self._calls[record.number] = record
                if record.request.subresource == EVICTION:
                    self._evictions.add((record.actor, record.request.name, record.at))
            case Said():
                self._tellers.add(record.actor)
                if record.actor in self._last:
                    self._followed[self._last[record.actor]] = record.at
                self._last[record.actor] = record
            case Lived():
                self._tellers.add(record.actor)
            case Commit(before=None) if record.resource == PODS:
                self._created.setdefault(record.name, []).append(record.at)
            case Commit(after=dict() as after) if record.resource == STATEFULSETS:
                if revision := text(after, "status", "updateRevision"):
                    self._revisions[revision] = None
                if is_whole(after):
                    self._end_waits(record)
            case _:
                pass

    def _end_waits(self, whole: Commit) -> None:
        """Take the last line of a set for over: none says that there is nothing to do."""
        for message in self._last.values():
            line = read_log_line(message.text)
            if line is not None and line.is_wait and line.keys.get("zone") == whole.name:
                self._followed.setdefault(message, whole.at)

    def tell(self, record: Record) -> Iterator[TraceLine]:
        match record:
            case Said():
                yield from self._render_said(record)
            case Called():
                yield from self._render_called(record)
            case Commit() if record.resource == PODS:
                yield from self._render_pod(record)
            case Commit() if record.resource == STATEFULSETS:
                yield from _render_set(record)
            case Commit() if record.resource == MULTI_AZ_ROLLOUTS:
                for sentence in list_policy_changes(record.before, record.after):
                    yield TraceLine(at=record.at, who=f"policy {record.name}", text=sentence)
            case Commit() if is_of_releases(record.resource):
                for sentence in list_release_changes(record):
                    yield TraceLine(at=record.at, who=name_of_release(record), text=sentence)
            case Reviewed():
                yield from self._render_review(record)
            case PodCalled():
                answer = f"HTTP {record.status}" if record.status else "no answer"
                acted = ", though it has acted" if record.acted and not record.status else ""
                sentence = f"{record.method} {record.path}: {answer}{acted}"
                yield TraceLine(at=record.at, who=record.actor, what=record.pod, text=sentence)
            case Fault():
                sentence = f"FAULT {record.number} {record.kind}: {record.text}"
                yield TraceLine(at=record.at, who=record.actor, text=sentence)
            case Lived() if record.what != WORLD_ENDED:
                yield TraceLine(at=record.at, who=record.actor, text=f"*** {record.what}")
            case _:
                pass

    def _render_said(self, said: Said) -> Iterator[TraceLine]:
        line = read_log_line(said.text)
        if line is None:
            yield TraceLine(at=said.at, who=said.actor, text=said.text)
            return
        followed = self._followed.get(said)
        is_passing = followed is not None and followed - said.at < LASTING
        if line.is_mute or (line.is_wait and is_passing):
            return
        if line.deleted_pod:
            self._announced.add((said.actor, line.deleted_pod))
        sentence = line.render()
        for revision in self._revisions:
            sentence = sentence.replace(revision, _short(revision))
        yield TraceLine(at=said.at, who=said.actor, text=sentence)

    def _render_called(self, called: Called) -> Iterator[TraceLine]:
        """Tell of refused writes, and of deletes that no line has announced."""
        request = called.request
        if request.verb not in WRITES or called.actor not in self._tellers:
            return
        is_refused = called.status >= 400
        key = (called.actor, request.name)
        is_announced = key in self._announced
        if request.verb == "delete" and request.resource == PODS:
            self._announced.discard(key)
            is_part = (called.actor, request.name, called.at) in self._evictions
            if not is_announced and not is_refused and not is_part:
                yield TraceLine(at=called.at, who=called.actor, text=f"deletes {request.name}")
        is_reported = request.subresource == EVICTION and DENIED in called.message
        if is_refused and not is_reported:
            target = "/".join(part for part in (request.name, request.subresource) if part)
            # What a webhook has said stands in the line about its review.
            hook, is_denied, _ = called.message.partition(DENIED)
            why = hook.strip() if is_denied else called.message
            sentence = f"{request.verb} of {target} is refused: {called.status}"
            yield TraceLine(at=called.at, who=called.actor, text=f"{sentence}: {why}")

    def _render_review(self, review: Reviewed) -> Iterator[TraceLine]:
        """Tell of reviews that were refused or failed, or were about replicas or evictions."""
        called = self._calls.get(review.call)
        about = "" if called is None else _render_requested_scaling(called)
        if review.resource == f"{PODS.plural}/{EVICTION}":
            yield self._render_eviction(review)
            return
        if review.allowed and not about:
            return
        change = f"{'a dry run of ' if review.dry_run else ''}{about or review.name}"
        if review.status < 0:
            sentence = f"gave no answer about {change}: {review.message}"
        elif review.allowed:
            sentence = f"allowed {change}"
        else:
            _, _, why = review.message.partition(DENIED)
            sentence = f"refused {change}: {review.status}: {why or review.message}"
        hook = urlsplit(review.path).path.rpartition("/")[2]
        yield TraceLine(at=review.at, who=API_SERVER, what=hook, text=sentence)

    def _render_eviction(self, review: Reviewed) -> TraceLine:
        """Tell of one pod in words that fit several."""
        called = self._calls.get(review.call)
        is_dry = review.dry_run or (called is not None and called.request.is_dry_run)
        _, _, why = review.message.partition(DENIED)
        if review.allowed:
            sentence = "allowed by the webhook"
        elif review.status < 0:
            sentence = f"not answered: {review.message}"
        else:
            sentence = f"refused: {review.status}: {why or review.message}"
        sentence = f"{'dry run of its ' if is_dry else ''}eviction {sentence}"
        return TraceLine(at=review.at, who=API_SERVER, what=review.name, text=sentence)

    def _render_pod(self, commit: Commit) -> Iterator[TraceLine]:
        before, after = commit.before, commit.after
        owner = text(controller_of(after or before or {}), "name")
        sentence = ""
        if after is None:
            comes_again = any(at >= commit.at for at in self._created.get(commit.name, ()))
            sentence = "" if comes_again else "gone"
        elif before is None or uid_of(before) != uid_of(after):
            sentence = (
                f"created at revision {_short(text(after, 'metadata', 'labels', REVISION_LABEL))}"
            )
        elif is_terminating(after) and not is_terminating(before):
            sentence = "going down"
        elif is_ready(after) != is_ready(before) and not is_terminating(after):
            sentence = "ready" if is_ready(after) else f"not ready any more{_why(after)}"
        elif explain_pod(after) != explain_pod(before) and explain_pod(after) in LOUD:
            sentence = f"in trouble: {explain_pod(after)}"
        if sentence:
            yield TraceLine(at=commit.at, who=owner or "pods", what=commit.name, text=sentence)


def list_lines(records: Sequence[Record]) -> Iterator[TraceLine]:
    """Yield the lines of a whole history, in order."""
    teller = Storyteller()
    for record in records:
        teller.note(record)
    for record in records:
        yield from teller.tell(record)


def _render_set(commit: Commit) -> Iterator[TraceLine]:
    """Tell what people or a rollout changed about a set."""
    for sentence in _set_changes(commit.before, commit.after):
        yield TraceLine(at=commit.at, who=commit.name, text=sentence)


def _set_changes(before: JsonObject | None, after: JsonObject | None) -> Iterator[str]:
    if after is None:
        yield "the set is gone"
        return
    if before is None:
        yield f"the set is created with {number(after, 'spec', 'replicas', default=1)} pods"
        return
    if is_terminating(after) and not is_terminating(before):
        yield "the set is being deleted"
    old, new = (number(version, "spec", "replicas", default=1) for version in (before, after))
    if old != new:
        yield f"wants {new} pods instead of {old}"
    for key in (PAUSED, MAX_UNAVAILABLE):
        was, now = (text(version, "metadata", "annotations", key) for version in (before, after))
        if was != now:
            yield f"{key}: {was or 'unset'} becomes {now or 'unset'}"
    yield from _revision_changes(before, after)


def _revision_changes(before: JsonObject, after: JsonObject) -> Iterator[str]:
    was, now = (text(version, "status", "updateRevision") for version in (before, after))
    current = text(after, "status", "currentRevision")
    if was != now:
        images = [text(container, "image") for container in children(after, *_CONTAINERS)]
        shown = f"{_short(now)} ({', '.join(images)})" if images else _short(now)
        yield f"wants revision {shown} instead of {_short(was) or 'none'}"
    elif current != text(before, "status", "currentRevision") and current == now:
        yield f"rolled out: revision {_short(now)} is current"
        return
    if is_whole(after) and not is_whole(before):
        pods = number(after, "spec", "replicas", default=1)
        yield f"whole: {pods} of {pods} pods ready at revision {_short(now)}"


def is_whole(found: JsonObject) -> bool:
    """Return whether its status says that all wanted pods are ready and none is outdated."""
    wanted = number(found, "spec", "replicas", default=1)
    counted = [number(found, "status", f"{key}Replicas") for key in ("ready", "updated")]
    seen = number(found, "status", "observedGeneration") == number(found, "metadata", "generation")
    current, update = (text(found, "status", f"{key}Revision") for key in ("current", "update"))
    is_whole = counted == [wanted, wanted] and number(found, "status", "replicas") == wanted
    return seen and is_whole and current == update


def _short(revision: str) -> str:
    return revision.rpartition("-")[2]


def is_ready(pod: JsonObject) -> bool:
    is_so = condition_of(pod, "Ready").get("status") == "True"
    return is_so and text(pod, "status", "phase") == "Running"


def _why(pod: JsonObject) -> str:
    why_not_ready = explain_pod(pod)
    return "" if why_not_ready == "Running" else f": {why_not_ready}"


def explain_pod(pod: JsonObject) -> str:
    """Return the reason of a container that does not run, or else the phase."""
    for container in children(pod, "status", "containerStatuses"):
        for state in ("waiting", "terminated"):
            if reason := text(child(container, "state"), state, "reason"):
                return reason
    reason = text(pod, "status", "reason")
    return reason or text(pod, "status", "phase")


def _render_requested_scaling(called: Called) -> str:
    """Return in words which scaling was requested, empty where it was something else."""
    body = called.request.body
    wanted: object = None
    if isinstance(body, dict):
        wanted = child(body, "spec").get("replicas")
    for step in body if isinstance(body, list) else ():
        if step.get("path") == "/spec/replicas" and step.get("op") != "test":
            wanted = step.get("value")
    if not isinstance(wanted, int):
        return ""
    return f"scaling {called.request.name} to {wanted} replica{'' if wanted == 1 else 's'}"
