"""What is long or large in a MultiAZRollout; other cases are in policy.txt."""

from typing import Any

import msgspec
import pytest

from rollout_operator.model.decode.custom import decode_policy
from rollout_operator.model.policy import Policy, RefusedPolicy
from tests.model.policy_trees import policy_tree


def read(tree: Any) -> Policy | RefusedPolicy:
    return decode_policy(msgspec.json.encode(tree))


def test_as_many_zones_as_are_permitted() -> None:
    """MAZ-10: each with the longest name."""
    zones = [f"{number:0253}" for number in range(64)]
    policy = read(policy_tree(azOrder=zones))

    assert isinstance(policy, Policy)
    assert policy.zone_order == tuple(zones)


def test_a_selector_has_at_most_64_labels() -> None:
    """MAZ-04."""
    labels = {f"l{number}": "" for number in range(65)}
    policy = read(policy_tree(statefulSetSelector={"matchLabels": labels}))

    assert isinstance(policy, RefusedPolicy)
    assert policy.refusals[0].text.endswith(".matchLabels: it has 65 items, at most 64")


@pytest.mark.parametrize("field", ["azOrder", "statefulSetSelector", "rollingUpdate", "paused"])
def test_a_field_without_end_is_refused_unread(field: str) -> None:
    """MAZ-23: what any tenant may write costs neither time nor memory."""
    tree = policy_tree()
    tree["spec"][field] = ["x" * 50] * 20_000
    policy = read(tree)

    assert isinstance(policy, RefusedPolicy)
    [refusal] = policy.refusals
    assert refusal.code.value == "InvalidSpec"
    assert len(refusal.text) < 200
