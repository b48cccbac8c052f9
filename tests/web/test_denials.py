"""Who was refused: in a metric of bounded size, whatever they call themselves."""

from datetime import timedelta

import pytest

from rollout_operator.telemetry.metrics import MAX_USERS, OTHER, Denials, Metrics
from tests.samples import read_samples

HOOK = "admission_no_downscale"
NAME = "rollout_operator_webhook_denials_total"
NOW = timedelta(0)


def counted(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Return the counts by hook and user."""
    return read_samples(metrics, "webhook_denials_total")


def test_a_user_of_any_name_is_shown_in_the_metric() -> None:
    metrics = Metrics()
    metrics.denials.count(HOOK, 'a"\\n', NOW)
    page = b"".join(metrics.render()).decode()
    assert f'{NAME}{{hook="{HOOK}",user="a\\"\\\\n"}} 1\n' in page


def test_ten_thousand_users_are_few_series() -> None:
    """A hook has the series of all others from the start; names that come once displace none."""
    metrics = Metrics()
    metrics.denials.begin(HOOK)
    assert counted(metrics) == {(HOOK, OTHER): 0}
    for number in range(10_000):
        metrics.denials.count(HOOK, f"user-{number}", NOW)
    metrics.denials.count(HOOK, "user-0", NOW)
    metrics.denials.count("admission_pod_eviction", "another", NOW)
    metrics.denials.count(HOOK, "", NOW)

    found = counted(metrics)
    assert len(found) == MAX_USERS + 2
    assert found[HOOK, "user-0"] == 2
    assert found[HOOK, OTHER] == 10_000 - MAX_USERS + 1
    assert found["admission_pod_eviction", OTHER] == 1
    assert isinstance(metrics.denials, Denials)


@pytest.mark.parametrize("times", [1, 100], ids=["once each", "a hundred times each"])
def test_sec13_a_frequent_user_is_shown_after_made_up_names(times: int) -> None:
    """SEC-13: they filled all series first; a name that is refused more often of late takes one."""
    metrics = Metrics()
    for number in range(MAX_USERS * times):
        metrics.denials.count(HOOK, f"forged-{number % MAX_USERS}", NOW)
    for minute in range(8 * 60):
        metrics.denials.count(HOOK, "kate", NOW + timedelta(minutes=minute))

    found = counted(metrics)
    assert found[HOOK, "kate"] > 100
    assert len(found) == MAX_USERS + 1


def test_sec13_what_the_dashboard_shows_stays_through_a_flood_of_names() -> None:
    """SEC-13: ten thousand names, each twice; kate is refused every minute meanwhile."""
    metrics = Metrics()
    for _ in range(5):
        metrics.denials.count(HOOK, "kate", NOW)
    for minute in range(60):
        metrics.denials.count(HOOK, "kate", NOW + timedelta(minutes=minute))
        for number in range(333):
            metrics.denials.count(
                HOOK, f"f-{minute}-{number // 2}", NOW + timedelta(minutes=minute)
            )

    found = counted(metrics)
    assert found[HOOK, "kate"] == 65
    assert len(found) <= MAX_USERS + 1
