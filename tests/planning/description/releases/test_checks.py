"""One HealthCheck as every outlet shows it."""

import msgspec
import pytest

from rollout_operator.model.described.releases import HealthCheckDescription
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.releases.rollout import CheckSelector
from rollout_operator.planning.description.release_text import render_health_check
from rollout_operator.planning.description.releases.checks import describe_check
from tests.planning.releases.builders import ALL_CHECKS, at, check, rollout

WIDE = CheckSelector(selector=LabelSelector(), namespaces=LabelSelector())


def test_it_says_what_it_found_and_what_requires_it() -> None:
    one = check(status="Unhealthy", message="503", change=1, error=2)
    one = msgspec.structs.replace(one, check_class="rollout-group", rollout_group="db")
    found = describe_check(one, [rollout(checks=ALL_CHECKS), rollout()], {})

    assert found == HealthCheckDescription(
        name="check",
        namespace="prod",
        status="Unhealthy",
        text="503",
        check_class="rollout-group",
        object="db",
        changed=at(1),
        failed=at(2),
        rollouts=("prod/app",),
    )
    assert render_health_check(found) == "HealthCheck prod/check: Unhealthy: 503"


@pytest.mark.parametrize("known", [{}, {"other": {}}])
def test_one_of_another_namespace_is_selected_where_that_is_known(
    known: dict[str, dict[str, str]],
) -> None:
    found = describe_check(check(namespace="other"), [rollout(checks=WIDE)], known)

    assert found.rollouts == (("prod/app",) if known else ())
    assert render_health_check(found) == "HealthCheck other/check: not evaluated yet"
