"""The bill of materials: what the lock says, with licences, and the same each time."""

import json
import re
from typing import Any

import pytest

from release.lock import read_lock
from release.sbom import Component, describe_pins, describe_subject, render_sbom
from release.source import ROOT, Source

PURL = "pkg:pypi/rollout-operator@1.2.3"


@pytest.fixture(scope="module")
def document(source: Source) -> dict[str, Any]:
    """The bill of the wheel."""
    pins = read_lock(ROOT / "requirements.lock")
    loaded: dict[str, Any] = json.loads(
        render_sbom(describe_subject(source, pins, PURL), describe_pins(pins), source.epoch)
    )
    return loaded


def test_every_pin_is_listed_with_a_licence(document: dict[str, Any]) -> None:
    """DEP-22."""
    lock = (ROOT / "requirements.lock").read_text()
    pinned = re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE)
    listed = {one["name"]: one for one in document["components"]}

    assert {(name, one["version"]) for name, one in listed.items()} == {*pinned}
    # Where it is not installed here, nothing is known.
    assert {name for name, one in listed.items() if "licenses" not in one} <= {"typing-extensions"}
    assert listed["aiohttp"]["purl"].startswith("pkg:pypi/aiohttp@")


def test_dependencies_are_what_the_lock_says(document: dict[str, Any]) -> None:
    """DEP-22: each reference leads somewhere, and all is reached from the operator."""
    needs = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    reached, waiting = {PURL}, [PURL]
    while waiting:
        found = {*needs[waiting.pop()]} - reached
        reached |= found
        waiting += found

    assert reached == {*needs} == {PURL} | {one["bom-ref"] for one in document["components"]}


def test_the_same_contents_have_the_same_number() -> None:
    """DEP-27: and others another."""
    one = Component(name="a", version="1", purl="pkg:generic/a@1", licence="MIT")
    two = Component(name="b", version="1", purl="pkg:generic/b@1", licence="Some word", sha256="0a")
    first, second = (render_sbom(one, parts, epoch=0) for parts in ([two], [two]))

    assert first == second
    assert json.loads(first)["serialNumber"] != json.loads(render_sbom(one, [], 0))["serialNumber"]
    assert json.loads(first)["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    (shown,) = json.loads(first)["components"]
    assert shown["licenses"] == [{"license": {"name": "Some word"}}]
    assert shown["hashes"] == [{"alg": "SHA-256", "content": "0a"}]
