"""What becomes of the status of a HealthCheck, and what holds it pending."""

from typing import Any

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.release_plan import (
    CheckClass,
    CheckFinding,
    HealthCheck,
    HealthCheckStatus,
    HealthStatus,
)
from rollout_operator.model.releases import BakeStatus, CheckSelector, ReleaseRollout, ReleaseStatus
from rollout_operator.planning.health_checks import (
    find_class,
    find_flux_blocker,
    find_reset,
    parse_check_reference,
    record_finding,
)
from tests.planning.releases.builders import ALL_CHECKS, at, check, entry, rollout

HEALTHY, UNHEALTHY, PENDING = HealthStatus
WAITS = {"prod/app": "OCIRepository app: it has fetched 1.0.0, not 2.0.0"}

NOW = at(180)
SPACES = {"prod": {}, "infra": {"team": "platform"}}
ELSEWHERE = CheckSelector(selector=LabelSelector(), namespaces=LabelSelector())


def status(
    text: str, *, change: float | None = None, error: float | None = None, message: str = "m"
) -> HealthCheckStatus:
    return HealthCheckStatus(
        status=text,
        last_change_time=None if change is None else at(change),
        last_error_time=None if error is None else at(error),
        message=message,
    )


@pytest.mark.parametrize(
    ("before", "found", "failed_at", "after"),
    [
        pytest.param(
            HealthCheckStatus(), PENDING, None, status("Pending", change=9), id="RT-131 the first"
        ),
        pytest.param(
            status("Pending", change=1), HEALTHY, None, status("Healthy", change=9),
            id="REL-112 another status",
        ),
        pytest.param(
            status("Healthy", change=1), HEALTHY, None, status("Healthy", change=1),
            id="REL-112 the same status",
        ),
        pytest.param(
            status("Healthy", change=1), UNHEALTHY, None, status("Unhealthy", change=9, error=9),
            id="RT-139 without a time of its own",
        ),
        pytest.param(
            status("Healthy", change=1), UNHEALTHY, 4, status("Unhealthy", change=9, error=4),
            id="RT-139 with a time of its own",
        ),
        pytest.param(
            status("Unhealthy", change=5, error=5), UNHEALTHY, None,
            status("Unhealthy", change=5, error=5), id="REL-112 nothing new: nothing to write",
        ),
        pytest.param(
            status("Unhealthy", change=5, error=5), HEALTHY, None,
            status("Healthy", change=9, error=5), id="REL-112 an error stays on record",
        ),
        pytest.param(
            status("Pending", change=5, error=5), UNHEALTHY, None,
            status("Unhealthy", change=9, error=9), id="REL-112 an error after a reset",
        ),
    ],
)  # fmt: skip
def test_what_becomes_of_it(
    before: HealthCheckStatus,
    found: HealthStatus,
    failed_at: float | None,
    after: HealthCheckStatus,
) -> None:
    finding = CheckFinding(
        status=found, text="m", failed_at=None if failed_at is None else at(failed_at)
    )

    assert record_finding(before, finding, at(9)) == after


def test_an_old_failure_stays_old() -> None:
    """RT-137: it is from before a retry, and does not fail the release again."""
    finding = CheckFinding(status=UNHEALTHY, text="m", failed_at=at(-20))

    assert record_finding(status("Pending", change=-5), finding, at(0)).last_error_time == at(-20)


@pytest.mark.parametrize(
    ("current", "checks", "waits", "is_held"),
    [
        pytest.param("Deploying", ALL_CHECKS, WAITS, True, id="RELB-16 Flux is not through"),
        pytest.param("Deploying", ALL_CHECKS, {}, False, id="RELB-16 Flux is through"),
        pytest.param("Succeeded", ALL_CHECKS, WAITS, False, id="RELB-16 nothing is deploying"),
        pytest.param("Deploying", None, WAITS, False, id="RELB-36 it is not selected"),
    ],
)
def test_a_check_waits_for_flux(
    current: str, checks: object, waits: dict[str, str], is_held: bool
) -> None:
    """It would be about the version before, and a bake would start by that."""
    history = (entry("2.0.0", BakeStatus(current)),)
    owner = rollout(status=ReleaseStatus(history=history), checks=checks)

    found = find_flux_blocker(check(), (owner,), {}, waits)

    assert (found is not None) is is_held
    if found is not None:
        assert found.status is PENDING
        assert found.text == f"waiting for Flux to apply 2.0.0 of prod/app: {WAITS['prod/app']}"


def test_a_bake_that_has_started_is_not_held() -> None:
    """Flux may be busy again: what is seen then counts."""
    baking = entry("2.0.0", BakeStatus.IN_PROGRESS, bake_start_time=at(1))
    owner = rollout(status=ReleaseStatus(history=(baking,)), checks=ALL_CHECKS)

    assert find_flux_blocker(check(), (owner,), {}, WAITS) is None


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


def deployed(
    minutes: float, retry: float | None = None, checks: CheckSelector | None = ALL_CHECKS
) -> ReleaseRollout:
    """Return a Rollout whose release was deployed at so many minutes."""
    retried = None if retry is None else at(retry)
    history = (entry("1.0.0", minutes=minutes, last_retry_timestamp=retried),)
    return rollout(status=ReleaseStatus(history=history), checks=checks)


@pytest.mark.parametrize(
    ("known", "owner", "is_reset"),
    [
        pytest.param(check(), rollout(checks=ALL_CHECKS), False, id="RT-121 nothing deployed"),
        pytest.param(check(change=60), deployed(120), True, id="RT-122 older than that"),
        pytest.param(check(), deployed(120), True, id="RT-123 it never changed"),
        pytest.param(check(error=150), deployed(120), True, id="RT-123 an error alone"),
        pytest.param(check(change=150, error=0), deployed(120), False, id="RT-124 an old error"),
        pytest.param(check(change=121), deployed(120), False, id="RT-125 it changed since"),
        pytest.param(check(change=120), deployed(0, 150), True, id="RT-126 a retry since"),
        pytest.param(check(change=175), deployed(0, 150), False, id="RT-126 it changed since it"),
        pytest.param(
            check(change=120), deployed(120 + 0.4 / 60), False,
            id="RELB-38 whole seconds in the second of the deployment",
        ),
        pytest.param(
            check(change=120 - 1 / 60), deployed(120 + 0.4 / 60), True,
            id="RELB-38 whole seconds of the second before",
        ),
        pytest.param(
            check(change=120 + 0.3 / 60), deployed(120 + 0.4 / 60), True,
            id="RELB-38 an exact time of before",
        ),
        pytest.param(check(), deployed(120, checks=None), False, id="RELB-36 it is not selected"),
        pytest.param(
            check(namespace="infra"), deployed(120), False, id="RT-127 another namespace"
        ),
        pytest.param(
            check(namespace="infra"), deployed(120, checks=ELSEWHERE), True,
            id="RELB-36 another namespace that is selected",
        ),
    ],
)  # fmt: skip
def test_when_a_check_starts_anew(
    known: HealthCheck, owner: ReleaseRollout, is_reset: bool
) -> None:
    """REL-103, REL-104."""
    assert (find_reset(known, (owner,), SPACES, NOW) is not None) is is_reset


def test_a_check_starts_anew_without_its_error() -> None:
    """RT-84, REL-105."""
    known = check(status="Unhealthy", change=1, error=1, message="down")

    assert find_reset(known, (deployed(0, 2),), SPACES, NOW) == HealthCheckStatus(
        status="Pending", last_change_time=NOW, message="reset for 1.0.0 of prod/app"
    )
