"""Which changes wake which group (W-05, W-44, FP-28)."""

import pytest

from rollout_operator.controllers.events_to_keys import Waker
from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG, GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable


def zone(labels: dict[str, str]) -> StatefulSet:
    return StatefulSet(
        namespace="test", name="a", uid=Uid("uid-a"), resource_version="1", labels=labels
    )


def pod(owner: str | None) -> Pod:
    return Pod(
        namespace="test",
        name="a-0",
        uid=Uid("1"),
        resource_version="1",
        owner_uid=None if owner is None else Uid(owner),
    )


class Owners:
    def __init__(self, known: StatefulSet) -> None:
        self._known = known

    def get_by_uid(self, uid: Uid) -> StatefulSet | Unreadable | None:
        return self._known if uid == self._known.uid else None


INGESTER = zone({GROUP_LABEL: "ingester"})
COMPACTOR = zone({GROUP_LABEL: "compactor"})
LONG = zone({GROUP_LABEL_LONG: "ingester"})
NONE = zone({})


@pytest.mark.parametrize(
    ("old", "new", "woken"),
    [
        pytest.param(None, INGESTER, {"ingester"}, id="a set comes"),
        pytest.param(INGESTER, None, {"ingester"}, id="W-05: a set goes"),
        pytest.param(INGESTER, INGESTER, {"ingester"}, id="a set changes"),
        pytest.param(INGESTER, COMPACTOR, {"ingester", "compactor"}, id="FP-28: label moves"),
        pytest.param(INGESTER, NONE, {"ingester"}, id="FP-28: label is removed"),
        pytest.param(None, LONG, {"ingester"}, id="SEED-011: the long spelling counts"),
        pytest.param(None, NONE, set(), id="SEED-054: a set of no group wakes nobody"),
        pytest.param(None, zone({GROUP_LABEL: ""}), {""}, id="an empty value is a group"),
    ],
)
def test_sets_wake_their_groups(
    old: StatefulSet | None, new: StatefulSet | None, woken: set[str]
) -> None:
    keys: list[GroupName] = []
    Waker(Owners(INGESTER), keys.append).on_set(old, new)
    assert set(keys) == woken
    assert len(keys) == len(woken)


@pytest.mark.parametrize(
    ("old", "new", "woken"),
    [
        pytest.param(None, pod("uid-a"), ["ingester"], id="W-05: a pod comes"),
        pytest.param(pod("uid-a"), None, ["ingester"], id="W-05: a pod goes"),
        pytest.param(pod("uid-a"), pod("uid-a"), ["ingester"], id="a pod changes: one wake-up"),
        pytest.param(pod("uid-a"), pod(None), ["ingester"], id="FP-32: a pod is released"),
        pytest.param(None, pod("uid-other"), [], id="W-44: a pod of another owner"),
        pytest.param(None, pod(None), [], id="W-44: a pod without an owner"),
    ],
)
def test_pods_wake_the_group_of_their_owner(
    old: Pod | None, new: Pod | None, woken: list[str]
) -> None:
    keys: list[GroupName] = []
    Waker(Owners(INGESTER), keys.append).on_pod(old, new)
    assert keys == woken
