"""How any object is made ready to be stored: the order of steps that all kinds share.

What sets one kind apart is a `Rules`; which kinds there are is `kinds`' part. A part of an object
that an update leaves alone is shared with the old version: never change an object that is stored.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from rollout_lab.model.fields import metadata_of, name_of, number
from rollout_lab.model.request import NotModelled
from rollout_lab.schemas.metadata import (
    check_metadata,
    check_metadata_update,
    check_name,
    explain_undecodable,
    keep_metadata,
)
from rollout_lab.schemas.refusals import bad_request
from rollout_lab.schemas.tidy import tidied_fields, tidied_metadata
from rollout_operator.kube.api import JsonObject, Resource

_ALWAYS: Final = frozenset({"apiVersion", "kind", "metadata"})


def _nothing(obj: JsonObject) -> None:
    """Leave an object as it is."""


def _no_step(old: JsonObject, new: JsonObject) -> None:
    """Leave an update as it is."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What sets one kind apart from the others. Its checks raise NotModelled."""

    parts: frozenset[str] = frozenset({"spec", "status"})
    """Fields beside `metadata`; others are dropped."""
    raw: frozenset[str] = frozenset()
    """Of those, the fields whose content is the user's own and is kept as it is, uncopied."""
    raises_generation: tuple[str, ...] = ()
    """Fields whose change raises `metadata.generation`; empty where it has none."""
    has_label_name: bool = False
    """Whether its name must be a DNS label; else a subdomain."""
    keeps_status: bool = False
    """Whether a status is taken from its creator."""
    defaults: Mapping[str, Callable[[JsonObject], None]] = {}
    """What fills in what is absent in each field, given the whole object.

    Done to every version that has the field changed, also between mutating webhooks.
    """
    on_create: Callable[[JsonObject], None] = _nothing
    """What only a creation does."""
    on_update: Callable[[JsonObject, JsonObject], None] = _no_step
    """What an update of the object does besides, given old and new."""
    on_status_update: Callable[[JsonObject, JsonObject], None] = _no_step
    """The same for an update of its status."""
    check: Callable[[JsonObject], None] = _nothing
    """What must hold of every version."""
    check_update: Callable[[JsonObject, JsonObject], None] = _no_step
    """What must hold of an update but that of the status, given old and new."""


def default_object(rules: Rules, obj: JsonObject, kept: frozenset[str] = frozenset()) -> None:
    """Bring an object, in place, into the form in which the server reads it.

    All its fields are new but those in `kept`, which are in that form. Raises Refusal (400) where
    it cannot be read.
    """
    problem = explain_undecodable(obj)
    if problem:
        raise bad_request(f"{_name_type(obj)}: {problem}")
    obj["metadata"] = tidied_metadata(obj)
    for key in [key for key in obj if key not in kept and key not in _ALWAYS]:
        if key in rules.raw and obj[key] is not None:
            continue
        value = obj.pop(key)
        if key in rules.parts:
            obj.update(tidied_fields({key: value}))
    for key, fill in rules.defaults.items():
        if key not in kept:
            fill(obj)


def create_object(rules: Rules, obj: JsonObject) -> None:
    """Make a new object, in place, ready to be stored."""
    if not rules.keeps_status:
        obj.pop("status", None)
    default_object(rules, obj)
    if rules.raises_generation:  # of other kinds it is what their creator says
        metadata_of(obj)["generation"] = 1
    rules.on_create(obj)
    try:
        check_object(rules, obj)
    except NotModelled as error:
        raise NotModelled(f"{obj.get('kind')} {name_of(obj)}: {error}") from None


def check_object(rules: Rules, obj: JsonObject) -> None:
    """Raise NotModelled, or Refusal (422), where an object as it is stored would not be taken."""
    check_name("metadata.name", name_of(obj), is_label=rules.has_label_name)
    check_metadata(obj)
    rules.check(obj)


def update_object(
    resource: Resource, rules: Rules, old: JsonObject, new: JsonObject, subresource: str
) -> None:
    """Make the new version of an object, in place, ready to be stored. Raises Refusal (422).

    Of the new version, top level and metadata may be changed.
    """
    is_status = subresource == "status"
    _keep(old, new, tuple(rules.parts - {"status"}) if is_status else ("status",))
    _default_changed(rules, old, new)
    keep_metadata(old, new)
    (rules.on_status_update if is_status else rules.on_update)(old, new)
    if any(old.get(key) != new.get(key) for key in rules.raises_generation):
        metadata_of(new)["generation"] = number(new, "metadata", "generation") + 1
    if old["metadata"] != new["metadata"]:
        check_metadata_update(resource, old, new)
    if any(old.get(key) is not new.get(key) for key in rules.parts):
        rules.check(new)
        if not is_status:
            rules.check_update(old, new)


def _keep(old: JsonObject, new: JsonObject, keys: tuple[str, ...]) -> None:
    for key in keys:
        new.pop(key, None)
        if key in old:
            new[key] = old[key]


def _default_changed(rules: Rules, old: JsonObject, new: JsonObject) -> None:
    """Bring what was changed into the stored form; share with the old version what was not."""
    kept = _share(old, new, rules.parts)
    default_object(rules, new, kept)
    _share(old, new, rules.parts - kept)


def _share(old: JsonObject, new: JsonObject, keys: frozenset[str]) -> frozenset[str]:
    same = frozenset(key for key in keys if key in old and new.get(key) == old[key])
    for key in same:
        new[key] = old[key]
    return same


def _name_type(obj: JsonObject) -> str:
    kind, version = obj.get("kind"), obj.get("apiVersion")
    return f'{kind} in version "{version}" cannot be handled as a {kind}'
