"""The downscales of a history: what persisted, which requests led to it, how it was answered.

Read once; what they break is judged in `invariants_downscale`. A set counts as guarded while a
webhook configuration with failure policy Fail sends its writes to the operator.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
from rollout_lab.model.fields import child, text
from rollout_lab.model.history import Called, Fault, PodCalled, Reviewed

from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import NO_DOWNSCALE
from rollout_operator.model.names import PREPARE_PATH as PREPARE_PATH_KEY
from tests.judge.book import Book, Write, annotations, labels
from tests.judge.desired import read_delay_path
from tests.judge.objects import Pod, Set, is_brake_on
from tests.judge.state import World

NO_DOWNSCALE_PATH: Final = "/admission/no-downscale"
PREPARE_PATH: Final = "/admission/prepare-downscale"


class Downscale(msgspec.Struct, frozen=True, kw_only=True):
    """A write by which a set came to want fewer replicas."""

    write: Write
    before: Set
    now: Set
    called: Called | None
    """The request; None where the API server did it by itself."""
    members: tuple[Set, ...]
    """Of the group, at that moment."""
    wait: timedelta
    """The least that the zones have required together since the request was made."""
    removed: tuple[Pod, ...]
    """Those which existed and had been ready before the hook read."""
    short: Mapping[str, timedelta]
    """Wanted pods of other zones of the group that were unavailable, and since when."""
    guards: frozenset[str]
    """Paths of the webhooks in force: PREPARE_PATH, NO_DOWNSCALE_PATH."""

    @property
    def at(self) -> timedelta:
        """Return when it was committed."""
        return self.write.at

    @property
    def begun(self) -> timedelta:
        """Return when the request arrived."""
        return self.at if self.called is None else self.called.begun

    @property
    def must_prepare(self) -> bool:
        """Return whether its pods were to be prepared."""
        return self.before.must_prepare and PREPARE_PATH in self.guards

    @property
    def is_forbidden(self) -> bool:
        """Return whether the set was not to lose pods at all."""
        label = labels(self.write.commit.before).get(NO_DOWNSCALE)
        is_on = is_brake_on(label if isinstance(label, str) else None)
        return is_on and NO_DOWNSCALE_PATH in self.guards

    @property
    def text(self) -> str:
        """Return it in words."""
        return f"downscale of {self.before.name} from {self.before.replicas} to {self.now.replicas}"


class Guards(msgspec.Struct):
    """Which webhooks were in force when."""

    begins: list[timedelta] = []
    states: list[dict[str, tuple[JsonObject, ...]]] = []
    """Hooks by name of the configuration."""

    def find(self, at: timedelta, subresource: str) -> frozenset[str]:
        """Return the paths that an update of a set, or of its subresource, was sent to."""
        place = bisect_right(self.begins, at) - 1
        hooks = [] if place < 0 else [one for all_ in self.states[place].values() for one in all_]
        return frozenset(
            text(hook, "clientConfig", "service", "path")
            for hook in hooks
            if _covers(hook, subresource)
        )


def read_guards(book: Book) -> Guards:
    """Return which webhooks were in force when."""
    guards = Guards()
    for commit in book.configurations:
        last = guards.states[-1] if guards.states else {}
        state = {name: hooks for name, hooks in last.items() if name != commit.name}
        if commit.after is not None:
            found = commit.after.get("webhooks")
            hooks = found if isinstance(found, list) else []
            state[commit.name] = tuple(hook for hook in hooks if isinstance(hook, dict))
        guards.begins.append(commit.at)
        guards.states.append(state)
    return guards


def list_downscales(book: Book) -> list[Downscale]:
    """Return the downscales that persisted, in order."""
    guards, world, found = read_guards(book), World(), []
    for write in book.writes:
        match write.before, write.now:
            case Set() as before, Set() as now if now.replicas < before.replicas:
                found.append(_read(book, guards, world, (write, before, now)))
        world.take(write)
    return found


def list_reviews(book: Book, path: str) -> list[Reviewed]:
    """Return the reviews on a path of the operator, in the order of their answers."""
    return [one for one in book.reviews if urlsplit(one.path).path == path]


def names_removed(before: Set, replicas: int) -> Sequence[str]:
    """Return the names of the pods that a set loses where it wants so many."""
    return before.pod_names[max(replicas, 0) :]


def _read(book: Book, guards: Guards, world: World, change: tuple[Write, Set, Set]) -> Downscale:
    write, before, now = change
    called = book.calls.get(write.commit.call)
    begun = write.at if called is None else called.begun
    members = tuple(world.members(before.group, write.at)) if before.group is not None else ()
    gone = [name for name in before.pod_names if name not in now.pod_names]
    pods = [world.pods[name] for name in gone if name in world.pods]
    subresource = "" if called is None else called.request.subresource
    known = write.at if book.promises.is_observed else begun - book.promises.known
    read_at = _get_live_read(book, write)
    return Downscale(
        write=write,
        before=before,
        now=now,
        called=called,
        members=members,
        wait=_wait(world, before, members, known),
        removed=tuple(
            pod
            for pod in pods
            if pod.owner == before.uid and world.were_ready.get(pod.uid, read_at) < read_at
        ),
        short={
            name: world.short_since[name]
            for one in members
            # What never was up is not missed.
            if one.uid != before.uid and not world.idle >= {*gone}
            for name in world.list_short(one, write.at)
        },
        guards=guards.find(begun, subresource),
    )


def _get_live_read(book: Book, write: Write) -> timedelta:
    """Return when the last read of a group began that allowed a write; its own time without one.

    A pod that becomes ready between read and write was never ready for all that could be known.
    """
    read_at = write.at
    for review in reversed(list_reviews(book, PREPARE_PATH)):
        is_last = read_at == write.at and review.call == write.commit.call
        # The same request while another is being answered shares its read.
        is_shared = (
            read_at != write.at and review.name == write.commit.name and review.at >= read_at
        )
        if review.begun < read_at and (is_last or is_shared):
            read_at = review.begun
    return read_at


def _wait(world: World, before: Set, members: Sequence[Set], since: timedelta) -> timedelta:
    """Return the longest wait of all zones, of each the shortest that it had of late."""
    spans = [
        min((state.min_time for state in world.window(one.uid, since)), default=one.min_time)
        for one in (before, *members)
    ]
    return max(spans)


def _covers(hook: JsonObject, subresource: str) -> bool:
    """Return whether a hook reviews updates, and its failure forbids."""
    wanted = f"statefulsets/{subresource}" if subresource else "statefulsets"
    resources = {wanted, "*/*", f"*/{subresource}" if subresource else "*"}
    rules = hook.get("rules")
    return hook.get("failurePolicy", "Fail") == "Fail" and any(
        resources.intersection(_words(rule, "resources"))
        and {"UPDATE", "*"}.intersection(_words(rule, "operations"))
        for rule in (rules if isinstance(rules, list) else ())
        if isinstance(rule, dict)
    )


def _words(rule: JsonObject, key: str) -> Iterator[str]:
    found = rule.get(key)
    return (str(one) for one in (found if isinstance(found, list) else ()))


# For so long after a change of the annotation the former path may still be called.
STALE: Final = timedelta(seconds=120)

_Paths = tuple[timedelta, tuple[str, ...]]


class Targets(msgspec.Struct):
    """All pods and sets that there have been."""

    owners: dict[str, list[tuple[timedelta, str]]] = {}
    """By UID of the pod: UIDs of its sets, and since when; empty while it had none."""
    names: dict[str, str] = {}
    """Of pods, by UID."""
    paths: dict[str, list[_Paths]] = {}
    """By UID of the set: those of preparations and of delayed downscales, and since when."""

    def name_fault(self, call: PodCalled) -> str:
        """Return what is wrong with a call, empty where nothing is."""
        if call.method not in ("POST", "DELETE"):
            return "no such call is ever made"
        if self.names.get(call.uid) != call.pod:
            return f"no pod of the namespace has the uid {call.uid}"
        paths = self.paths.get(self._find_owner(call))
        if paths is None:
            return "no statefulset owns it"
        known = self._list_paths(paths, call.begun)
        if call.method == "DELETE":
            # Where a pod was prepared it is un-prepared, however late (D-24), by whatever set.
            sets = [self.paths.get(owner, []) for _, owner in self.owners[call.uid]]
            known = [
                path for one in sets for since, each in one if since <= call.begun for path in each
            ]
        path = call.path.strip("/")
        return "" if path in known else f"its set wants {' or '.join(known) or 'none'}"

    def _find_owner(self, call: PodCalled) -> str:
        """Return who owns a pod, or did before it was let go: lately, or when it was prepared."""
        owners = self.owners[call.uid]
        known = [one for one in owners if one[0] <= call.begun] or owners[:1]
        since, owner = known[-1]
        if owner or len(known) == 1 or (call.method == "POST" and call.begun - since > STALE):
            return owner
        return known[-2][1]

    def _list_paths(self, paths: list[_Paths], at: timedelta) -> list[str]:
        begun = [place for place, (since, _) in enumerate(paths) if since <= at - STALE]
        recent = paths[begun[-1] if begun else 0 :]
        return [path for since, known in recent if since <= at for path in known]


def read_targets(book: Book) -> Targets:
    """Return whom the operator may call."""
    targets = Targets()
    for write in book.writes:
        match write.now:
            case Pod() as pod:
                owners = targets.owners.setdefault(pod.uid, [])
                if not owners or owners[-1][1] != pod.owner:
                    owners.append((write.at, pod.owner))
                targets.names[pod.uid] = pod.name
            case Set() as zone:
                after = write.commit.after
                path = str(annotations(after).get(PREPARE_PATH_KEY, "")).strip("/")
                paths = tuple(one for one in (path, read_delay_path(after)) if one)
                targets.paths.setdefault(zone.uid, []).append((write.at, paths))
    return targets


FORGED: Final = "hook_forged"


def describe_review(body: bytes) -> str:
    """Return in words what a review is about, for the text of a fault."""
    review = cast(JsonObject, msgspec.json.decode(body))
    request = child(review, "request")
    about = child(request, "object")
    name = text(request, "name") or text(about, "metadata", "name")
    is_dry = bool(request.get("dryRun")) or bool(child(about, "deleteOptions").get("dryRun"))
    return _word(text(request, "namespace"), name, is_dry=is_dry)


def list_earnest(book: Book, path: str, name: str) -> Iterator[timedelta]:
    """Yield when forged reviews on a path were about an object, and not for a dry run."""
    requested = _word(book.promises.namespace, name, is_dry=False)
    for fault in book.faults:
        if fault.kind == FORGED and _reads(fault, path, requested):
            yield fault.at


def _word(namespace: str, name: str, *, is_dry: bool) -> str:
    return f"{'a dry run' if is_dry else 'in earnest'} about {namespace}/{name}"


def _reads(fault: Fault, path: str, requested: str) -> bool:
    place, _, what = fault.text.partition(": ")
    return place.removeprefix("at ").partition("?")[0] == path and what == requested
