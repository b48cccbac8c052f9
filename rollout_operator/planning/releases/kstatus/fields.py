"""Fields of an object of any kind, as far as they have the type that they should have."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import parse_rfc3339


class ObjectCondition(msgspec.Struct, frozen=True, kw_only=True):
    """One of the conditions of an object."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None


class ApiObject:
    """An object as it is on the wire."""

    def __init__(self, tree: Mapping[str, object]) -> None:
        self._tree = tree

    @property
    def kind(self) -> str:
        """Return its kind."""
        return self.get_text("kind")

    @property
    def group(self) -> str:
        """Return the group of its API, empty for that of Kubernetes itself."""
        group, slash, _ = self.get_text("apiVersion").partition("/")
        return group if slash else ""

    def find(self, *path: str) -> object:
        """Return a value, None where there is none."""
        value: object = self._tree
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def get_text(self, *path: str) -> str:
        """Return a text, empty where there is none."""
        value = self.find(*path)
        return value if isinstance(value, str) else ""

    def find_int(self, *path: str) -> int | None:
        """Return an integer."""
        value = self.find(*path)
        return value if type(value) is int else None

    def count(self, name: str) -> int:
        """Return a number of its status, 0 where there is none."""
        return self.find_int("status", name) or 0

    def find_time(self, *path: str) -> datetime | None:
        """Return a timestamp."""
        return _parse_time(self.find(*path))

    def list_maps(self, *path: str) -> Sequence[Mapping[str, object]]:
        """Return the objects of a list."""
        value = self.find(*path)
        items = value if isinstance(value, list | tuple) else ()
        return [item for item in items if isinstance(item, Mapping)]

    @cached_property
    def conditions(self) -> Sequence[ObjectCondition]:
        """Return its conditions, as its status orders them."""
        return [
            _read_condition(ApiObject(condition))
            for condition in self.list_maps("status", "conditions")
        ]

    def find_condition(self, kind: str) -> ObjectCondition | None:
        """Return a condition by its type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def has_condition(self, kind: str, status: str = "True") -> bool:
        """Return whether a condition is there with a status."""
        condition = self.find_condition(kind)
        return condition is not None and condition.status == status


def _read_condition(read: ApiObject) -> ObjectCondition:
    return ObjectCondition(
        type=read.get_text("type"),
        status=read.get_text("status"),
        reason=read.get_text("reason"),
        message=read.get_text("message"),
        since=read.find_time("lastTransitionTime"),
    )


def _parse_time(value: object) -> datetime | None:
    try:
        return parse_rfc3339(value) if isinstance(value, str) else None
    except InvalidInput:
        return None
