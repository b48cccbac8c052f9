"""The judge of policies: what breaks a promise is found, what nearly does is not.

The policy of these histories selects all sets, one zone each, with one pod at a time and a pause of
30 s; batch 1 begins at 10 s.
"""

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.model.request import Verb

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, NODES, PODS, JsonObject
from tests.judge.book import read_book
from tests.judge.builder import OPERATOR, HistoryBuilder, full
from tests.judge.builder_objects import metadata_of, part_of, statefulset
from tests.judge.histories import Events, as_events, cases, list_broken
from tests.judge.objects import Json, Set, read_set
from tests.judge.policies import get_longest_pause, read_spec
from tests.judge.promises import Promises
from tests.judge.rest import count_batches

NAME: Final = "db"
KEY: Final = "topology.kubernetes.io/zone"
ALL: Final[JsonObject] = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}


def policy_object(name: str = NAME, **spec: object) -> JsonObject:
    """Return a policy that selects all sets; `created` may be another day of the year."""
    created = spec.pop("created", 2)
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": f"2026-01-0{created}"},
        "spec": {"statefulSetSelector": ALL, **spec},
    }


def policy(t: HistoryBuilder, at: float, name: str = NAME, **spec: object) -> HistoryBuilder:
    """Have a person write a policy; its status stays."""
    after = policy_object(name, **spec)
    known = t.objects.get((MULTI_AZ_ROLLOUTS.plural, full(name)))
    if known and "status" in known:
        after["status"] = known["status"]
    return t.write(at, MULTI_AZ_ROLLOUTS, name, after)


def record(
    t: HistoryBuilder, at: float, number: int, *names: str, end: bool = False, revision: str = "new"
) -> HistoryBuilder:
    """Have the operator record a batch of pods such as `a-0`, as they are by now."""
    after = deepcopy(t.objects[MULTI_AZ_ROLLOUTS.plural, NAME])
    found = [metadata_of(t.objects[PODS.plural, full(name)]) for name in names]
    batch: JsonObject = {
        "number": number,
        "statefulSet": full(names[0]).rpartition("-")[0],
        "updateRevision": revision,
        "pods": [{"name": one["name"], "uid": one["uid"]} for one in found],
    }
    after["status"] = {"lastBatch": {**batch, **({"completionTime": "then"} if end else {})}}
    return t.write(at, MULTI_AZ_ROLLOUTS, NAME, after, actor=OPERATOR)


def complete(t: HistoryBuilder, at: float) -> HistoryBuilder:
    """Have the operator record that the batch is complete."""
    after = deepcopy(t.objects[MULTI_AZ_ROLLOUTS.plural, NAME])
    part_of(after, "status", "lastBatch")["completionTime"] = "then"
    return t.write(at, MULTI_AZ_ROLLOUTS, NAME, after, actor=OPERATOR)


def batch(
    t: HistoryBuilder, at: float, number: int, *names: str, revision: str = "new"
) -> HistoryBuilder:
    """Have the operator record a batch, and delete its pods."""
    record(t, at - 0.2, number, *names, revision=revision)
    for place, name in enumerate(names):
        t.delete(at + place * 0.1, name)
    return t


def first(t: HistoryBuilder) -> HistoryBuilder:
    """Batch 1 is of a-0, which is back at 20."""
    return complete(batch(t, 10, 1, "a-0").replace(19.8, "a-0"), 20)


def follow(
    at: float, name: str = "a-1", number: int = 2
) -> Callable[[HistoryBuilder], HistoryBuilder]:
    """Return the events of batch 1, and of the next at a time."""
    return lambda t: batch(first(t), at, number, name)


def failed_meanwhile(at: float) -> Events:
    """Return the events of a pause in which a pod is not ready from 30 to 40."""
    return lambda t: batch(
        first(t).pod(30, "b-1", ready=False).pod(40, "b-1"), at, 2, "a-1"
    )  # fmt: skip


@as_events
def upscaled(t: HistoryBuilder, at: float) -> object:
    """Return the events of a new pod that was replaced, never ready, and of the next at a time."""
    t.zone(1, "a", replicas=4).pod(1.1, "a-3", ready=False)
    complete(batch(t, 10, 1, "a-3").replace(19.8, "a-3"), 20)
    return batch(t, at, 2, "a-2")


@as_events
def restarted(t: HistoryBuilder, at: float) -> object:
    """Return the events of a pause in which the operator ends and another one begins."""
    t.lived(0, "started")
    first(t).lived(25, "killed").lived(26, "started")
    return batch(t, at, 2, "a-1")


@as_events
def rolled_back(t: HistoryBuilder, *, is_complete: bool) -> object:
    """Return the events of a new template while the pod of batch 1 has not gone yet."""
    first(t)
    record(t, 55, 2, "a-1", end=is_complete)
    t.delete(55.2, "a-1").replace(60, "a-1")
    for letter in "abc":
        t.zone(61, letter, update_revision="newer")
    return batch(t, 70, 3, "a-2", revision="newer")


@as_events
def paused(t: HistoryBuilder, at: float) -> object:
    """Return the events of a batch recorded at 9.8, of a policy that is paused at a time."""
    return batch(policy(t, at, paused=True), 10, 1, "a-0")


def carried_out(t: HistoryBuilder) -> object:
    """A batch was recorded, then the policy was paused, then the batch goes on."""
    record(t, 10, 1, "a-0")
    return policy(t, 11, paused=True).delete(30, "a-0")


def two(t: HistoryBuilder) -> object:
    """Two pods of a zone go as one batch."""
    return batch(t, 10, 1, "a-0", "a-1")


def with_limit(limit: object) -> Events:
    """Return the events of two pods of a zone at once."""
    return lambda t: two(policy(t, 1, rollingUpdate={"maxUnavailable": limit}))


@as_events
def in_one_zone(t: HistoryBuilder, /, events: Events, **update: object) -> object:
    """Return events while zones a and b are one."""
    for letter in "ab":
        t.zone(1, letter, labels={KEY: "east"})
    policy(t, 1, rollingUpdate={"maxUnavailable": 2, **update})
    return events(t)


def slid(name: str) -> Events:
    """Return the events of a policy without a pause: the next pod while one is down."""
    return lambda t: batch(batch(t, 10, 1, "a-0"), 12, 2, name)


@as_events
def patient(t: HistoryBuilder, at: float) -> object:
    """Return the events of a pod of another zone that is ready from 20 on, and counts from 30."""
    t.zone(1, "b", min_ready=10)
    t.pod(12, "b-1", ready=False).pod(20, "b-1")
    return batch(t, at, 1, "a-0")


def terminate(t: HistoryBuilder, at: float) -> HistoryBuilder:
    """Have the policy be deleted, and be there as long as a finalizer holds it."""
    after = deepcopy(t.objects[MULTI_AZ_ROLLOUTS.plural, NAME])
    metadata_of(after)["deletionTimestamp"] = "then"
    return t.write(at, MULTI_AZ_ROLLOUTS, NAME, after)


def never_up(t: HistoryBuilder) -> HistoryBuilder:
    """Have a bad revision come to two zones."""
    for name in ("a-0", "b-0"):
        t.replace(2, name, ready=False, revision="bad")
    return t


def late(t: HistoryBuilder) -> HistoryBuilder:
    """Have a delete be carried out when its zone is not that of the last batch any more."""
    record(t, 9, 1, "a-1")
    batch(t.replace(12, "b-0", ready=False, revision="bad"), 12.5, 2, "b-0")
    return t.delete(13, "a-1", is_read=False)


def of_its_own(t: HistoryBuilder) -> HistoryBuilder:
    """Set zone-c, which is short, is none that the policy selects."""
    return t.zone(0.5, "c", labels={"app": "x"}, group=None).pod(1, "c-0", ready=False)


def without_label(t: HistoryBuilder) -> HistoryBuilder:
    """No set has the label of a group."""
    for letter in "abc":
        t.zone(0.5, letter, group=None)
    return t


DELETES = cases(
    {
        "one that is recorded": lambda t: batch(t, 10, 1, "a-0"),
        "of no group, recorded": lambda t: batch(without_label(t), 10, 1, "a-0"),
        "SI-17 step 12: not recorded -> SI-17": lambda t: without_label(t).delete(10, "a-0"),
        "SI-17 another pod is recorded -> SI-17": lambda t: (
            record(without_label(t), 9, 1, "a-1").delete(10, "a-0")
        ),
        "SI-17 recorded after it -> SI-17": lambda t: record(
            without_label(t).delete(10, "a-0"), 10.5, 1, "a-0"
        ),
        "MAZ-25 driven by its label -> MAZ-25": lambda t: t.delete(10, "a-0"),
        "MAZ-25 beside a batch that is open -> MAZ-25 MAZ-36": lambda t: batch(
            t, 10, 1, "a-0"
        ).delete(12, "a-1"),
        "MAZ-25 the policy is on its way out for 6 s": lambda t: terminate(t, 4).delete(10, "a-0"),
        "MAZ-25 the policy is 3 s old": lambda t: policy(
            t.write(1, MULTI_AZ_ROLLOUTS, NAME, None), 7
        ).delete(10, "a-0"),
        "MAZ-25 the policy has gone for 6 s": lambda t: t.write(
            4, MULTI_AZ_ROLLOUTS, NAME, None
        ).delete(10, "a-0"),
        "MAZ-48 of no group, the policy has gone -> SI-06": lambda t: without_label(t)
        .write(4, MULTI_AZ_ROLLOUTS, NAME, None)
        .delete(10, "a-0"),
        "MAZ-25 it splits the group": lambda t: t.zone(1, "c", labels={"app": "x"}).delete(
            10, "a-0"
        ),
        "MAZ-24 the older one drives": lambda t: batch(
            policy(t, 1, "younger", created=3), 10, 1, "a-0"
        ),
        "MAZ-24 an older one came -> MAZ-25": lambda t: policy(t, 1, "older", created=1).delete(
            10, "a-0"
        ),
        "MAZ-30 the batch is open -> MAZ-30 MAZ-36": lambda t: batch(
            batch(t, 10, 1, "a-0"), 60, 2, "a-1"
        ),
        "D-88 MAZ-30 a new replica that never came up goes beside it": lambda t: batch(
            batch(t, 10, 1, "a-0").zone(11, "b", replicas=4).pod(11, "b-3", ready=False),
            60, 2, "b-3",
        ),
        "D-88 MAZ-31 one that never came up went in another zone before it": late,
        "MAZ-30 the same number for another pod -> MAZ-30": follow(51, number=1),
        "MAZ-31 two zones at once -> MAZ-30 MAZ-31 MAZ-32": lambda t: batch(
            batch(t, 10, 1, "a-0"), 60, 2, "b-0"
        ),
        "MAZ-31 MAZ-41 the next zone after the pause": follow(51, "b-0"),
        "MAZ-32 another zone has been short for 6 s -> MAZ-32": lambda t: batch(
            t.pod(4, "b-1", ready=False), 10, 1, "a-0"
        ),
        "D-88 MAZ-31 MAZ-32 those that never came up go in two zones": lambda t: batch(
            batch(never_up(t), 10, 1, "a-0"), 11, 2, "b-0"
        ),
        "D-88 one that has been up, and may be again -> MAZ-32": lambda t: batch(
            never_up(t).pod(4, "a-1", ready=False), 10, 1, "a-1"
        ),
        "MAZ-32 another zone has been short for 4 s": lambda t: batch(
            t.pod(6, "b-1", ready=False), 10, 1, "a-0"
        ),
        "MAZ-32 a set of another policy is short": lambda t: batch(
            policy(of_its_own(t), 1, "other", statefulSetSelector={"matchLabels": {"app": "x"}}),
            10, 1, "a-0",
        ),
        "MAZ-32 a set of no policy is short": lambda t: batch(of_its_own(t), 10, 1, "a-0"),
        "MAZ-32 not available for minReadySeconds -> MAZ-32": patient(27),
        "MAZ-32 available after minReadySeconds": patient(31),
        "MAZ-33 the next of a zone without a pause -> MAZ-33": in_one_zone(
            slid("b-0"), intervalSeconds=0
        ),
        "MAZ-42 the same without a pause": in_one_zone(slid("a-1"), intervalSeconds=0),
        "MAZ-36 two, where one may -> MAZ-36": two,
        "MAZ-36 two, where two may": with_limit(2),
        "MAZ-36 66 % of three are one -> MAZ-36": with_limit("66%"),
        "MAZ-36 67 % of three are two": with_limit("67%"),
        "MAZ-37 one of the zone is missing -> MAZ-36": in_one_zone(
            lambda t: two(t.pod(2, "b-1", ready=False))
        ),
        "MAZ-37 two of the zone may": in_one_zone(two),
        "MAZ-38 one that is broken": lambda t: batch(t.pod(2, "a-0", ready=False), 10, 1, "a-0"),
        "MAZ-40 after 28 s -> MAZ-40": follow(48),
        "MAZ-40 after 30 s": follow(50.1),
        "MAZ-38 one that is broken, in the pause": lambda t: batch(
            first(t).pod(25, "a-1", ready=False), 30, 2, "a-1"
        ),
        "MAZ-40 a failure in the pause -> MAZ-40": failed_meanwhile(68),
        "MAZ-40 a failure in the pause, and 30 s": failed_meanwhile(70.1),
        "MAZ-40 28 s after a new pod of an upscale -> MAZ-40": upscaled(48),
        "MAZ-40 30 s after a new pod of an upscale": upscaled(50.1),
        "MAZ-41 the next zone after 28 s -> MAZ-40": follow(48, "b-0"),
        "MAZ-43 another process does not wait -> MAZ-43": restarted(48),
        "MAZ-43 another process waits for the rest": restarted(50.1),
        "MAZ-47 superseded": rolled_back(is_complete=False),
        "MAZ-47 complete, and another template -> MAZ-40": rolled_back(is_complete=True),
        "MAZ-46 paused 6 s before -> MAZ-46": paused(3),
        "MAZ-46 paused 4 s before": paused(7),
        "MAZ-46 an open batch goes on": carried_out,
        "MAZ-46 a shorter pause counts at once": lambda t: batch(
            policy(first(t), 24, rollingUpdate={"intervalSeconds": 5}), 25.5, 2, "a-1"
        ),
        "SI-09 a read of all that the policy selects, of whatever group": lambda t: record(
            t, 9, 1, "a-0"
        ).live_read(9.5, query={"labelSelector": "!app"}).delete(10, "a-0", is_read=False),
        "SI-07 a paused set -> SI-07": lambda t: batch(
            t.zone(2, "a", paused="true"), 10, 1, "a-0"
        ),
        "SI-08 another strategy -> SI-08": lambda t: batch(
            t.zone(2, "b", strategy="RollingUpdate"), 10, 1, "a-0"
        ),
    }
)  # fmt: skip


@pytest.mark.parametrize(("events", "broken"), DELETES)
def test_deletes_for_policies(events: Events, broken: list[str]) -> None:
    """MAZ-25, 30 to 33, 36, 40, 43 and 46, SI-17: what breaks them does, what nearly does not."""
    history = HistoryBuilder().zones()
    policy(history, 0)
    events(history)
    assert sorted(list_broken(history)) == broken


def test_a_batch_of_the_dead_is_no_fault_of_the_next() -> None:
    """MAZ-30: what a process had sent before it died arrives beside the batch of another."""
    history = HistoryBuilder().zones().lived(0, "started")
    record(policy(history, 0), 9, 1, "a-0").live_read(9.1)
    history.fault(9.2, "late", "call 9: delete pods/zone-a-0: late: 0:00:01")
    batch(history.lived(9.3, "crashed").lived(9.4, "started"), 12, 2, "a-1")
    history.delete(41, "a-0", is_read=False)
    assert list_broken(history, Promises(reserves=True)) == []


@pytest.mark.parametrize(
    ("has_policy", "verb", "broken"),
    [
        (True, "list", []),
        (True, "watch", []),
        (True, "patch", ["SI-24"]),
        (False, "list", ["SI-24"]),
        (False, "watch", ["SI-24"]),
    ],
)
def test_nodes_are_read_for_policies_alone(has_policy: bool, verb: Verb, broken: list[str]) -> None:
    """SI-24: nodes are the cluster's; where nothing else says a zone they do."""
    history = HistoryBuilder().zones()
    if has_policy:
        policy(history, 0)
    assert list_broken(history.call(5, verb, NODES)) == broken


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"labels": {KEY: "label"}, "nodeSelector": {KEY: "selector"}}, "label"),
        ({"template": {KEY: "template"}, "nodeSelector": {KEY: "selector"}}, "template"),
        ({"nodeSelector": {KEY: "selector"}, "labels": {"zone": "older"}}, "selector"),
        ({"labels": {"zone": "older"}}, "older"),
        ({}, "zone-b"),
        ({"name": "db-2c"}, "2c"),
        ({"name": "db"}, "db"),
    ],
)
def test_zones_of_sets(parts: Json, expected: str) -> None:
    """MAZ-12 to MAZ-19, but for nodes and affinity."""
    found: Json = statefulset(parts.get("name", "ingester-zone-b"))
    found["metadata"]["labels"] = parts.get("labels", {})
    found["spec"]["template"] = {
        "metadata": {"labels": parts.get("template", {})},
        "spec": {"nodeSelector": parts.get("nodeSelector", {})},
    }
    spec = read_spec(policy_object(azOrder=["2c"]))
    assert spec.name_zone(read_set(found)) == expected
    assert spec.interval == timedelta(seconds=30)


@pytest.mark.parametrize(
    ("operator", "values", "selected"),
    [
        ("In", ["x", "y"], ["x"]),
        ("NotIn", ["x"], ["z", None]),
        ("Exists", None, ["x", "z"]),
        ("DoesNotExist", None, [None]),
    ],
)
def test_selectors_of_policies(operator: str, values: list[str], selected: list[str]) -> None:
    """MAZ-20: sets whose label `app` is x or z, or which have none."""
    term: JsonObject = {"key": "app", "operator": operator, "values": values}
    spec = read_spec(policy_object(statefulSetSelector={"matchExpressions": [term]}))
    found = [app for app in ("x", "z", None) if spec.selects(labelled(app))]
    assert found == selected


def labelled(app: str | None) -> Set:
    return Set(name="a", uid="a", labels={} if app is None else {"app": app})


def test_rest_waits_for_pauses() -> None:
    """LI-01: each batch may take its pause in addition, and needs no group for it."""
    history = without_label(HistoryBuilder().zones())
    book = read_book(history.history, Promises())
    assert (get_longest_pause(book), count_batches(book, timedelta(5))) == (timedelta(0), 0)
    book = read_book(policy(history, 1).history, Promises())
    assert get_longest_pause(book) == timedelta(seconds=30)
    assert count_batches(book, timedelta(5)) == 9
    history.pod(6, "a-0", revision="new").pod(6, "a-1", ready=False).gone(6, "a-2")
    history.zone(7, "b", limit="2").zone(8, "c", update_revision="old")
    assert count_batches(read_book(history.history, Promises()), timedelta(seconds=9)) == 4
