"""What the controllers of Flux write into their objects, as it was recorded, and as it is seen.

Of an object is kept what releases read and what else a stand-in for Flux has to imitate. Whatever
differs from run to run is put into one form: names, digests, times, and generations, of which only
the distance counts.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.world.api import Json

RECORDED: Final = Path(__file__).parent / "recorded.yaml"
TIME: Final = "2026-01-02T03:04:05Z"
# The generation of every object in the record.
GENERATION: Final = 10
REQUESTED_AT: Final = "reconcile.fluxcd.io/requestedAt"
_UNSEEN: Final = -1
# By this name the tests write, as aiohttp gives it.
_TESTS: Final = "Python"
_STATUS: Final = (
    "conditions",
    "inventory",
    "lastAppliedRevision",
    "lastAttemptedRevision",
    "lastHandledReconcileAt",
    "observedGeneration",
)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
# Seconds and no fraction, in UTC: of another form a time would stay as it is, and show.
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
# Where kustomize-controller unpacks what it applies.
_FOLDER: Final = re.compile(r"/\S+/kustomization-\d+/")


def read_record() -> Json:
    record: Json = yaml.safe_load(RECORDED.read_text())
    return record


def write_record(record: Mapping[str, object]) -> None:
    text = yaml.safe_dump(record, width=100, sort_keys=True, allow_unicode=True)
    RECORDED.write_text(f"# Made by `make prove ARGS='flux --record'`.\n{text}")


def normalise(body: Json, names: Mapping[str, str]) -> Json:
    """Return what is recorded of an object; `names` says what stands for which text."""
    status, metadata = body.get("status") or {}, body["metadata"]
    kept = {key: status[key] for key in _STATUS if key in status}
    if "artifact" in status:
        kept["artifact"] = {"revision": status["artifact"]["revision"]}
    requested = (metadata.get("annotations") or {}).get(REQUESTED_AT)
    if requested is not None and kept.get("lastHandledReconcileAt") == requested:
        kept["lastHandledReconcileAt"] = "as it was requested"
    cleaned: Json = _clean(_shift(kept, GENERATION - metadata["generation"]), names)
    return cleaned


def map_managers(body: Json) -> dict[str, list[str]]:
    """Return the fields of each manager that is no client of a test, by name and operation."""
    entries = body["metadata"].get("managedFields") or []
    return {
        " ".join(filter(None, (entry["manager"], entry["operation"], entry.get("subresource")))): (
            sorted(_list_fields(entry.get("fieldsV1") or {}))
        )
        for entry in entries
        if entry["manager"] != _TESTS
    }


def show_conditions(body: Json) -> str:
    """Return all conditions in one line, each by type, status and reason."""
    status = body.get("status") or {}
    return ", ".join(
        sorted(
            f"{one['type']}={one['status']} {one['reason']}" for one in status.get("conditions", ())
        )
    )


def list_differences(seen: object, known: object, place: str = "") -> Iterable[str]:
    """Yield what is not as it was recorded, by its place."""
    if isinstance(seen, dict) and isinstance(known, dict):
        for key in sorted({*seen, *known}):
            yield from list_differences(seen.get(key), known.get(key), f"{place}/{key}")
    elif seen != known:
        yield f"{place}: {seen}, recorded: {known}"


def _list_fields(fields: Json, path: str = "") -> Iterable[str]:
    """Yield the places that a manager has, down to `spec.a.b`."""
    for key, below in fields.items():
        if key.startswith("f:"):
            place = f"{path}.{key[2:]}" if path else key[2:]
            if below and not place.startswith("status."):
                yield from _list_fields(below, place)
            else:
                yield place


def _shift(status: Json, by: int) -> Json:
    shifted: Json = {**status}
    if shifted.get("observedGeneration", _UNSEEN) != _UNSEEN:
        shifted["observedGeneration"] += by
    shifted["conditions"] = [
        {
            **one,
            "observedGeneration": one["observedGeneration"] + by,
            # How far an attempt has come depends on when it is read.
            "message": "" if one["type"] == "Reconciling" else one["message"],
        }
        for one in status.get("conditions") or []
    ]
    return shifted


def _clean(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _clean(below, names) for key, below in value.items()}
    if isinstance(value, list):
        return [_clean(below, names) for below in value]
    if not isinstance(value, str):
        return value
    for text, name in names.items():
        value = value.replace(text, name)
    value = _FOLDER.sub("/", _DIGEST.sub("sha256:OTHER", value))
    return _TIME.sub(TIME, value)
