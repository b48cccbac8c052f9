"""The judge of rollouts: each promise by a history that breaks it, and one that nearly does."""

from typing import Any

import pytest

from rollout_operator.kube.api import PODS, SECRETS, VALIDATING_WEBHOOKS, Resource
from tests.judge.state import REMEMBERED
from tests.judge.verdict import COVERAGE, find_violations
from tests.simulation.chronicle import Chronicle, preconditions, s
from tests.simulation.chronicle_deletes import Story, judge


def after_zone(at: float, name: str, **parts: Any) -> Story:
    """Change a set, and delete a pod of zone-a at 10 s."""

    def story(told: Chronicle) -> None:
        told.zone(at, name, **parts)
        told.delete(10, "zone-a-0")

    return story


def after_pod(at: float, name: str, **parts: Any) -> Story:
    """Change a pod, and delete one of zone-a at 10 s."""

    def story(told: Chronicle) -> None:
        told.pod(at, name, **parts)
        told.delete(10, "zone-a-0")

    return story


other_zone_short = after_pod(4, "zone-b-1", ready=False)
other_zone_just_short = after_pod(6, "zone-b-1", ready=False)
other_zone_wants_more = after_zone(4, "zone-b", replicas=4)
zone_already_short = after_pod(4, "zone-a-1", ready=False)
new_pod = after_pod(5, "zone-a-0", revision="new")
rolled_back_in_flight = after_zone(9.7, "zone-a", update_revision="old")
paused_set = after_zone(4, "zone-a", paused="true")
just_paused = after_zone(6, "zone-a", paused="true")
wrong_strategy_elsewhere = after_zone(5, "zone-c", strategy="RollingUpdate")
lagging_status = after_zone(9, "zone-b", generation=2)
status_lags_in_flight = after_zone(9.8, "zone-b", generation=2)
no_revision = after_zone(5, "zone-b", update_revision="")
ungrouped = after_zone(2, "zone-a", group=None)
just_ungrouped = after_zone(9.9, "zone-a", group=None)


def two_zones(told: Chronicle) -> None:
    told.delete(10, "zone-a-0")
    told.delete(11, "zone-b-0")


def one_zone_after_another(told: Chronicle) -> None:
    told.delete(10, "zone-a-0")
    told.replace(11, "zone-a-0")
    told.delete(11.4, "zone-b-0")


def other_zone_leaves(told: Chronicle) -> None:
    told.delete(10, "zone-a-0")
    told.zone(11, "zone-a", group="other")
    told.delete(20, "zone-b-0")


def other_zone_returns(told: Chronicle, *, at: float = 4) -> None:
    told.zone(1, "zone-b", replicas=2)
    told.write(2, PODS, "zone-b-2", None)
    told.zone(at, "zone-b", replicas=3)
    told.delete(at + 6, "zone-a-0")


def other_zone_returns_late(told: Chronicle) -> None:
    other_zone_returns(told, at=2 + REMEMBERED.total_seconds())


def broken_pod_goes(told: Chronicle) -> None:
    told.pod(4, "zone-a-1", ready=False)
    told.delete(10, "zone-a-1")


def two_at_once(told: Chronicle) -> None:
    told.delete(10, "zone-a-0")
    told.delete(10.5, "zone-a-1")


def fallen_beside_one(told: Chronicle) -> None:
    told.delete(10, "zone-a-0")
    told.pod(10.2, "zone-a-1", ready=False)
    told.delete(20, "zone-a-1")


def fallen_after_one(told: Chronicle) -> None:
    told.delete(10, "zone-a-0")
    told.pod(10.2, "zone-a-1", ready=False)
    told.replace(12, "zone-a-0")
    told.delete(20, "zone-a-1")


def never_up_beside_one(told: Chronicle) -> None:
    told.delete(10, "zone-a-0")
    told.replace(12, "zone-a-0", ready=False, revision="bad")
    told.delete(20, "zone-a-0")


def limit_just_lowered(told: Chronicle) -> None:
    told.zone(0, "zone-a", limit="2")
    told.delete(10, "zone-a-0")
    told.zone(10.2, "zone-a", limit="1")
    told.delete(10.5, "zone-a-1")


def one_of_five_percent(told: Chronicle) -> None:
    told.zone(0, "zone-a", limit="40%")
    two_at_once(told)


def without_uid(told: Chronicle) -> None:
    told.delete(10, "zone-a-0", body=preconditions(""))


def without_version(told: Chronicle) -> None:
    told.delete(10, "zone-a-0", body=preconditions("zone-a-0@0", version=""))


def stray_pod(told: Chronicle) -> None:
    told.pod(5, "zone-a-9", owner="somebody")
    told.delete(10, "zone-a-9")


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(two_zones, ["SI-01"], id="SI-01 two zones at once"),
        pytest.param(one_zone_after_another, [], id="SI-01 the next zone once the pod is ready"),
        pytest.param(other_zone_leaves, [], id="SI-01 a zone that has left the group"),
        pytest.param(other_zone_short, ["SI-02"], id="SI-02 another zone has been short for 6 s"),
        pytest.param(other_zone_just_short, [], id="SI-02 another zone has been short for 4 s"),
        pytest.param(other_zone_wants_more, [], id="D-67 a pod that was never there"),
        pytest.param(other_zone_returns, ["SI-02"], id="SI-02 D-67 one that was there lately"),
        pytest.param(other_zone_returns_late, [], id="D-67 one that was there long ago"),
        pytest.param(zone_already_short, ["SI-03"], id="SI-03 one was missing before"),
        pytest.param(broken_pod_goes, [], id="SI-03 what is broken costs nothing"),
        pytest.param(fallen_beside_one, ["SI-04"], id="SI-04 one that fell by itself is one more"),
        pytest.param(fallen_after_one, [], id="SI-04 the one before is up again"),
        pytest.param(never_up_beside_one, [], id="SI-04 LI-10 the same one again, not up since"),
        pytest.param(two_at_once, ["SI-03", "SI-04"], id="SI-04 one more than the limit"),
        pytest.param(limit_just_lowered, [], id="SI-04 by the limit of a moment ago"),
        pytest.param(without_uid, ["SI-07"], id="SI-07 no uid"),
        pytest.param(without_version, ["SI-07"], id="SI-07 no version"),
        pytest.param(new_pod, ["SI-07"], id="SI-07 it is updated already"),
        pytest.param(rolled_back_in_flight, [], id="SI-07 rolled back while it was on its way"),
        pytest.param(paused_set, ["SI-07"], id="SI-07 paused 6 s ago"),
        pytest.param(just_paused, [], id="SI-07 paused 4 s ago"),
        pytest.param(wrong_strategy_elsewhere, ["SI-08"], id="SI-08 strategy of another zone"),
        pytest.param(lagging_status, ["SI-08"], id="SI-08 status of another zone"),
        pytest.param(status_lags_in_flight, [], id="SI-08 a change while it was on its way"),
        pytest.param(no_revision, ["SI-08"], id="SI-08 no update revision"),
        pytest.param(stray_pod, ["SI-06"], id="SI-06 somebody else's pod"),
        pytest.param(ungrouped, ["SI-06"], id="SI-06 of no group"),
        pytest.param(just_ungrouped, [], id="SI-06 taken out of its group while on its way"),
    ],
)
def test_deletes_are_judged(story: Story, broken: list[str]) -> None:
    """SI-01 to SI-04, SI-06 to SI-08: what breaks them does, and what nearly does not."""
    assert judge(story) == broken


def test_a_share_of_the_replicas_is_a_limit() -> None:
    """SI-04: of five pods 40 % are two; of three, one."""
    assert judge(one_of_five_percent, replicas=5) == []
    assert judge(one_of_five_percent, replicas=3) == ["SI-03", "SI-04"]


def ended_without_delete(told: Chronicle) -> None:
    told.write(10, PODS, "zone-a-0", None, actor="operator-1")


def collection(told: Chronicle) -> None:
    told.look(10)
    told.call(10.1, "delete", PODS)


def elsewhere(told: Chronicle) -> None:
    told.look(10)
    body = preconditions("u")
    told.call(10.1, "delete", PODS, "x", namespace="kube-system", body=body, status=403)


def test_what_a_request_alone_shows() -> None:
    """SI-06, SI-07, SI-24: foreign namespaces, whole collections, ends that nobody asked for."""
    assert judge(ended_without_delete) == ["SI-07"]
    assert judge(collection) == ["SI-07"]
    assert judge(elsewhere) == ["SI-06", "SI-24"]


@pytest.mark.parametrize(
    ("resource", "namespace", "broken"),
    [
        pytest.param(PODS, "default", [], id="own namespace"),
        pytest.param(PODS, "", ["SI-24"], id="all namespaces"),
        pytest.param(SECRETS, "other", ["SI-24"], id="another one"),
        pytest.param(VALIDATING_WEBHOOKS, "", [], id="webhook configurations"),
        pytest.param(Resource("", "v1", "nodes", "Node", False), "", ["SI-24"], id="nodes"),
    ],
)
def test_nothing_outside_is_read(resource: Resource, namespace: str, broken: list[str]) -> None:
    """SI-24: requests stay in the namespace, but for webhook configurations."""

    def story(told: Chronicle) -> None:
        told.call(1, "list", resource, namespace=namespace)

    assert judge(story) == broken


def test_a_violation_says_when_and_what() -> None:
    """The reader learns the time, the pod and what stood against it."""
    chronicle = Chronicle()
    chronicle.zones()
    other_zone_short(chronicle)

    (found,) = find_violations(chronicle.history).violations

    assert found.at == s(10)
    assert (
        f"{found}" == "SI-02 at 10.0 s: delete of zone-a-0: zone-b-1 has been unavailable for 6.0 s"
    )


def test_each_promise_is_accounted_for() -> None:
    """Of each id it is said whether it is judged, and if not, why."""
    wanted = [f"SI-{number:02}" for number in range(1, 25)]
    wanted += [f"LI-{number:02}" for number in range(1, 15)]

    assert list(COVERAGE) == [*wanted, "SCALE-05", "MIRR-04", "DELAY-08", "ROLL-39"]
