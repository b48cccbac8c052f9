"""Components listed where they cannot work: kustomize ends with a sentence, and renders nothing."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from rollout_operator.config.checks import read_config
from tests.code_rules import ROOT
from tests.kustomize import KustomizeError, render
from tests.rendered import (
    BASE,
    CERTIFICATES,
    DEPLOYMENTS,
    LEAST,
    MANIFESTS,
    NAMESPACE,
    NETWORK,
    NETWORK_PARAMETERS,
    PRIORITY,
    WEBHOOKS,
    Rendered,
    by_name,
    container_of,
    install,
    lead_to,
)

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

BELOW: Final = "set the namespace one level below the kustomization that lists components"
FIRST: Final = "list the component webhooks before this one"
ONCE: Final = "list the component webhooks only once"
COMPONENTS: Final = sorted(path.parent.name for path in MANIFESTS.glob("components/*/kusto*.yaml"))
AFTER_WEBHOOKS: Final = (LEAST, DEPLOYMENTS, CERTIFICATES)
# It adds a field of the Deployment and no object: nothing of it has a namespace.
ANYWHERE: Final = {PRIORITY}
# What they add a second time is what is there.
TWICE: Final = (LEAST, PRIORITY, CERTIFICATES)
PAGE: Final = (ROOT / "docs" / "install.md").read_text()


@pytest.mark.parametrize("component", sorted({*COMPONENTS} - ANYWHERE - {*AFTER_WEBHOOKS}))
def test_d78_a_namespace_at_the_same_level_is_refused_in_words(
    tmp_path: Path, component: str
) -> None:
    """DEP-84: better no objects than ones with half of their names."""
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(NETWORK_PARAMETERS))
    fields = {
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": [lead_to(tmp_path, BASE), "more.yaml"],
        "components": [lead_to(tmp_path, MANIFESTS / "components" / component)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(fields))

    with pytest.raises(KustomizeError, match=BELOW):
        render(tmp_path)


@pytest.mark.parametrize("component", AFTER_WEBHOOKS)
def test_d78_what_changes_webhooks_is_refused_before_them_in_words(
    tmp_path: Path, component: str
) -> None:
    """DEP-84: it would have changed nothing, without a word."""
    for place, listed in enumerate([(component,), (component, WEBHOOKS)]):
        with pytest.raises(KustomizeError, match=FIRST):
            install(tmp_path / str(place), *listed)


@pytest.mark.parametrize("component", sorted({*COMPONENTS} - {*TWICE}))
def test_d78_a_component_that_is_listed_twice_is_refused_by_its_name(
    tmp_path: Path, component: str
) -> None:
    """DEP-84: also where an overlay below lists it; never with the advice to list it first."""
    listed = dict.fromkeys([WEBHOOKS, component])
    with pytest.raises(KustomizeError) as refused:
        install(tmp_path / "it", *listed, component, more=[NETWORK_PARAMETERS])
    printed = str(refused.value)
    assert f"components/{component}" in printed
    assert "already registered id" in printed
    assert (ONCE in printed) is (component == WEBHOOKS)
    assert FIRST not in printed


@pytest.mark.parametrize("component", TWICE)
def test_d78_a_component_that_only_changes_objects_may_be_listed_twice(
    tmp_path: Path, component: str
) -> None:
    """DEP-84: it says the same once more."""
    once = by_name(install(tmp_path / "once", WEBHOOKS, component))
    twice = by_name(install(tmp_path / "twice", WEBHOOKS, component, component))

    assert _read_args(twice) == _read_args(once)
    assert twice == once


def _read_args(objects: Rendered) -> object:
    """Return what the arguments mean, and take them away."""
    words = container_of(objects).pop("args")
    return read_config([word.replace("$(POD_NAMESPACE)", NAMESPACE) for word in words])


def test_d78_the_page_has_the_sentences_and_every_component() -> None:
    """DEP-84."""
    rows = dict(line.split("|")[1:4:2] for line in PAGE.splitlines() if line.startswith("| `"))
    printed = {name.strip(" `"): where.strip() for name, where in rows.items()}

    assert {name for name in COMPONENTS if printed[name] == "after `webhooks`"} == {*AFTER_WEBHOOKS}
    assert {printed[name] for name in {*COMPONENTS} - {*AFTER_WEBHOOKS}} == {"anywhere"}
    assert f"`{BELOW}`" in PAGE
    assert f"`{FIRST}`" in PAGE
    assert f"`{ONCE}`" in PAGE
    assert "`already registered id`" in PAGE
    assert NETWORK_PARAMETERS["metadata"]["name"] in PAGE
    assert NETWORK in COMPONENTS
