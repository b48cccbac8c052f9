"""JSON of a HealthCheck: class, interval, and a status that others may write."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from rollout_operator.model.decode.releases import decode_health_check, decode_labelled_namespace
from rollout_operator.model.names import DecodeError
from rollout_operator.model.release_plan import HealthCheckStatus
from tests.model.decode.releases.trees import as_json

STATUS = {
    "status": "Unhealthy",
    "lastErrorTime": "2025-01-01T00:00:00Z",
    "lastChangeTime": "2025-01-01T00:00:01.5Z",
    "message": "down",
}


def test_all_that_a_health_check_says() -> None:
    """REL-19."""
    found = decode_health_check(
        as_json(
            {"class": "kustomization"},
            labels={"app": "a"},
            annotations={
                "healthcheck.kuberik.com/kustomization": "flux/app",
                "healthcheck.kuberik.com/requeue-interval": "60s",
            },
            status=STATUS,
        )
    )

    assert (found.check_class, found.kustomization) == ("kustomization", "flux/app")
    assert (found.labels, found.interval) == ({"app": "a"}, timedelta(minutes=1))
    assert found.status == HealthCheckStatus(
        status="Unhealthy",
        last_error_time=datetime(2025, 1, 1, tzinfo=UTC),
        last_change_time=datetime(2025, 1, 1, 0, 0, 1, 500000, tzinfo=UTC),
        message="down",
    )
    assert msgspec.json.decode(msgspec.json.encode(found.status)) == {
        **STATUS,
        "lastChangeTime": "2025-01-01T00:00:01.500000Z",
    }


def test_a_status_of_a_megabyte_is_cut() -> None:
    """REL-19: any tenant may write it, and a Rollout repeats it."""
    found = decode_health_check(as_json(status={"status": "s" * 10**6, "message": "m" * 10**6}))

    assert (found.status.status, found.status.message) == ("s" * 1024, "m" * 1024)


def test_what_else_it_may_read() -> None:
    """RELB-36, RELB-37: a grace that is none is the default."""
    found = decode_health_check(
        as_json(
            {"class": "rollout-group"},
            annotations={
                "healthcheck.kuberik.com/rollout-group": "prod/db",
                "healthcheck.kuberik.com/multi-az-rollout": "db",
                "healthcheck.kuberik.com/failure-grace": "soon",
            },
        )
    )

    assert (found.rollout_group, found.policy) == ("prod/db", "db")
    assert found.failure_grace == timedelta(minutes=2)


def test_one_that_says_nothing() -> None:
    """REL-19: it is evaluated by others, and was not yet."""
    found = decode_health_check(as_json())

    assert (found.check_class, found.kustomization) == ("", None)
    assert found.status == HealthCheckStatus()


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("1s", 5), ("-1h", 5), ("soon", 30), (None, 30)]
)
def test_how_often_it_is_evaluated(text: str | None, seconds: int) -> None:
    """RT-135."""
    key = "healthcheck.kuberik.com/requeue-interval"
    found = decode_health_check(as_json({}, annotations={} if text is None else {key: text}))

    assert found.interval == timedelta(seconds=seconds)


def test_a_status_that_cannot_be_read_is_no_health() -> None:
    """REL-19."""
    found = decode_health_check(as_json({}, status={"status": "Healthy", "lastChangeTime": "now"}))

    assert found.status.status == ""
    assert found.status.message is not None
    assert "status.lastChangeTime" in found.status.message


def test_a_class_that_cannot_be_read() -> None:
    """REL-19."""
    with pytest.raises(DecodeError, match=r"^HealthCheck prod/app: spec\.class: .*: 7$"):
        decode_health_check(as_json({"class": 7}))


def test_a_namespace_counts_by_its_labels() -> None:
    """REL-29."""
    found = decode_labelled_namespace(as_json({}, labels={"team": "web"}))

    assert (found.head.name, found.labels) == ("app", {"team": "web"})
    assert decode_labelled_namespace(as_json({})).labels == {}


def test_labels_that_cannot_be_read() -> None:
    """REL-29: a namespace is not selected by what is missing of it."""
    with pytest.raises(DecodeError):
        decode_labelled_namespace(as_json({}, labels={"team": 7}))
