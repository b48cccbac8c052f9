"""What the shipped manifests render to, what each component changes, and what is refused.

`A B` shows what B has that A has not. Each is a folder of `manifests/`, or a component that a user
lists above the base, in the namespace `my-own-ns`.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.digest import show
from tests.kustomize import KustomizeError, Object, render
from tests.rendered import (
    BASE,
    MANIFESTS,
    NAMESPACE,
    NETWORK_PARAMETERS,
    WEBHOOKS,
    install,
    lead_to,
)
from tests.stories import check_tables

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

COMPONENTS: Final = MANIFESTS / "components"


def show_rendered(case: str, tmp_path: Path) -> str:
    *before, last = words = case.split()
    if not before and (COMPONENTS / last).exists():
        before = ["base", "alone"]
    return show(_make(words, tmp_path / "after"), _make(before, tmp_path / "before"))


test_what_is_rendered = check_tables(
    __file__, folders=show_rendered, components=show_rendered, kinds=show_rendered
)


def _make(words: Sequence[str], at: Path) -> list[Object]:
    """Return what the last folder renders to, or components above the base."""
    if not words or (MANIFESTS / words[-1]).exists():
        return render(MANIFESTS / words[-1]) if words else []
    return _install(at, *(word for word in words if (COMPONENTS / word).exists()))


def _install(at: Path, *components: str) -> list[Object]:
    return install(at, *components, more=[NETWORK_PARAMETERS])


def show_misuse(case: str, tmp_path: Path) -> str:
    """Kustomize ends with a sentence, and renders nothing."""
    how, *components = case.split()
    try:
        return _misuse(how, components, tmp_path)
    except KustomizeError as error:
        [*_, place] = re.findall(r"components/[\w-]+(?=')", str(error))
        [said] = re.findall(r"(?:fieldPath|nothing selected|may not add)[^'\\]*", str(error))
        return f"{place}: {said}"


test_a_component_where_it_cannot_work = check_tables(__file__, misuse=show_misuse)


def _misuse(how: str, components: list[str], at: Path) -> str:
    [*_, last] = components
    after = list(dict.fromkeys([WEBHOOKS, last]))
    match how:
        case "beside":
            fields = {
                "kind": "Kustomization",
                "namespace": NAMESPACE,
                "resources": [lead_to(at, BASE), "more.yaml"],
                "components": [lead_to(at, COMPONENTS / last)],
            }
            (at / "more.yaml").write_text(yaml.safe_dump(NETWORK_PARAMETERS))
            (at / "kustomization.yaml").write_text(yaml.safe_dump(fields))
            return show(render(at))
        case "alone":
            return show(_install(at, *components))
        case "twice":
            return show(_install(at / "2", *after, last), _install(at / "1", *after))
        case "swapped":
            return show(_install(at / "2", last, WEBHOOKS), _install(at / "1", WEBHOOKS, last))
    data = {key: text for key, text in NETWORK_PARAMETERS["data"].items() if key != last}
    more = [] if last == "ConfigMap" else [{**NETWORK_PARAMETERS, "data": data}]
    return show(install(at, "network-policy", more=more))
