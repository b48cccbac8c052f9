"""What the simulated controllers read of objects: fields, members of a set, counts, zones."""

from datetime import UTC, datetime, timedelta

import pytest

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.controllers.members import (
    is_running_and_ready,
    new_pod,
    ordinals_of,
    parse_name,
    read_member,
    selects,
)
from rollout_operator.lab.controllers.set_status import CountedStatus
from rollout_operator.lab.model.fields import (
    child,
    children,
    controller_of,
    is_terminating,
    moment_of,
    number,
    text,
    timestamp,
)
from rollout_operator.lab.nodes.behaviour import (
    BROKEN,
    DEFAULT,
    Behaviour,
    StartKind,
    by_image,
    image_of,
)
from rollout_operator.lab.schemas.labels import labels_of
from rollout_operator.lab.zones import ZoneSpec, statefulset, three_zones
from rollout_operator.model.names import REVISION_LABEL

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def pod_of(
    name: str = "web-0",
    *,
    phase: str = "Running",
    ready: timedelta | None = timedelta(seconds=10),
    revision: str = "new",
    **metadata: object,
) -> JsonObject:
    """Return a pod that has been ready for a while; None: it is not."""
    since = timestamp(NOW - (ready or timedelta(0)))
    status = "True" if ready is not None else "False"
    return {
        "metadata": {"name": name, "labels": {REVISION_LABEL: revision}, **metadata},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}],
        },
    }


def test_what_is_absent_or_of_another_type_is_empty() -> None:
    obj: JsonObject = {"a": {"b": 1, "c": "x", "d": [{"e": 2}, 3]}}
    assert child(obj, "a", "b") == child(obj, "z", "z") == {}
    assert (text(obj, "a", "c"), text(obj, "a", "b"), text(obj, "z", "c")) == ("x", "", "")
    assert (number(obj, "a", "b"), number(obj, "a", "z", default=7)) == (1, 7)
    assert children(obj, "a", "d") == [{"e": 2}]
    assert children(obj, "a", "c") == []


def test_times_are_whole_seconds() -> None:
    assert timestamp(NOW + timedelta(milliseconds=999)) == "2026-01-02T03:04:05Z"
    assert moment_of("2026-01-02T03:04:05Z") == NOW


def test_only_the_controlling_owner_counts() -> None:
    owner = {"uid": "u", "controller": True}
    obj: JsonObject = {"metadata": {"ownerReferences": [{"uid": "other"}, owner]}}
    assert controller_of(obj) == owner
    assert controller_of({"metadata": {}}) == {}


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("web-0", ("web", 0)),
        ("a-b-12", ("a-b", 12)),
        ("web-01", ("web", 1)),
        ("web", ("", -1)),
        ("web-x", ("", -1)),
        ("web-2147483648", ("web", -1)),
    ],
)
def test_names_of_pods(name: str, parsed: tuple[str, int]) -> None:
    assert parse_name({"metadata": {"name": name}}) == parsed


def test_a_member_has_name_and_label_of_its_set() -> None:
    sts = statefulset(ZoneSpec(name="web", first_ordinal=3, replicas=2))
    pod = new_pod(sts, child(sts, "spec", "template"), "web-1", 4)
    assert list(ordinals_of(sts)) == [3, 4]
    member = read_member(pod)
    assert member.has_identity("web")
    assert selects(sts, labels_of(pod))
    assert not read_member(pod_of("web-4")).has_identity("web")
    assert not member.has_identity("we")
    assert not selects(statefulset(ZoneSpec(name="other")), labels_of(pod))
    odd = {**pod, "metadata": {**child(pod, "metadata"), "name": "web-04"}}
    assert not read_member(odd).has_identity("web")


def test_a_member_is_what_its_pod_says() -> None:
    pod = pod_of("web-7", revision="r", deletionTimestamp=timestamp(NOW))
    member = read_member(pod)
    assert member.pod is pod
    assert (member.name, member.parent, member.ordinal) == ("web-7", "web", 7)
    assert (member.revision, member.phase, member.is_terminating) == ("r", "Running", True)
    assert member.ready_since == timestamp(NOW - timedelta(seconds=10))
    bare = read_member({"metadata": {"name": "web"}})
    assert (bare.parent, bare.ordinal, bare.labels, bare.revision) == ("", -1, {}, "")
    assert (bare.phase, bare.ready_since, bare.is_terminating) == ("", None, False)


@pytest.mark.parametrize(
    ("pod", "ready", "available", "unavailable"),
    [
        pytest.param(pod_of(), True, True, False, id="ready for as long as it takes"),
        pytest.param(pod_of(ready=None), False, False, True, id="not ready"),
        pytest.param(
            pod_of(ready=timedelta(seconds=9)), True, False, True, id="W-27 not yet available"
        ),
        pytest.param(
            pod_of(phase="Pending"), False, True, False, id="the phase counts for ready alone"
        ),
        pytest.param(
            pod_of(deletionTimestamp="2026-01-02T03:04:05Z"),
            True,
            True,
            True,
            id="a terminating pod is counted as ready, and is unavailable",
        ),
    ],
)
def test_states_of_pods(pod: JsonObject, ready: bool, available: bool, unavailable: bool) -> None:
    member = read_member(pod)
    assert is_running_and_ready(pod) is member.is_running_and_ready is ready
    assert member.is_available(10, NOW) is available
    assert member.is_unavailable(10, NOW) is unavailable


def status_of(**changes: int) -> CountedStatus:
    status = CountedStatus(
        observed_generation=4, current_revision="old", update_revision="new", collisions=0
    )
    for key, value in changes.items():
        setattr(status, key, value)
    return status


def test_counts() -> None:
    stamp = timestamp(NOW)
    pods = [
        pod_of(),
        pod_of(revision="old"),
        pod_of(ready=None),
        pod_of(deletionTimestamp=stamp),
        pod_of(ready=timedelta(0)),
        pod_of(phase="", ready=None),
    ]
    assert is_terminating(pods[3])
    status = status_of()
    status.count(map(read_member, pods), 5, NOW)
    counts = (status.replicas, status.ready, status.available, status.current, status.updated)
    assert counts == (5, 4, 3, 1, 3)


@pytest.mark.parametrize(
    ("strategy", "ready", "current"),
    [
        pytest.param("RollingUpdate", 3, "new", id="through"),
        pytest.param("RollingUpdate", 2, "old", id="one is not ready"),
        pytest.param("OnDelete", 3, "old", id="never under OnDelete"),
    ],
)
def test_the_current_revision_follows_a_rolling_update(
    strategy: str, ready: int, current: str
) -> None:
    status = status_of(replicas=3, updated=3, ready=ready)
    status.complete_rolling_update(statefulset(ZoneSpec(name="web", strategy=strategy)))
    assert status.current_revision == current
    assert status.current == (3 if current == "new" else 0)


def test_a_status_is_written_where_it_differs() -> None:
    status = status_of(replicas=3, ready=2, available=2, current=1, updated=2)
    assert not status.differs({"status": status.render()})
    for key in ("replicas", "readyReplicas", "availableReplicas", "updateRevision"):
        without = {name: value for name, value in status.render().items() if name != key}
        assert status.differs({"status": without}), key
    newer = {**status.render(), "observedGeneration": 5}
    assert not status.differs({"status": newer}), "an older generation is no reason"
    assert status.differs({"status": {**status.render(), "observedGeneration": 3}})


def test_zones_say_what_they_are_told() -> None:
    zones = three_zones("store", replicas=5, max_unavailable=2, pod_management="OrderedReady")
    assert [zone.name for zone in zones] == ["store-zone-a", "store-zone-b", "store-zone-c"]
    sts = statefulset(zones[0], "prod")
    assert child(sts, "metadata")["namespace"] == "prod"
    assert child(sts, "metadata", "annotations") == {"rollout-max-unavailable": "2"}
    assert child(sts, "metadata", "labels")["rollout-group"] == "store"
    assert number(sts, "spec", "replicas") == 5
    bare = statefulset(ZoneSpec(name="web", group=None, replicas=None, node="here"))
    assert "replicas" not in child(bare, "spec")
    assert child(bare, "metadata", "labels") == {"name": "web"}
    assert text(bare, "spec", "template", "spec", "nodeName") == "here"


def test_behaviours_are_chosen_by_image() -> None:
    sts = statefulset(ZoneSpec(name="web", image="v7"))
    pod = new_pod(sts, child(sts, "spec", "template"), "r", 0)
    assert image_of(pod) == "v7"
    broken = Behaviour(prepare=BROKEN)
    assert by_image({"v7": broken})(pod) is broken
    assert by_image({"v8": broken})(pod) == Behaviour()
    bad = statefulset(ZoneSpec(name="web", image="bad"))
    assert (
        DEFAULT(new_pod(bad, child(bad, "spec", "template"), "r", 0)).kind is StartKind.CRASH_LOOP
    )
    assert image_of({}) == ""
