"""Reviews that are none of the API server's (SEC-09): any field of a genuine one may be false.

Who reaches port 8443 without a certificate writes what it likes. A forgery is a genuine review with
one or two lies in it: every field that there is, and some that there might be.
"""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from rollout_operator.model.names import (
    GROUP_LABEL,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)

Json = dict[str, Any]
Lie = Callable[[Json, random.Random], None]

# No zone of any world requests these.
PATH: Final = "admin/delete-all-data"
PORT: Final = "9"
_TEXTS: Final = ("", "true", "false", "zone-a", "zone-b", "ingester", PATH, "None", "\u202e")
_NUMBERS: Final = (0, 1, 2, 3, 4, 5, -1, 2**31 - 1)
_MOST_LIES: Final = 2
# Whatever the genuine one is about: all else is answered at once.
_SHARE_OF_DECREASES: Final = 0.8


def forge(body: bytes, rng: random.Random) -> bytes:
    """Return a review like a genuine one, with lies in it."""
    review: Json = msgspec.json.decode(body)
    if rng.random() < _SHARE_OF_DECREASES:
        want_fewer(review["request"])
    for lie in rng.sample(LIES, rng.randint(1, _MOST_LIES)):
        lie(review["request"], rng)
    return msgspec.json.encode(review)


def list_leaves(tree: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths to all values in a tree of objects."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from list_leaves(value, (*path, key))
    else:
        yield path


def change_any(request: Json, rng: random.Random) -> None:
    """Replace or remove any one value."""
    *path, last = rng.choice(list(list_leaves(request)))
    tree: Any = request
    for step in path:
        tree = tree[step]
    if rng.random() < 0.2:
        del tree[last]
        return
    match tree[last]:
        case bool(value):
            tree[last] = not value
        case int():
            tree[last] = rng.choice(_NUMBERS)
        case str():
            tree[last] = rng.choice(_TEXTS)
        case _:
            tree[last] = rng.choice((None, {}, [], "", 0))


def want_fewer(request: Json) -> None:
    """Request one replica less than there are, in earnest."""
    request["dryRun"] = False
    objects = _objects(request)
    if len(objects) == 2:
        count = _part(objects[0], "spec").get("replicas") or 0
        _part(objects[1], "spec")["replicas"] = max(count - 1, 0)


def name_a_target(request: Json, rng: random.Random) -> None:
    """Say that the set is to be prepared, and where: somewhere else."""
    for one in _make_whole(request):
        _labels(one)[PREPARE_DOWNSCALE] = "true"
        _labels(one).pop(NO_DOWNSCALE, None)
        annotations = _part(_part(one, "metadata"), "annotations")
        annotations.setdefault(PREPARE_PATH, PATH)
        annotations.setdefault(PREPARE_PORT, "8080")
        _part(one, "spec").setdefault("serviceName", "headless")


def change_path(request: Json, rng: random.Random) -> None:
    name_a_target(request, rng)
    for one in _make_whole(request):
        one["metadata"]["annotations"][PREPARE_PATH] = PATH


def change_port(request: Json, rng: random.Random) -> None:
    name_a_target(request, rng)
    for one in _make_whole(request):
        one["metadata"]["annotations"][PREPARE_PORT] = PORT


def change_service(request: Json, rng: random.Random) -> None:
    """Say that another Service names the pods."""
    name_a_target(request, rng)
    for one in _make_whole(request):
        one["spec"]["serviceName"] = "any-host-i-like"


def drop_labels(request: Json, rng: random.Random) -> None:
    """Say that nothing has to be prepared."""
    for one in _make_whole(request):
        _part(one, "metadata")["labels"] = {}


def move_ordinals(request: Json, rng: random.Random) -> None:
    """Say that the ordinals begin somewhere else, in one object or in both."""
    objects = _make_whole(request)
    for one in rng.sample(objects, min(len(objects), rng.randint(1, 2))):
        _part(one, "spec")["ordinals"] = {"start": rng.choice(_NUMBERS[:4])}


def change_group(request: Json, rng: random.Random) -> None:
    """Say that the set is of another group, or of none."""
    for one in _make_whole(request):
        _labels(one)[GROUP_LABEL] = rng.choice(("", "another"))


def change_counts(request: Json, rng: random.Random) -> None:
    for one in _objects(request):
        _part(one, "spec")["replicas"] = rng.choice(_NUMBERS)


def swap(request: Json, rng: random.Random) -> None:
    """Take the new object for the old one."""
    old, new = request.get("oldObject"), request.get("object")
    request["object"], request["oldObject"] = old, new


def rehearse(request: Json, rng: random.Random) -> None:
    """Say that it is a dry run, or none."""
    request["dryRun"] = not request.get("dryRun")


LIES: Final[tuple[Lie, ...]] = (
    change_any,
    name_a_target,
    change_path,
    change_port,
    change_service,
    drop_labels,
    move_ordinals,
    change_group,
    change_counts,
    swap,
    rehearse,
)


def _objects(request: Json) -> list[Json]:
    both = (request.get("oldObject"), request.get("object"))
    return [one for one in both if isinstance(one, dict)]


def _make_whole(request: Json) -> list[Json]:
    """Make a review of a Scale one of the set itself: only there is anything to lie about."""
    for one in _objects(request):
        if one.get("kind") == "Scale":
            one.update(apiVersion="apps/v1", kind="StatefulSet")
            _labels(one).setdefault(GROUP_LABEL, "ingester")
            request.pop("subResource", None)
    return _objects(request)


def _labels(one: Json) -> Json:
    return _part(_part(one, "metadata"), "labels")


def _part(one: Json, key: str) -> Json:
    """Return an object inside of another, which gets its own copy of it."""
    found = one.get(key)
    one[key] = copy.deepcopy(found) if isinstance(found, dict) else {}
    kept: Json = one[key]
    return kept
