"""Who was refused: in the log and in a metric of bounded size, whatever they call themselves."""

from datetime import timedelta

import pytest

from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.scaling import MAX_USER
from rollout_operator.telemetry.metrics import MAX_USERS, OTHER, Denials, Metrics
from tests.samples import read_samples
from tests.web.webhook_world import body_of

HOOK = "admission_no_downscale"
NAME = "rollout_operator_webhook_denials_total"
ACCOUNT = f"system:serviceaccount:{'n' * 63}:{'a' * 253}"
NOW = timedelta(0)


def user_of(username: object) -> str:
    return decode_review(body_of(userInfo={"username": username})).user


def counted(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Return the counts by hook and user."""
    return read_samples(metrics, "webhook_denials_total")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param("kate", "kate", id="a name"),
        pytest.param(ACCOUNT, ACCOUNT, id="the longest of a service account is whole"),
        pytest.param("jürgen@example.com", "jürgen@example.com", id="letters of any script"),
        pytest.param(
            "a\nlevel=error\x1b[1m\0", "a\\nlevel=error\\x1b[1m\\x00", id="SEC-13 control"
        ),
        pytest.param("a\u202eb", "a\\u202eb", id="SEC-13 from right to left"),
        pytest.param("x" * 1000, "x" * (MAX_USER - 3) + "...", id="a long one"),
        pytest.param("x" * (1 << 20), "(1048578 bytes, more than 4096 are not read)", id="1 MiB"),
        pytest.param(None, "", id="none"),
    ],
)
def test_a_user_is_named_on_one_short_line(name: object, shown: str) -> None:
    assert user_of(name) == shown


def test_sec_13_an_endless_name_of_control_characters_is_short() -> None:
    assert len(user_of("\x00" * 4000)) == MAX_USER


@pytest.mark.parametrize("info", [None, {}, {"username": None, "groups": ["a"]}])
def test_a_review_may_say_no_user(info: object) -> None:
    assert decode_review(body_of(userInfo=info)).user == ""


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
