"""Which HealthChecks belong to a Rollout, and whether they hold its next release back."""

import pytest

from rollout_operator.model.objects import LabelSelector, SelectorTerm
from rollout_operator.model.release_plan import HealthCheck
from rollout_operator.model.releases import CheckSelector, FailedHealthCheck
from rollout_operator.planning.bake import BlockedCode, assess_health, list_checks
from tests.planning.releases.builders import check, head

TEAM = {"prod": {"team": "shop"}, "infra": {"team": "platform"}}
CHECKS = (
    check("z", labels={"app": "a"}),
    check("b", labels={"app": "b"}),
    check("a", labels={"app": "a"}, namespace="infra"),
    check("lost", labels={"app": "a"}, namespace="gone"),
)


def terms(operator: str, *values: str) -> LabelSelector:
    return LabelSelector(terms=(SelectorTerm(key="app", operator=operator, values=values),))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, []),
        (CheckSelector(), []),
        (CheckSelector(selector=LabelSelector()), ["prod/b", "prod/z"]),
        (CheckSelector(selector=LabelSelector(labels={"app": "a"})), ["prod/z"]),
        (CheckSelector(selector=terms("In", "a", "c")), ["prod/z"]),
        (CheckSelector(selector=terms("NotIn", "a")), ["prod/b"]),
        (CheckSelector(selector=terms("Exists")), ["prod/b", "prod/z"]),
        (
            CheckSelector(
                selector=LabelSelector(labels={"app": "a"}),
                namespaces=LabelSelector(labels={"team": "platform"}),
            ),
            ["infra/a"],
        ),
        (
            CheckSelector(selector=LabelSelector(labels={"app": "a"}), namespaces=LabelSelector()),
            ["infra/a", "prod/z"],
        ),
    ],
)
def test_which_belong_to_a_rollout(selector: CheckSelector | None, expected: list[str]) -> None:
    """RT-55, REL-03, REL-11, REL-12, REL-54."""
    found = list_checks(head(), selector, CHECKS, TEAM)

    assert [one.head.key for one in found] == expected


@pytest.mark.parametrize(
    ("checks", "is_blocking"),
    [
        pytest.param((check(status="Unhealthy"),), True, id="RT-51 unhealthy"),
        pytest.param((check(status="Healthy"),), False, id="RT-52 healthy"),
        pytest.param((check(status="Pending"), check()), False, id="RT-52 pending, or not yet"),
        pytest.param((), False, id="RT-52 none"),
        pytest.param((check("a"), check("b", "Unhealthy")), True, id="RT-53 one of two"),
    ],
)
def test_what_holds_the_next_release_back(
    checks: tuple[HealthCheck, ...], is_blocking: bool
) -> None:
    """REL-55."""
    assert assess_health(checks).is_blocking is is_blocking


def test_the_verdict_names_the_check_and_its_words() -> None:
    """RT-76, REL-56."""
    verdict = assess_health((check("a", "Unhealthy", message="down"), check("b", "Unhealthy")))

    assert verdict.code is BlockedCode.UNHEALTHY
    assert verdict.text == "unhealthy: prod/a (down) and prod/b (unhealthy)"


def test_unblocked_the_checks_that_failed_it_do_not_count() -> None:
    """RELB-25: of all others they still do."""
    failed = (FailedHealthCheck(name="a", namespace="prod"),)

    assert not assess_health((check("a", "Unhealthy"),), failed).is_blocking
    assert assess_health((check("a", "Unhealthy", namespace="dev"),), failed).is_blocking
