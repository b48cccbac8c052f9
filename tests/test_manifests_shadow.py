"""The manifests of shadow mode: nothing in common with the operator that acts but its image."""

from typing import Final

import pytest

from tests.kustomize import render
from tests.rendered import BASE, MANIFESTS, by_name, container_of, granted

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

NAME: Final = "rollout-operator-shadow"
READS: Final = frozenset({"get", "list", "watch"})


def test_si25_the_shadow_may_read_and_nothing_else() -> None:
    """SI-25, SEC-18: in its own namespace, and no Secret."""
    (role,) = [one for one in render(MANIFESTS / "shadow") if one["kind"] == "Role"]
    assert {verb for _, verb, _ in granted(role)} == READS
    assert not any(resource == "secrets" for resource, _, _ in granted(role))


def test_si25_no_service_of_another_operator_leads_to_the_shadow() -> None:
    """SI-25: neither by our labels nor by `name`, which grafana's Services request."""
    shadow, base = by_name(render(MANIFESTS / "shadow")), by_name(render(BASE))
    assert {name for _, name in shadow} == {NAME}
    labels = shadow["Deployment", NAME]["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == NAME
    assert "name" not in labels
    selector = base["Service", "rollout-operator"]["spec"]["selector"]
    assert not selector.items() <= labels.items()


def test_si25_the_shadow_is_the_base_in_another_mode() -> None:
    """SI-25: the same limits, probes and security; of the environment only the namespace."""
    shadow, base = by_name(render(MANIFESTS / "shadow")), by_name(render(BASE))
    one = container_of(shadow, NAME)
    other = container_of(base)
    assert one["args"] == [*other["args"], "-mode=shadow"]
    assert [each["name"] for each in one["env"]] == ["POD_NAMESPACE"]
    same = {key: value for key, value in other.items() if key not in {"args", "env"}}
    assert same == {key: value for key, value in one.items() if key not in {"args", "env"}}
    spec = shadow["Deployment", NAME]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == NAME
    security = base["Deployment", "rollout-operator"]["spec"]["template"]["spec"]
    assert spec["securityContext"] == security["securityContext"]
    (subject,) = shadow["RoleBinding", NAME]["subjects"]
    assert subject["name"] == shadow["RoleBinding", NAME]["roleRef"]["name"] == NAME
