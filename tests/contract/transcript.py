"""What one world answered to a sequence, in a form that two worlds can be compared by.

What differs from run to run is replaced: UIDs by their order of appearance, versions by their rank
among all versions that the sequence saw, times and generated names by a word. Of lists and
bookmarks, whose version is the whole server's, only its relation to those is kept.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.contract.noise import without_noise, without_texts

Json = Any
"""Whatever JSON holds; the answers of two servers have no common type."""

_UID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_PORT: Final = re.compile(r"\blocalhost:\d+")
# Texts that hold versions, each as a group of digits.
_VERSIONS_IN_TEXTS: Final = (
    re.compile(r"(?<=ResourceVersion in precondition: )(\d+)(?=,)"),
    re.compile(r"(?<=ResourceVersion in object meta: )(\d+)"),
    re.compile(r"(?<=ResourceVersion in the precondition \()(\d+)"),
    re.compile(r"(?<=ResourceVersion in record \()(\d+)"),
)
_VERSIONS_OF_SERVERS: Final = (
    re.compile(r"(?<=too old resource version: )\d+ \(\d+\)"),
    re.compile(r"(?<=Too large resource version: )\d+, current: \d+"),
)
REVISION_LABEL: Final = "controller-revision-hash"
REVISIONS: Final = ("currentRevision", "updateRevision")
_SPAN: Final = re.compile(r"(?<=Retry after )\d+")


class Transcript:
    """The steps of one sequence on one side, as they happened."""

    def __init__(self, namespace: str) -> None:
        self.steps: list[Json] = []
        self._namespace = namespace

    def add(self, step: Mapping[str, Json]) -> None:
        """Record a step; the JSON in it is copied."""
        self.steps.append(json.loads(json.dumps(step)))

    def render(self, *, has_texts: bool = True) -> list[str]:
        """Return the lines by which two transcripts are compared, on demand without messages."""
        normal = _Normaliser(self._namespace, self.steps)
        steps = [normal.step(step) for step in self.steps]
        if not has_texts:
            steps = [without_texts(step) for step in steps]
        return [line for step in steps for line in _lines(step)]


def name_difference(one: Sequence[str], other: Sequence[str], name: str, other_name: str) -> str:
    """Return where two rendered transcripts differ, with some lines around; empty for nowhere."""
    return "\n".join(difflib.unified_diff(one, other, name, other_name, n=4, lineterm=""))


def _lines(step: Mapping[str, Json]) -> Iterator[str]:
    did = step.get("did", "")
    yield f"== {did}"
    rest = {key: value for key, value in step.items() if key != "did"}
    yield from json.dumps(rest, indent=1, sort_keys=True).splitlines()[1:-1]


class _Normaliser:
    def __init__(self, namespace: str, steps: Sequence[Json]) -> None:
        self._namespace = namespace
        self._uids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        versions = sorted({int(text) for step in steps for text in _object_versions(step)})
        self._ranks = {str(version): rank for rank, version in enumerate(versions, start=1)}
        self._newest = 0
        """Newest version seen so far: those of lists are held against it."""

    def step(self, step: Json) -> Json:
        seen = [int(text) for text in _object_versions(step)]
        self._newest = max([self._newest, *seen])
        return self._value(without_noise(step))

    def _value(self, value: Json) -> Json:
        match value:
            case dict():
                return self._object(value)
            case list():
                return [self._value(each) for each in value]
            case str():
                return self._text(value)
            case _:
                return value

    def _object(self, value: dict[str, Json]) -> Json:
        metadata = value.get("metadata")
        if isinstance(metadata, dict):
            self._record_generated(metadata)
            self._record_revisions(value)
            if _is_of_server(value):
                value = {**value, "metadata": self._server_metadata(metadata)}
            elif metadata.get("resourceVersion"):
                version = metadata["resourceVersion"]
                ranked = f"<version {self._ranks.get(version, version)}>"
                value = {**value, "metadata": {**metadata, "resourceVersion": ranked}}
        return {key: self._value(value[key]) for key in sorted(value)}

    def _server_metadata(self, metadata: dict[str, Json]) -> dict[str, Json]:
        version, shown = metadata.get("resourceVersion", ""), dict(metadata)
        if version:
            is_new = int(version) >= self._newest
            shown["resourceVersion"] = "<not older than what was seen>" if is_new else "<older>"
        if "continue" in metadata:
            shown["continue"] = "<token>"
        return shown

    def _record_generated(self, metadata: dict[str, Json]) -> None:
        prefix, name = metadata.get("generateName"), metadata.get("name")
        if prefix and name and name.startswith(prefix) and name not in self._names:
            self._names[name] = f"{prefix}<generated {len(self._names) + 1}>"

    def _record_revisions(self, value: dict[str, Json]) -> None:
        """Record the names of revisions: they hold a hash of Go's own view of a template."""
        status, labels = value.get("status"), value["metadata"].get("labels") or {}
        seen = [status.get(key) for key in REVISIONS] if isinstance(status, dict) else []
        for name in (*seen, labels.get(REVISION_LABEL)):
            if name and name not in self._names:
                prefix = name.rpartition("-")[0]
                number = sum("revision" in shown for shown in self._names.values()) + 1
                self._names[name] = f"{prefix}-<revision {number}>"

    def _text(self, text: str) -> str:
        text = text.replace(self._namespace, "<namespace>")
        text = _UID.sub(self._uid, text)
        text = _TIME.sub("<time>", text)
        text = _PORT.sub("localhost:<port>", text)
        for pattern in _VERSIONS_IN_TEXTS:
            text = pattern.sub(lambda found: f"<version {self._ranks.get(found[0], 0)}>", text)
        for pattern in _VERSIONS_OF_SERVERS:
            text = pattern.sub("<version> (<version>)", text)
        for name, shown in self._names.items():
            text = text.replace(name, shown)
        return _SPAN.sub("<n>", text)

    def _uid(self, found: re.Match[str]) -> str:
        return self._uids.setdefault(found[0], f"<uid {len(self._uids) + 1}>")


def _is_of_server(value: Mapping[str, Json]) -> bool:
    """Return whether an object's version is not its own: a list's, or a bookmark's."""
    return str(value.get("kind", "")).endswith("List") or value.get("is bookmark", False)


def _object_versions(value: Json) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _object_versions(each)
    if not isinstance(value, dict):
        return
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and not _is_of_server(value):
        version = metadata.get("resourceVersion", "")
        if isinstance(version, str) and version.isdigit():
            yield version
    for each in value.values():
        yield from _object_versions(each)
