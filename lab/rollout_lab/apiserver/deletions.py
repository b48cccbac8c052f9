"""Deletions: at once, gracefully, or once the last finalizer is gone.

Decides what a DELETE makes of an object, in the steps of the real server: a mark where a finalizer
must still be removed, then the removal, each with its own round of admission. What becomes of
dependants is `garbage`'s part.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_lab.apiserver.turns import Turn
from rollout_lab.apiserver.writes import Writes, store_precondition, uid_precondition
from rollout_lab.model.fields import (
    is_terminating,
    metadata_of,
    moment_of,
    name_of,
    number,
    text,
    timestamp,
    uid_of,
)
from rollout_lab.model.request import ApiAnswer, not_modelled
from rollout_lab.schemas.refusals import conflict, expect, expect_one_of, not_found
from rollout_lab.schemas.tidy import copy_json
from rollout_operator.kube.api import JsonObject

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
    _check_early(turn, obj, options)
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


def _check_early(turn: Turn, obj: JsonObject, options: JsonObject) -> None:
    resource, name = turn.kind.resource, turn.request.name
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    known = metadata_of(obj)
    for key, field, since in (
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ):
        wanted = _precondition(options, key)
        if wanted is not None and wanted != known.get(key):
            why = f"the {field} in the precondition ({wanted}) does not match the {field} in record"
            raise conflict(kind, name, f"{why} ({known.get(key)}). {since}")


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
        await writes.admission.review_deletion(turn, current, options)
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
        await writes.admission.review_deletion(turn, current, options)
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
