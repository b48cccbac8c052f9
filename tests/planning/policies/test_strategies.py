"""Which StatefulSets are switched to OnDelete: MAZ-27."""

from dataclasses import replace

import msgspec.structs
import pytest

from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import GroupName
from rollout_operator.planning.policies.strategies import list_switchable
from tests.builders import NOW, zone


def _under(strategy: str, one: Zone, **fields: object) -> Zone:
    return replace(one, sts=msgspec.structs.replace(one.sts, strategy=strategy, **fields))


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        pytest.param(_under("RollingUpdate", zone("a", "lll")), ["zone-a"], id="up to date"),
        pytest.param(_under("RollingUpdate", zone("a", "pll")), [], id="an outdated pod"),
        pytest.param(_under("OnDelete", zone("a", "lll")), [], id="switched already"),
        pytest.param(
            _under("RollingUpdate", zone("a", "lll"), generation=9), [], id="status is behind"
        ),
    ],
)
def test_maz27_a_set_is_switched_once_it_is_up_to_date(member: Zone, expected: list[str]) -> None:
    group = Group(name=GroupName("db"), zones=(member,), now=NOW, deletions={})
    assert [one.name for one in list_switchable(group)] == expected
