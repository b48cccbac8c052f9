"""What is wrong with an object, worded as the real API server words it.

Collects findings and makes the one refusal of them; what is wrong is decided by the rules of each
kind.
"""

from typing import Final

import msgspec

from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.lab.model.request import ApiRefusal

NEGATIVE: Final = "must be greater than or equal to 0"
IMMUTABLE: Final = "field is immutable"

_WORDS: Final = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotSupported": "Unsupported value",
}


class Problems:
    """The findings about one object, in the order in which they were made."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str, str]] = []

    def __bool__(self) -> bool:
        """Tell whether anything was found."""
        return bool(self._found)

    def require(self, field: str, detail: str = "") -> None:
        """Note that a field must be there."""
        self._add("FieldValueRequired", field, "", detail)

    def forbid(self, field: str, detail: str) -> None:
        """Note that a value may not be there, or may not change."""
        self._add("FieldValueForbidden", field, "", detail)

    def invalid(self, field: str, value: object, detail: str) -> None:
        """Note a value that is malformed or out of bounds."""
        self._add("FieldValueInvalid", field, _shown(value), detail)

    def mistype(self, field: str, value: str, detail: str) -> None:
        """Note a value of another type than its schema says; of it only the type is shown."""
        self._add("FieldValueTypeInvalid", field, _shown(value), detail)

    def break_rule(self, field: str, detail: str) -> None:
        """Note that a rule about an object with several fields is broken: it is not shown."""
        self._add("FieldValueInvalid", field, "", detail)

    def duplicate(self, field: str, value: object) -> None:
        """Note a value that occurs twice."""
        self._add("FieldValueDuplicate", field, _shown(value), "")

    def unsupported(self, field: str, value: object, supported: tuple[str, ...]) -> None:
        """Note a value that is none of those which are known."""
        known = ", ".join(f'"{one}"' for one in supported)
        self._add("FieldValueNotSupported", field, _shown(value), f"supported values: {known}")

    def negative(self, field: str, value: object) -> None:
        """Note a number where it is below zero."""
        if isinstance(value, int) and value < 0:
            self.invalid(field, value, NEGATIVE)

    def raise_if_any(self, resource: Resource, name: str) -> None:
        """Raise Refusal (422 Invalid) where anything was found."""
        if self._found:
            raise self.refusal(resource, name)

    def refusal(self, resource: Resource, name: str) -> ApiRefusal:
        """Return the refusal that names all findings; a repeated one is written once."""
        kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
        lines = list(dict.fromkeys(f"{field}: {body}" for _, field, body in self._found))
        listed = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
        causes: list[JsonObject] = [
            {"reason": reason, "message": body, "field": field}
            for reason, field, body in self._found
        ]
        message = f'{kind} "{name}" is invalid: {listed}'
        return ApiRefusal(422, "Invalid", message, causes=causes)

    def _add(self, reason: str, field: str, value: str, detail: str) -> None:
        parts = (_WORDS[reason], value, detail)
        self._found.append((reason, field, ": ".join(part for part in parts if part)))


def _shown(value: object) -> str:
    """Return a value as Go prints it: texts quoted, all else as compact JSON."""
    return msgspec.json.encode(value).decode()
