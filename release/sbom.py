"""A bill of materials in CycloneDX: what a release is made of, and under which licences."""

import importlib.metadata
import json
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from release.lock import ROOT_NAME, Pin
from release.source import Source

SPECIFICATION: Final = "1.6"
LICENCE: Final = "Apache-2.0"
# Names of serial numbers: the same contents have the same number.
_EXPRESSION: Final = re.compile(r"(MIT|0BSD|[A-Z]\w+-[\w.-]+)( (AND|OR|WITH) [\w.-]+)*")
_SERIALS: Final = uuid.uuid5(uuid.NAMESPACE_URL, "rollout-operator/sbom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One package in a release."""

    name: str
    version: str
    purl: str
    """What it is everywhere: `pkg:TYPE/...`."""
    licence: str = ""
    """An SPDX expression, or else the words of the package; empty where it says nothing."""
    sha256: str = ""
    """Of the file that it came in, where there is one."""
    needs: tuple[str, ...] = ()
    """The `purl` of each package that it depends on."""


def describe_pins(pins: Sequence[Pin]) -> list[Component]:
    """Return Python packages with the licences that are installed here under the same lock."""
    return [
        Component(
            name=pin.name,
            version=pin.version,
            purl=python_purl(pin),
            licence=_find_licence(pin.name),
            needs=tuple(python_purl(other) for other in pins if pin.name in other.wanted_by),
        )
        for pin in pins
    ]


def describe_subject(source: Source, pins: Sequence[Pin], purl: str) -> Component:
    """Return the operator itself, which needs what its own metadata asks for."""
    needs = tuple(python_purl(pin) for pin in pins if ROOT_NAME in pin.wanted_by)
    return Component(
        name=ROOT_NAME, version=source.version, purl=purl, licence=LICENCE, needs=needs
    )


def python_purl(pin: Pin) -> str:
    """Return what a Python package is called everywhere."""
    return f"pkg:pypi/{pin.name}@{pin.version}"


def render_sbom(subject: Component, components: Iterable[Component], epoch: int) -> str:
    """Return the document: sorted, and dated like the commit."""
    listed = sorted(components, key=lambda one: one.purl)
    body: dict[str, Any] = {
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {**_render(subject), "type": "application"},
        },
        "components": [_render(each) for each in listed],
        "dependencies": [
            {"ref": each.purl, "dependsOn": sorted(each.needs)} for each in (subject, *listed)
        ],
    }
    serial = uuid.uuid5(_SERIALS, json.dumps(body))
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": serial.urn,
        "version": 1,
    }
    return json.dumps({**head, **body}, indent=2) + "\n"


def _render(one: Component) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
    }
    if one.licence:
        shown["licenses"] = [_render_licence(one.licence)]
    if one.sha256:
        shown["hashes"] = [{"alg": "SHA-256", "content": one.sha256}]
    return shown


def _render_licence(licence: str) -> dict[str, Any]:
    """Words that are no SPDX expression are a name."""
    is_expression = _EXPRESSION.fullmatch(licence) is not None
    return {"expression": licence} if is_expression else {"license": {"name": licence}}


def _find_licence(name: str) -> str:
    try:
        about = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
    if expressions := about.get_all("License-Expression"):
        return str(expressions[0])
    kinds = [one for one in about.get_all("Classifier") or () if one.startswith("License ::")]
    named = about.get_all("License") or [""]
    return str(kinds[-1]).rpartition(" :: ")[2] if kinds else str(named[0])
