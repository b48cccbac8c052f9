"""Read what `kubectl get -o yaml` prints: documents and lists into single objects.

Decides what is readable. Errors repeat no value of the text, which may hold Secrets; of keys they
name only one that is given twice.
"""

import codecs
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import msgspec
import yaml

from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import quote
from rollout_operator.planning.wording import join_names

# As Windows PowerShell writes what it redirects into a file.
_WIDE: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Ten times faster, where libyaml was there when PyYAML was built.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
STDIN: Final = "-"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
# What kustomize reads.
_NO_OBJECT: Final = "kustomization"
_LIST: Final = "List"
# Objects of Kubernetes have some ten levels; schemas of their kinds, a few more.
_DEEPEST: Final = 200
# May stand several times in a mapping, and takes in others.
_MERGE: Final = "<<"
_TOO_DEEP: Final = "the input is nested too deeply"
_CUT: Final = "the input seems to end early"
HINT: Final = "pass what `kubectl get statefulsets,pods -o yaml` prints"


class _Mark(Protocol):
    """A place in the text: PyYAML and libyaml have a class each."""

    line: int
    column: int


class BadDump(InvalidInput):
    """The input cannot be used; the text says why."""


class _NoObjects(InvalidInput):
    """The text holds no objects: the caller knows which to pass."""


def read_file(name: str, stdin: BinaryIO, flag: str = "f") -> tuple[bytes, datetime | None]:
    """Return the content of a file, or of `stdin` for `-`, and when the file was written.

    `flag` has named it. Raises BadDump.
    """
    if name == STDIN:
        return stdin.read(), None
    path = Path(name)
    try:
        return path.read_bytes(), datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError as error:
        raise BadDump(f"-{flag} {name}: {error.strerror or 'cannot be read'}") from None


def read_all(
    names: Iterable[str], stdin: BinaryIO, flag: str = "f"
) -> tuple[list[JsonObject], datetime | None]:
    """Return the objects of files and folders, and when the newest file was written.

    That is None where `stdin` is among them: it is of now. Raises BadDump.
    """
    objects: list[JsonObject] = []
    times: list[datetime | None] = []
    files = [file for name in names for file in _list_files(name, flag)]
    for file in files:
        content, written_at = read_file(file, stdin, flag)
        times.append(written_at)
        try:
            objects += read_objects(content)
        except BadDump as error:
            raise BadDump(f"{error}" if files == [STDIN] else f"{file}: {error}") from None
    known = [time for time in times if time is not None]
    return objects, max(known) if len(known) == len(times) else None


def _list_files(name: str, flag: str) -> Sequence[str]:
    """Return the files of a folder as kubectl reads them, or the file that is named."""
    folder = Path(name)
    if name == STDIN or not folder.is_dir():
        return [name]
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    except OSError as error:
        raise BadDump(f"-{flag} {name}: {error.strerror or 'cannot be read'}") from None
    files = [f"{path}" for path in found if path.stem != _NO_OBJECT]
    if not files:
        raise BadDump(f"-{flag} {name}: no file in it ends with {join_names(_SUFFIXES)}")
    return files


def read_objects(content: bytes, hint: str = HINT) -> list[JsonObject]:
    """Return all objects in the text, those of lists one by one.

    Raises BadDump, which ends with the hint where the text holds no objects.
    """
    try:
        text = _decode(content)
        found = [item for document in _parse(text) for item in _flatten(document, {})]
        return [_as_json(item) for item in found]
    except RecursionError:
        raise BadDump(_TOO_DEEP) from None
    except _NoObjects as error:
        raise BadDump(f"{error}: {hint}") from None


def is_of(obj: JsonObject, resource: Resource) -> bool:
    """Return whether an object is of a kind, in whatever version of its API."""
    group = str(obj.get("apiVersion") or "").rpartition("/")[0]
    return (group, obj.get("kind")) == (resource.group, resource.kind)


def _decode(content: bytes) -> str:
    wide = content.startswith(_WIDE)
    try:
        return content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise _NoObjects("the input is not text in UTF-8") from None


def _parse(text: str) -> list[object]:
    if text.lstrip().startswith("{"):
        try:
            return [json.loads(text, object_pairs_hook=_join_fields)]
        except ValueError:
            pass  # several objects, YAML in one line, or a key that is given twice
    try:
        _check_structure(text)
        return list(yaml.load_all(text, _LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        why = f"; {_CUT}" if mark is not None and _is_at_end(mark, text) else ""
        raise _NoObjects(f"the input is not YAML{_place(mark)}{why}") from None
    except (yaml.YAMLError, ValueError):
        raise _NoObjects("the input is not YAML") from None


def _is_at_end(mark: _Mark, text: str) -> bool:
    """Return whether nothing is left to read at a place."""
    lines = text.rstrip().split("\n")
    return (mark.line, mark.column) >= (len(lines) - 1, len(lines[-1]))


def _join_fields(fields: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON. Raises ValueError where a key is given twice."""
    joined = dict(fields)
    if len(joined) < len(fields):
        raise ValueError
    return joined


def _check_structure(text: str) -> None:
    """Raise BadDump for a key that is given twice, of which YAML would keep the last alone.

    Also for what is nested so deeply that libyaml would exhaust the stack and crash.
    """
    keys: list[set[str] | None] = []  # of each open collection; None: a list
    is_key: list[bool] = []
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            keys.pop()
            is_key.pop()
        elif isinstance(event, yaml.NodeEvent):
            known = keys[-1] if keys else None
            if known is not None:
                if is_key[-1] and isinstance(event, yaml.ScalarEvent) and event.value != _MERGE:
                    if event.value in known:
                        where = _place(event.start_mark)
                        raise BadDump(f"key {quote(event.value)} is given twice{where}")
                    known.add(event.value)
                is_key[-1] = not is_key[-1]
            if isinstance(event, yaml.CollectionStartEvent):
                keys.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
                is_key.append(True)
                if len(keys) > _DEEPEST:
                    raise BadDump(_TOO_DEEP)


def _place(mark: _Mark | None) -> str:
    """Return where it is wrong. What is there is not told: it may be part of a Secret."""
    return "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"


def _flatten(document: object, inherited: dict[str, object]) -> Iterator[dict[str, object]]:
    """Yield the objects of a document; items of a typed list have kind and version from it."""
    if document is None:  # nothing between two separators
        return
    if isinstance(document, list):
        for item in document:
            yield from _flatten(item, inherited)
        return
    if not isinstance(document, dict):
        raise _NoObjects("the input holds something that is no Kubernetes object")
    found = {**inherited, **document}
    kind, items = found.get("kind"), found.get("items")
    if kind is None and isinstance(items, list):
        raise _NoObjects(f"{_CUT}: a list without kind, which kubectl writes last")
    if not isinstance(kind, str):
        raise _NoObjects("the input holds an object without kind")
    if not kind.endswith(_LIST) or not isinstance(items, list | None):
        if not isinstance(found.get("apiVersion"), str):
            raise _NoObjects(f"the input holds an object of kind {kind} without apiVersion")
        yield found
        return
    of = kind.removesuffix(_LIST)
    member = {"kind": of, "apiVersion": found.get("apiVersion")} if of else {}
    for item in items or ():
        yield from _flatten(item, member)


def _as_json(found: dict[str, object]) -> JsonObject:
    """Return an object in words of JSON: YAML knows dates, bytes and keys that are numbers."""
    try:
        plain: JsonObject = msgspec.json.decode(msgspec.json.encode(found))
    except (TypeError, ValueError, OverflowError):
        raise BadDump(f"an object of kind {found['kind']} holds what JSON cannot say") from None
    return plain
