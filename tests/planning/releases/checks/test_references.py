"""What a HealthCheck names."""

from typing import Any

import pytest
from msgspec.structs import replace

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.health import CheckClass
from rollout_operator.planning.releases.checks.references import find_class, parse_check_reference
from tests.planning.releases.builders import check


@pytest.mark.parametrize(
    ("named", "own", "place"),
    [
        ({"kustomization": "app"}, CheckClass.KUSTOMIZATION, ("Kustomization", "prod", "app")),
        ({"kustomization": "ns/app"}, CheckClass.KUSTOMIZATION, ("Kustomization", "ns", "app")),
        ({"rollout_group": "db"}, CheckClass.ROLLOUT_GROUP, ("rollout group", "prod", "db")),
        ({"policy": "ns/db"}, CheckClass.MULTI_AZ_ROLLOUT, ("MultiAZRollout", "ns", "db")),
    ],
)
def test_a_name_or_namespace_and_name(
    named: dict[str, Any], own: CheckClass, place: tuple[str, str, str]
) -> None:
    """RT-136, RT-134, RELB-36."""
    found = parse_check_reference(replace(check(), **named), own)

    assert (found.kind, found.namespace, found.name) == place


@pytest.mark.parametrize("text", ["a/b/c/d", "/a", "a/", "", "/"])
def test_what_is_no_name(text: str) -> None:
    """RT-136."""
    with pytest.raises(InvalidInput, match=r"kuberik.com/kustomization: \".*\" is no name"):
        parse_check_reference(replace(check(), kustomization=text), CheckClass.KUSTOMIZATION)


def test_an_annotation_that_is_missing() -> None:
    """REL-107."""
    with pytest.raises(InvalidInput, match="multi-az-rollout is missing"):
        parse_check_reference(check(), CheckClass.MULTI_AZ_ROLLOUT)


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("kustomization", CheckClass.KUSTOMIZATION),
        ("rollout-group", CheckClass.ROLLOUT_GROUP),
        ("Kustomization", None),
        ("", None),
    ],
)
def test_classes(text: str, own: CheckClass | None) -> None:
    """REL-106: any other is left to others."""
    assert find_class(replace(check(), check_class=text)) is own
