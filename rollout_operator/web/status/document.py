"""The description as JSON, and the schema of that."""

from collections.abc import Iterator
from functools import cache

import msgspec

from rollout_operator.model.description import SCHEMA_VERSION, Description
from rollout_operator.model.outcome import Code


def list_document(description: Description) -> Iterator[bytes]:
    """Yield the pieces of the JSON, one for each element of what the description lists.

    A thousand groups take longer to encode than the loop may stand still.
    """
    for number, field in enumerate(msgspec.structs.fields(Description)):
        value = getattr(description, field.name)
        if value is msgspec.UNSET:
            continue
        yield b"%s%s:" % (b"," if number else b"{", msgspec.json.encode(field.encode_name))
        if isinstance(value, tuple):
            yield from _list_elements(value)
        else:
            yield msgspec.json.encode(value)
    yield b"}\n"


def _list_elements(elements: tuple[object, ...]) -> Iterator[bytes]:
    yield b"["
    for number, element in enumerate(elements):
        yield (b"," if number else b"") + msgspec.json.encode(element)
    yield b"]"


@cache
def render_schema() -> bytes:
    """Return the JSON schema of what `list_document` yields."""
    return render_schema_of(Description, f"rollout-operator /status.json, version {SCHEMA_VERSION}")


def render_schema_of(kind: type[msgspec.Struct], title: str) -> bytes:
    """Return the JSON schema of a type, with a title."""
    schema = msgspec.json.schema(kind)
    # Reasons are added without a new version: a program must not refuse an unknown reason.
    schema["$defs"][Code.__name__] = {"title": Code.__name__, "type": "string"}
    titled = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **schema,
    }
    return msgspec.json.format(msgspec.json.encode(titled), indent=2) + b"\n"
