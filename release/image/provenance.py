"""A statement of what an image was made from, to be signed: in-toto, with SLSA's predicate."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from release.checksums import sha256_of
from release.image.debian import LOCK, Package
from release.source import Source

HOME: Final = "https://github.com/rollout-operator/rollout-operator"
MEDIA_TYPE: Final = "application/vnd.in-toto+json"
# The files that decide what is fetched.
_LOCKS: Final = ("requirements.lock", LOCK)


def render_statement(
    source: Source, subjects: Mapping[str, str], packages: Sequence[Package]
) -> bytes:
    """Return the statement about subjects, each a name and its sha256. It has no times."""
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{HOME}/blob/main/docs/release.md",
                "externalParameters": {"version": source.version, "source": HOME},
                "internalParameters": {"SOURCE_DATE_EPOCH": str(source.epoch)},
                "resolvedDependencies": [*_list_sources(source), *map(_render, packages)],
            },
            "runDetails": {"builder": {"id": f"{HOME}/blob/main/release"}},
        },
    }
    return (json.dumps(statement, indent=2) + "\n").encode()


def _list_sources(source: Source) -> list[dict[str, Any]]:
    commit = {"uri": f"git+{HOME}", "digest": {"gitCommit": source.revision}}
    locks = [
        {"uri": f"file:{name}", "digest": {"sha256": sha256_of(source.root / name)}}
        for name in _LOCKS
    ]
    return [commit, *locks] if source.revision else locks


def _render(package: Package) -> dict[str, Any]:
    return {"uri": package.purl, "digest": {"sha256": package.sha256}}
