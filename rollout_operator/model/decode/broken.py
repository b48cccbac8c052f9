"""Objects that cannot be decoded: what is wrong with them, and what they still say.

Slow, but objects rarely break; whatever they hold, neither the loop nor the memory suffers for it.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from rollout_operator.model.decode.excerpt import LONGEST_VALUE
from rollout_operator.model.decode.nesting import cut_deep
from rollout_operator.model.decode.not_ready import one_line
from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.errors import DecodeError
from rollout_operator.model.labels import LEFT_OUT, bound_labels
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Unreadable

_VALUE_LIMIT: Final = 80
# What is built as a whole takes milliseconds up to this size.
_LARGE: Final = 64 * 1024
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LABELS: Final = msgspec.json.Decoder(dict[str, str])


Decoded = TypeVar("Decoded")


def decode_or_salvage(
    kind: str, decode: Callable[[msgspec.Raw], Decoded], raw: msgspec.Raw
) -> Decoded | Unreadable:
    """Return the decoded object, `Unreadable` where it cannot be decoded."""
    try:
        return decode(raw)
    except DecodeError as error:
        return salvage(kind, raw, error)


def salvage(kind: str, raw: JsonBytes, error: DecodeError) -> Unreadable:
    """Return what `raw` still says about its identity; text that cannot be read is empty.

    Never raises, whatever `raw` is.
    """
    metadata = as_fields(as_fields(_loads(raw)).get("metadata"))
    labels = as_fields(metadata.get("labels"))
    return Unreadable(
        kind=kind,
        namespace=_text(metadata.get("namespace")),
        name=_text(metadata.get("name")),
        uid=Uid(_text(metadata.get("uid"))),
        resource_version=_text(metadata.get("resourceVersion")),
        owner_uid=_salvaged_owner(metadata.get("ownerReferences")),
        labels=bound_labels(
            {
                _text(key): _text(value)
                for key, value in sorted(labels.items())
                if isinstance(value, str)
            }
        ),
        error=str(error),
    )


def bound_text(text: str, most: int = LONGEST_VALUE) -> str:
    """Return a text that a client may write; what is too long for its field stays invalid."""
    return text if len(text) <= most else f"{text[:most]}..."


def show_value(value: object) -> str:
    """Return a value as JSON, cut where it is long."""
    return cut_value(json.dumps(value))


def cut_value(text: str) -> str:
    """Return as much of an offending value as a person needs to recognise it."""
    return text if len(text) <= _VALUE_LIMIT else f"{text[:_VALUE_LIMIT]}..."


def split_problem(problem: object) -> tuple[str, str]:
    """Return what a message of msgspec says is wrong, and where, such as `.spec.rules[...]`."""
    what, _, where = f"{problem}".partition(" - at `$")
    # Some begin with a name.
    what = what if what.startswith("JSON") else what[:1].lower() + what[1:]
    return what, where.rstrip("`")


def explain(kind: str, raw: JsonBytes, problem: str) -> DecodeError:
    """Return an error that names object, field and value; slow, but objects rarely break."""
    tree = _loads(raw)
    metadata = as_fields(as_fields(tree).get("metadata"))
    namespace, name = (one_line(_text(metadata.get(key))) for key in ("namespace", "name"))
    # Objects of the cluster have no namespace, nor have manifests that any may take.
    place = f"{namespace}/{name or '?'}" if namespace else name or "?"
    text, path = split_problem(problem)
    text, path = text.replace("`", ""), path.lstrip(".")
    read = _at(tree, path) if path else None
    if text.startswith("expected str, got"):
        path = _name_key(tree, path)
    field = f"{one_line(path)}: " if path else ""
    value = f": {show_value(read)}" if isinstance(read, str | int | float) else ""
    return DecodeError(f"{kind} {place}: {field}{text}{value}")


def _name_key(tree: object, path: str) -> str:
    """Return a path to a map of texts with the key that breaks it, for which msgspec has `...`."""
    above = path.removesuffix("[...]")
    texts = as_fields(_at(tree, above)) if above != path else {}
    wrong = next((key for key, value in texts.items() if not isinstance(value, str)), None)
    return path if wrong is None else f"{above}[{wrong}]"


def _at(tree: object, path: str) -> object:
    """Return the value at a path such as `spec.replicas`; anything but a scalar where in doubt."""
    for step in path.replace("[", ".[").split("."):
        index = step[1:-1]
        if isinstance(tree, list) and index.isdigit() and int(index) < len(tree):
            tree = tree[int(index)]
        elif isinstance(tree, dict) and step in tree:
            tree = tree[step]
        else:
            return ()
    return tree


def _loads(raw: JsonBytes) -> object:
    """Read JSON as leniently as can be: NaN, lone surrogates and broken UTF-8 pass."""
    body = _shed(bytes(raw))
    try:
        return _read_leniently(body)
    except RecursionError:
        return _read_leniently(cut_deep(body))


def _shed(body: bytes) -> bytes:
    """Return a large object without its large parts, which its name does not need.

    `managedFields` of 1.2 MB take a third of a second, and nothing else has a turn meanwhile.
    """
    if len(body) <= _LARGE:
        return body
    try:
        parts = _PARTS.decode(body)
        head = _PARTS.decode(parts.pop("metadata", b"{}"))
        metadata: dict[str, object] = {**_drop_large(head)}
        if "labels" in head.keys() - metadata.keys():
            metadata["labels"] = _shed_labels(head["labels"])
        return msgspec.json.encode({**_drop_large(parts), "metadata": metadata})
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body  # no JSON, or none of an object: it is read as far as it goes


def _shed_labels(raw: msgspec.Raw) -> Mapping[str, str]:
    try:
        return bound_labels(_LABELS.decode(raw))
    except msgspec.ValidationError:
        return {LEFT_OUT: ""}


def _drop_large(parts: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    return {key: part for key, part in parts.items() if memoryview(part).nbytes <= _LARGE}


def _read_leniently(body: bytes) -> object:
    try:
        loaded: object = json.loads(body.decode("utf-8", "replace"))
    except ValueError:
        return None
    return loaded


def as_fields(value: object) -> dict[str, object]:
    """Return the fields of an object, none of anything else."""
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _salvaged_owner(owners: object) -> Uid | None:
    for owner in owners if isinstance(owners, list) else ():
        fields = as_fields(owner)
        if fields.get("controller") is True and _text(fields.get("uid")):
            return Uid(bound_text(_text(fields["uid"])))
    return None
