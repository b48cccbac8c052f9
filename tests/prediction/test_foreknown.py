"""What is given to `simulate` of the time after a dump."""

from datetime import timedelta

from tests.prediction.foreknown import in_time, list_crashes
from tests.world.api import Json


def _pod(name: str, image: str, *, state: str = "running", **head: str) -> Json:
    return {
        "metadata": {"name": name, **head},
        "spec": {"containers": [{"image": image}]},
        "status": {"containerStatuses": [{"state": {state: {}}}]},
    }


def test_pods_of_a_bad_image_crash_that_have_not_yet() -> None:
    pods = [
        _pod("a-0", "bad"),
        _pod("a-1", "bad", state="waiting"),
        _pod("a-2", "v1", deletionTimestamp="2026-01-02T03:04:05Z"),
        _pod("a-4", "v1"),
    ]
    names = [f"a-{ordinal}" for ordinal in range(5)]

    assert list(list_crashes(names, pods, "bad", timedelta(seconds=2))) == [
        "pod a-0 fails at 0s",
        "pod a-2 fails at 2.50s",
        "pod a-3 fails at 0.50s",
    ]


def test_changes_are_reported_in_the_order_of_their_times() -> None:
    assert in_time(["image v3 at 2s", "cordon n at 0s", "drain n at 0.50s"]) == (
        "cordon n at 0s",
        "drain n at 0.50s",
        "image v3 at 2s",
    )
