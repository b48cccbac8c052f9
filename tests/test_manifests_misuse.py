"""Components listed where they cannot work: kustomize ends with a sentence, and renders nothing."""

from pathlib import Path
from typing import Final

import pytest
import yaml

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
    install,
)

BELOW: Final = "set the namespace one level below the kustomization that lists components"
FIRST: Final = "list the component webhooks before this one"
COMPONENTS: Final = sorted(path.parent.name for path in MANIFESTS.glob("components/*/kusto*.yaml"))
AFTER_WEBHOOKS: Final = (LEAST, DEPLOYMENTS, CERTIFICATES)
# It adds a field of the Deployment and no object: nothing of it has a namespace.
ANYWHERE: Final = {PRIORITY}
PAGE: Final = (ROOT / "docs" / "kustomize.md").read_text()


@pytest.mark.parametrize("component", sorted({*COMPONENTS} - ANYWHERE - {*AFTER_WEBHOOKS}))
def test_d78_a_namespace_at_the_same_level_is_refused_in_words(
    tmp_path: Path, component: str
) -> None:
    """DEP-84: better no objects than ones with half of their names."""
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(NETWORK_PARAMETERS))
    fields = {
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": [str(BASE), "more.yaml"],
        "components": [str(MANIFESTS / "components" / component)],
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


def test_d78_the_page_has_the_sentences_and_every_component() -> None:
    """DEP-84."""
    rows = dict(line.split("|")[1:4:2] for line in PAGE.splitlines() if line.startswith("| `"))
    told = {name.strip(" `"): where.strip() for name, where in rows.items()}

    assert {name for name in COMPONENTS if told[name] == "after `webhooks`"} == {*AFTER_WEBHOOKS}
    assert {told[name] for name in {*COMPONENTS} - {*AFTER_WEBHOOKS}} == {"anywhere"}
    assert f"`{BELOW}`" in PAGE
    assert f"`{FIRST}`" in PAGE
    assert NETWORK_PARAMETERS["metadata"]["name"] in PAGE
    assert NETWORK in COMPONENTS
