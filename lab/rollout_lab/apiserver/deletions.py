"""Deletions and evictions: at once, gracefully, or once the last finalizer is gone.

Decides what a DELETE makes of an object, in the steps of the real server: a mark where a finalizer
must still be removed, then the removal, each with its own round of admission; whether an eviction
is within the native budgets; and what the garbage collector does with dependants.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from rollout_lab.apiserver.store import ObjectKey, ObjectStore
from rollout_lab.apiserver.writes import Turn, Writes, store_precondition, uid_precondition
from rollout_lab.model.fields import (
    child,
    children,
    condition_of,
    is_terminating,
    metadata_of,
    moment_of,
    name_of,
    number,
    text,
    timestamp,
    uid_of,
)
from rollout_lab.model.history import Commit
from rollout_lab.model.request import (
    MERGE_PATCH,
    ApiAnswer,
    ApiRefusal,
    ApiRequest,
    ApiServer,
    Verb,
    not_modelled,
)
from rollout_lab.schemas.kinds import BUDGETS, KINDS
from rollout_lab.schemas.metadata import (
    conflict,
    copy_json,
    expect,
    expect_one_of,
    labels_of,
    matches,
    not_found,
)
from rollout_lab.virtual_loop.pace import Range, Timers, draw
from rollout_operator.kube.api import PODS, JsonObject, Resource

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_FINALIZERS: Final = {"Orphan": ORPHAN, "Foreground": FOREGROUND}
"""Of the garbage collector, by the policy that asks for each."""
_POLICIES: Final = (None, "Background", *_FINALIZERS)
_FIELDS: Final = frozenset(
    {
        *("kind", "apiVersion", "gracePeriodSeconds", "preconditions", "propagationPolicy"),
        "dryRun",
    }
)
_GRACEFUL: Final = "pods"
"""The one kind whose objects are told to go and go by themselves."""
_TERMINAL: Final = ("Failed", "Succeeded")


class _Ending(msgspec.Struct, kw_only=True):
    """What is to become of an object."""

    obj: JsonObject
    """The object with the marks of its deletion."""
    is_graceful: bool = False
    is_pending: bool = False
    """Whether an earlier deletion is under way that this deletion does not make shorter."""


class _Settled(Exception):
    """There is nothing to mark: the object may go at once, or is going already."""

    def __init__(self, *, is_pending: bool) -> None:
        super().__init__("nothing to mark")
        self.is_pending = is_pending


async def delete_object(writes: Writes, turn: Turn) -> ApiAnswer:
    """Delete an object, as the DeleteOptions of the request say. Raises Refusal."""
    options = _read_options(turn)
    if turn.kind.resource.plural == "namespaces":
        not_modelled("the deletion of a namespace")
    obj = writes.store.get(turn.place)
    if obj is None:
        raise not_found(turn.kind.resource, turn.request.name)
    ending = _choose_ending(turn, obj, options, writes.now())
    if ending.is_pending:
        return _answer(turn, obj)
    marked: JsonObject | None = None
    if ending.is_graceful or metadata_of(obj).get("finalizers") or _finalizers(obj, options)[0]:
        try:
            marked = await _mark(writes, turn, options)
        except _Settled as settled:
            if settled.is_pending:
                return _answer(turn, obj)
        else:
            is_waiting = bool(metadata_of(marked).get("finalizers"))
            if is_waiting or number(options, "gracePeriodSeconds"):
                return ApiAnswer(status=200, body=marked)
            if turn.is_dry_run:
                return _answer(turn, marked)
    return _answer(turn, await _remove(writes, turn, options, marked))


def _read_options(turn: Turn) -> JsonObject:
    """Return the DeleteOptions of the body. Raises NotModelled for what no server takes."""
    body = turn.request.body
    expect(body is None or isinstance(body, dict), "DeleteOptions", body)
    options = copy_json(body) if isinstance(body, dict) else {}
    expect_one_of(("DeleteOptions", None), "DeleteOptions", options.get("kind"))
    if unknown := sorted(key for key in options if key not in _FIELDS):
        not_modelled(f"DeleteOptions with {', '.join(unknown)}")
    options["kind"], options["apiVersion"] = "DeleteOptions", "meta.k8s.io/v1"
    if turn.is_dry_run:
        options["dryRun"] = ["All"]
    expect_one_of((None, [], ["All"]), "dryRun", options.get("dryRun"))
    expect_one_of(_POLICIES, "propagationPolicy", options.get("propagationPolicy"))
    return options


def _choose_ending(turn: Turn, obj: JsonObject, options: JsonObject, now: datetime) -> _Ending:
    """Return what a deletion means for an object; `options` get the grace that is meant."""
    _check_preconditions(turn.kind.resource, obj, options)
    if isinstance(grace := options.get("gracePeriodSeconds"), int) and grace < 0:
        options["gracePeriodSeconds"] = 1
    ending = _Ending(obj={**obj, "metadata": dict(metadata_of(obj))})
    if turn.kind.resource.plural != _GRACEFUL:
        return ending
    if is_terminating(obj):
        _shorten(ending, options, now)
        return ending
    period = _grace(obj, options)
    options["gracePeriodSeconds"] = period
    _set_deadline(ending, now + timedelta(seconds=period), period)
    _raise_generation(ending.obj)
    return ending


def _check_preconditions(resource: Resource, obj: JsonObject, options: JsonObject) -> None:
    """Raise Refusal (409) as the server does before it turns to the store."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    known = metadata_of(obj)
    for key, field, since in (
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ):
        wanted = _precondition(options, key)
        if wanted is not None and wanted != known.get(key):
            why = f"the {field} in the precondition ({wanted}) does not match the {field} in record"
            raise conflict(kind, name_of(obj), f"{why} ({known.get(key)}). {since}")


def _precondition(options: JsonObject, key: str) -> object:
    conditions = options.get("preconditions")
    return conditions.get(key) if isinstance(conditions, dict) else None


def _grace(pod: JsonObject, options: JsonObject) -> int:
    """Return the seconds that a pod gets to go: none where no kubelet would say that it went."""
    if not text(pod, "spec", "nodeName") or text(pod, "status", "phase") in _TERMINAL:
        return 0
    wanted = options.get("gracePeriodSeconds")
    period = (
        wanted if isinstance(wanted, int) else number(pod, "spec", "terminationGracePeriodSeconds")
    )
    return 1 if period < 0 else period


def _shorten(ending: _Ending, options: JsonObject, now: datetime) -> None:
    """Bring the end of a pod nearer that was told to go before; it is never put off."""
    left = number(ending.obj, "metadata", "deletionGracePeriodSeconds")
    if not left:
        return
    wanted = options.get("gracePeriodSeconds")
    if not isinstance(wanted, int) or wanted >= left:
        if not isinstance(wanted, int):
            options["gracePeriodSeconds"] = left
        ending.is_pending = True
        return
    deleted_at = moment_of(text(ending.obj, "metadata", "deletionTimestamp"))
    deadline = deleted_at + timedelta(seconds=wanted - left)
    if deadline < now:
        # All of the grace is over, but a request with some gets the least there is.
        deadline, wanted = now, min(wanted, 1)
    _set_deadline(ending, deadline, wanted)


def _set_deadline(ending: _Ending, deadline: datetime, period: int) -> None:
    metadata = metadata_of(ending.obj)
    metadata["deletionTimestamp"] = timestamp(deadline)
    metadata["deletionGracePeriodSeconds"] = period
    ending.is_graceful = True


def _raise_generation(obj: JsonObject) -> None:
    generation = number(obj, "metadata", "generation")
    if generation:
        metadata_of(obj)["generation"] = generation + 1


def _finalizers(obj: JsonObject, options: JsonObject) -> tuple[bool, list[str]]:
    """Return whether the finalizers of the garbage collector change, and all that follow."""
    listed = metadata_of(obj).get("finalizers")
    before = [str(entry) for entry in listed] if isinstance(listed, list) else []
    after = [finalizer for finalizer in before if finalizer not in _FINALIZERS.values()]
    # As requested, else as it was told before.
    told = next((policy for policy, one in _FINALIZERS.items() if one in before), "")
    wanted = _FINALIZERS.get(str(options.get("propagationPolicy") or told))
    if wanted is not None:
        after.append(wanted)
    return set(before) != set(after), after


async def _mark(writes: Writes, turn: Turn, options: JsonObject) -> JsonObject:
    """Tell the object to go. Raises _Settled where there is nothing to tell it."""

    async def mark(current: JsonObject) -> JsonObject:
        _check_stored(turn, current, options)
        await _review(writes, turn, current, options)
        ending = _choose_ending(turn, current, options, writes.now())
        if ending.is_pending:
            raise _Settled(is_pending=True)
        metadata = metadata_of(ending.obj)
        _, finalizers = _finalizers(current, options)
        metadata.pop("finalizers", None)
        if finalizers:
            metadata["finalizers"] = finalizers
        if not ending.is_graceful:
            if not finalizers:
                raise _Settled(is_pending=False)
            _mark_as_deleting(ending.obj, writes.now())
        return ending.obj

    return await writes.guarantee(turn, mark)


async def _review(writes: Writes, turn: Turn, obj: JsonObject, options: JsonObject) -> None:
    """Have all webhooks review a deletion. Raises Refusal where one of them denies."""
    attempt = turn.attempt("DELETE", obj, None, options)
    await writes.admission.mutate(attempt)
    await writes.admission.validate(attempt)


def _mark_as_deleting(obj: JsonObject, now: datetime) -> None:
    """Mark an object without grace that its finalizers hold."""
    metadata = metadata_of(obj)
    deleted_at = text(obj, "metadata", "deletionTimestamp")
    if not deleted_at:
        _raise_generation(obj)
    if not deleted_at or moment_of(deleted_at) > now:
        metadata["deletionTimestamp"] = timestamp(now)
    metadata["deletionGracePeriodSeconds"] = 0


def _check_stored(turn: Turn, obj: JsonObject, options: JsonObject) -> None:
    """Raise Refusal (409) as the store does where a precondition no longer holds."""
    known = metadata_of(obj)
    uid, version = _precondition(options, "uid"), _precondition(options, "resourceVersion")
    if uid is not None and uid != known.get("uid"):
        raise uid_precondition(turn.place, str(uid), str(known.get("uid")))
    if version is not None and version != known.get("resourceVersion"):
        field = "ResourceVersion"
        why = f"Precondition failed: {field} in precondition: {version}, {field} in object meta:"
        raise store_precondition(turn.place, f"{why} {known.get('resourceVersion')}")


async def _remove(
    writes: Writes, turn: Turn, options: JsonObject, marked: JsonObject | None
) -> JsonObject:
    """Take the object away and return its last version."""
    if marked is not None and _precondition(options, "resourceVersion") is not None:
        conditions = options["preconditions"]
        assert isinstance(conditions, dict)
        version = metadata_of(marked)["resourceVersion"]
        options = {**options, "preconditions": {**conditions, "resourceVersion": version}}
    current = writes.store.get(turn.place)
    while current is not None:
        _check_stored(turn, current, options)
        await _review(writes, turn, current, options)
        latest = writes.store.get(turn.place)
        if latest is current:
            if turn.is_dry_run:
                return current
            return writes.store.remove(turn.place, turn.by)
        current = latest
    if marked is not None:  # another request was faster, with what is requested here as well
        return marked
    raise not_found(turn.kind.resource, turn.request.name)


def _answer(turn: Turn, obj: JsonObject) -> ApiAnswer:
    """Return the object that is gone, or a Status that names it, as its kind does."""
    resource = turn.kind.resource
    if resource.plural == _GRACEFUL:
        return ApiAnswer(status=200, body=obj)
    details: JsonObject = {"name": name_of(obj), "kind": resource.plural, "uid": uid_of(obj)}
    if resource.group:
        details["group"] = resource.group
    status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    return ApiAnswer(status=200, body={**status, "status": "Success", "details": details})


ACTOR: Final = "garbage-collector"
# From a change until the collector has come to what it means.
DELAY: Final[Range] = (timedelta(milliseconds=10), timedelta(milliseconds=200))
# After a refusal, such as that of a webhook.
RETRY: Final[Range] = (timedelta(seconds=1), timedelta(seconds=2))
_KNOWN_KINDS: Final = frozenset(kind.resource.kind for kind in KINDS.values())


class GarbageCollector:
    """Follows all writes, and acts in small steps by timers of the running loop."""

    def __init__(
        self,
        store: ObjectStore,
        call: Callable[[ApiRequest], ApiAnswer],
        call_reviewed: Callable[[ApiRequest], Coroutine[Any, Any, ApiAnswer]],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._call = call
        self._call_reviewed = call_reviewed
        """For what webhooks may review, as they do writes of StatefulSets."""
        self._rng = rng
        self._timers = Timers()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[ObjectKey] = set()
        self._owned: dict[str, dict[ObjectKey, None]] = defaultdict(dict)
        """By the UID of an owner: who names it, in the order in which they came."""
        self._alive: dict[str, ObjectKey] = {}
        store.listeners.append(self._record)

    def stop(self) -> None:
        """Do nothing any more."""
        self._timers.stop()
        for task in self._tasks:
            task.cancel()

    def _record(self, commit: Commit) -> None:
        place = ObjectKey(commit.resource, commit.namespace, commit.name)
        before, after = commit.before, commit.after
        if before is None or after is None or _references(before) != _references(after):
            self._index(place, before, after)
        if before is None or after is None or uid_of(before) != uid_of(after):
            self._record_life(place, before, after)
        if after is not None and is_terminating(after) and _is_held(after):
            self._check_soon(place)
            if _has_finalizer(after, FOREGROUND):
                self._check_all(self._owned.get(uid_of(after), ()))

    def _record_life(
        self, place: ObjectKey, before: JsonObject | None, after: JsonObject | None
    ) -> None:
        if after is not None:
            self._alive[uid_of(after)] = place
        if before is not None:
            uid = uid_of(before)
            self._alive.pop(uid, None)
            self._check_all(self._owned.get(uid, ()))

    def _index(self, place: ObjectKey, before: JsonObject | None, after: JsonObject | None) -> None:
        for uid in () if before is None else _owner_uids(before):
            self._owned[uid].pop(place, None)
            if (home := self._alive.get(uid)) is not None and self._waits(home):
                self._check_soon(home)
            if not self._owned[uid]:
                del self._owned[uid]
        for uid in () if after is None else _owner_uids(after):
            self._owned[uid][place] = None
        if after is not None and not all(self._is_owned(place, owner) for owner in _owners(after)):
            self._check_soon(place)

    def _check_all(self, places: Iterable[ObjectKey]) -> None:
        for place in tuple(places):
            self._check_soon(place)

    def _check_soon(self, place: ObjectKey, after: Range = DELAY) -> None:
        if place not in self._waiting:
            self._waiting.add(place)
            self._timers.after(draw(self._rng, after), lambda: self._step(place))

    def _step(self, place: ObjectKey) -> None:
        self._waiting.discard(place)
        obj = self._store.get(place)
        if obj is None:
            return
        if not is_terminating(obj):
            self._judge(place, obj)
        elif _has_finalizer(obj, ORPHAN):
            self._let_go(place, obj)
        elif _has_finalizer(obj, FOREGROUND) and not self._is_blocked(obj):
            self._drop_finalizer(place, obj, FOREGROUND)

    def _judge(self, place: ObjectKey, obj: JsonObject) -> None:
        """Delete an object without a living owner; let others forget the dead owners."""
        references = _owners(obj)
        if not references or any(_is_unknown(reference) for reference in references):
            return
        solid = [reference for reference in references if self._is_owned(place, reference)]
        if not solid:
            self._delete(place, obj, self._choose_policy(obj, references))
        elif len(solid) < len(references):
            self._set_owners(place, obj, solid)

    def _choose_policy(self, obj: JsonObject, references: list[JsonObject]) -> str:
        for policy, finalizer in (("Orphan", ORPHAN), ("Foreground", FOREGROUND)):
            if _has_finalizer(obj, finalizer):
                return policy
        homes = [self._alive.get(text(reference, "uid")) for reference in references]
        is_awaited = any(home is not None and self._waits(home) for home in homes)
        return "Foreground" if is_awaited and self._owned.get(uid_of(obj)) else "Background"

    def _waits(self, place: ObjectKey) -> bool:
        """Return whether an object goes only once its dependants are gone."""
        obj = self._store.get(place)
        return obj is not None and is_terminating(obj) and _has_finalizer(obj, FOREGROUND)

    def _is_blocked(self, obj: JsonObject) -> bool:
        """Return whether a dependant is left that keeps its owner from going."""
        uid = uid_of(obj)
        dependants = [self._store.get(place) for place in self._owned.get(uid, ())]
        return any(
            text(owner, "uid") == uid and owner.get("blockOwnerDeletion")
            for dependant in dependants
            if dependant is not None
            for owner in _owners(dependant)
        )

    def _is_owned(self, place: ObjectKey, reference: JsonObject) -> bool:
        """Return whether the owner that a reference names is there, and may own."""
        home = self._alive.get(text(reference, "uid"))
        if home is None or home.name != text(reference, "name") or self._waits(home):
            return False
        return not home.resource.is_namespaced or home.namespace == place.namespace

    def _let_go(self, place: ObjectKey, obj: JsonObject) -> None:
        """Make all dependants forget an owner, then let it go."""
        uid, are_free = uid_of(obj), True
        for owned in tuple(self._owned.get(uid, ())):
            dependant = self._store.get(owned)
            if dependant is not None:
                kept = [each for each in _owners(dependant) if text(each, "uid") != uid]
                are_free = self._set_owners(owned, dependant, kept) and are_free
        if are_free:
            self._drop_finalizer(place, obj, ORPHAN)
        else:
            self._check_soon(place, RETRY)

    def _set_owners(self, place: ObjectKey, obj: JsonObject, kept: list[JsonObject]) -> bool:
        body = _changed(obj, {"ownerReferences": kept or None})
        return self._send(place, "patch", body)

    def _drop_finalizer(self, place: ObjectKey, obj: JsonObject, finalizer: str) -> None:
        listed = metadata_of(obj).get("finalizers")
        kept = [entry for entry in listed if entry != finalizer] if isinstance(listed, list) else []
        request = _request_of(place, "patch", _changed(obj, {"finalizers": kept}))
        self._waiting.add(place)
        task = asyncio.get_running_loop().create_task(self._release(place, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, place: ObjectKey, request: ApiRequest) -> None:
        answer = await self._call_reviewed(request)
        self._waiting.discard(place)
        self._try_again(place, answer)

    def _delete(self, place: ObjectKey, obj: JsonObject, policy: str) -> None:
        known = metadata_of(obj)
        options: JsonObject = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": known["uid"], "resourceVersion": known["resourceVersion"]},
            "propagationPolicy": policy,
        }
        self._send(place, "delete", options)

    def _send(self, place: ObjectKey, verb: Verb, body: JsonObject) -> bool:
        answer = self._call(_request_of(place, verb, body))
        return self._try_again(place, answer)

    def _try_again(self, place: ObjectKey, answer: ApiAnswer) -> bool:
        """Look once more where a request was refused; return whether it was not."""
        is_done = answer.is_ok or answer.status == 404
        if not is_done:
            self._check_soon(place, RETRY)
        return is_done


def _changed(obj: JsonObject, metadata: JsonObject) -> JsonObject:
    known: JsonObject = {key: metadata_of(obj)[key] for key in ("uid", "resourceVersion")}
    return {"metadata": {**known, **metadata}}


def _request_of(place: ObjectKey, verb: Verb, body: JsonObject) -> ApiRequest:
    return ApiRequest(
        verb=verb,
        resource=place.resource,
        namespace=place.namespace,
        name=place.name,
        body=body,
        content_type=MERGE_PATCH if verb == "patch" else "application/json",
        user=ACTOR,
    )


def _references(obj: JsonObject) -> object:
    return metadata_of(obj).get("ownerReferences")


def _owners(obj: JsonObject) -> list[JsonObject]:
    return children(obj, "metadata", "ownerReferences")


def _owner_uids(obj: JsonObject) -> tuple[str, ...]:
    return tuple(text(owner, "uid") for owner in _owners(obj))


def _is_held(obj: JsonObject) -> bool:
    """Return whether an object goes only once its dependants have forgotten it, or are gone."""
    return _has_finalizer(obj, ORPHAN) or _has_finalizer(obj, FOREGROUND)


def _has_finalizer(obj: JsonObject, finalizer: str) -> bool:
    listed = metadata_of(obj).get("finalizers")
    return isinstance(listed, list) and finalizer in listed


def _is_unknown(reference: JsonObject) -> bool:
    return text(reference, "kind") not in _KNOWN_KINDS


_VERSIONS: Final = (None, "", "policy/v1", "policy/v1beta1")
_WOULD_VIOLATE: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_OVER: Final = ("Succeeded", "Failed")
_DISRUPTED: Final[JsonObject] = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}

_USED_UP: Final[JsonObject] = {
    "type": "DisruptionAllowed",
    "status": "False",
    "reason": "InsufficientPods",
    "message": "",
}


def check_eviction(request: ApiRequest) -> None:
    """Check the body of an eviction, before any webhook is called. Raises NotModelled."""
    body = request.body if isinstance(request.body, dict) else {}
    expect_one_of(_VERSIONS, "apiVersion of an eviction", body.get("apiVersion"))
    expect(name_of(body) == request.name, "metadata.name of an eviction", name_of(body))


def evict(api: ApiServer, request: ApiRequest) -> ApiAnswer:
    """Evict a pod, or refuse it. Raises Refusal (404, 409, 429)."""
    pod = api.get(PODS, request.namespace, request.name)
    if pod is None:
        raise not_found(PODS, request.name)
    options = _options(request)
    if _needs_no_budget(pod):
        if text(pod, "status", "phase") not in _OVER and not is_terminating(pod):
            options = _with_version(options, pod)  # lest it becomes ready meanwhile
    else:
        budgets = [
            budget for budget in api.list(BUDGETS, request.namespace) if _guards(budget, pod)
        ]
        expect(len(budgets) <= 1, "an eviction under several budgets", len(budgets))
        if budgets and not _is_unready_and_free(pod, budgets[0]):
            _take(api, request, budgets[0])
        if budgets:
            options = _with_version(options, pod)
    _delete(api, request, options)
    return ApiAnswer(
        status=201,
        body={
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        },
    )


def _options(request: ApiRequest) -> JsonObject:
    body = request.body if isinstance(request.body, dict) else {}
    options = {**child(body, "deleteOptions"), "kind": "DeleteOptions", "apiVersion": "v1"}
    if request.is_dry_run:
        options["dryRun"] = ["All"]
    return options


def _needs_no_budget(pod: JsonObject) -> bool:
    """Return whether its going disrupts nothing: it has ended, not begun, or is on its way out."""
    return text(pod, "status", "phase") in (*_OVER, "Pending") or is_terminating(pod)


def _with_version(options: JsonObject, pod: JsonObject) -> JsonObject:
    """Return options that hold only for this version, where they name none themselves."""
    known = child(options, "preconditions")
    version = text(pod, "metadata", "resourceVersion")
    return {**options, "preconditions": {"resourceVersion": version, **known}}


def _guards(budget: JsonObject, pod: JsonObject) -> bool:
    selector = child(budget, "spec").get("selector")
    # Without a selector it guards none; with an empty selector, all.
    return isinstance(selector, dict) and matches(selector, labels_of(pod))


def _is_unready_and_free(pod: JsonObject, budget: JsonObject) -> bool:
    """Return whether a pod that is not ready may go without taking from the budget."""
    if condition_of(pod, "Ready").get("status") == "True":
        return False
    if text(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy = number(budget, "status", "currentHealthy")
    return healthy >= number(budget, "status", "desiredHealthy") > 0


def _take(api: ApiServer, request: ApiRequest, budget: JsonObject) -> None:
    """Use up one disruption that a budget allows. Raises Refusal where it allows none."""
    status = child(budget, "status")
    is_observed = number(status, "observedGeneration") >= number(budget, "metadata", "generation")
    expect(is_observed, "an eviction under a budget that is not observed", name_of(budget))
    allowed = number(status, "disruptionsAllowed")
    if not allowed:
        raise _exhausted(budget)
    if not request.is_dry_run:
        now = timestamp(api.now())
        going = {**child(status, "disruptedPods"), request.name: now}
        left = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": going}
        if allowed == 1:
            used = {"observedGeneration": status["observedGeneration"], "lastTransitionTime": now}
            conditions = children(status, "conditions")
            left["conditions"] = _with_condition(conditions, {**_USED_UP, **used})
        api.put({**budget, "status": left}, actor="api-server")


def _delete(api: ApiServer, request: ApiRequest, options: JsonObject) -> None:
    """Mark a pod as disrupted and delete it, if it is still what the options say."""
    deletion = replace(request, verb="delete", subresource="", query={}, body=options)
    if not request.is_dry_run:
        pod = api.get(PODS, request.namespace, request.name)
        assert pod is not None, "nothing comes between the steps"
        _check_preconditions(PODS, pod, options)
        version = _mark_evicted(api, request, pod)
        if child(options, "preconditions").get("resourceVersion"):
            known = {**child(options, "preconditions"), "resourceVersion": version}
            deletion = replace(deletion, body={**options, "preconditions": known})
    _checked(api.call_now(deletion))


def _mark_evicted(api: ApiServer, request: ApiRequest, pod: JsonObject) -> str:
    """Write why a pod goes into its status; return its new version."""
    condition = {**_DISRUPTED, "lastProbeTime": None, "lastTransitionTime": timestamp(api.now())}
    before = condition_of(pod, "DisruptionTarget")
    if before.get("status") == "True":
        condition["lastTransitionTime"] = before.get("lastTransitionTime")
    conditions = _with_condition(children(pod, "status", "conditions"), condition)
    body = {**pod, "status": {**child(pod, "status"), "conditions": conditions}}
    write = replace(request, verb="update", subresource="status", query={}, body=body)
    return text(_checked(api.call_now(write)).body, "metadata", "resourceVersion")


def _with_condition(before: list[JsonObject], changed: JsonObject) -> list[JsonObject]:
    known = {condition.get("type"): condition for condition in before}
    return [*{**known, changed["type"]: changed}.values()]


def _checked(answer: ApiAnswer) -> ApiAnswer:
    if answer.is_ok:
        return answer
    raise ApiRefusal(answer.status, answer.reason, answer.message)


def _exhausted(budget: JsonObject) -> ApiRefusal:
    """Return the refusal of a budget that has no disruption left."""
    name, status = name_of(budget), child(budget, "status")
    healthy, wanted = number(status, "currentHealthy"), number(status, "desiredHealthy")
    why = f"The disruption budget {name} does not allow evicting pods currently"
    if healthy <= wanted:
        needs = f"needs {wanted} healthy pods and has {healthy} currently"
        why = f"The disruption budget {name} {needs}"
    causes: list[JsonObject] = [{"reason": "DisruptionBudget", "message": why}]
    return ApiRefusal(429, "TooManyRequests", _WOULD_VIOLATE, causes=causes)
