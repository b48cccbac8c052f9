"""The judge of releases: what breaks a promise is found, what nearly does is not.

The Rollout of these histories has 1.0.0 at the head of its history, as entry 1, which has
succeeded; the OCIRepository that it writes has that tag.
"""

from copy import deepcopy

import pytest
from rollout_lab.model.request import Verb

from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    HEALTH_CHECKS,
    OCI_REPOSITORIES,
    ROLLOUT_GATES,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
    SELF_ACCESS_REVIEWS,
    JsonObject,
    Resource,
)
from tests.judge.book import read_book
from tests.judge.builder import OPERATOR, HistoryBuilder
from tests.judge.builder_objects import metadata_of, part_of
from tests.judge.histories import Events, as_events, cases, list_broken
from tests.judge.liveness import (
    KINDS_OF_RELEASES,
    READS_OF_A_CHECK,
    READS_PER_MINUTE,
    count_allowed_reads,
)
from tests.judge.promises import Promises

NAME = "app"
SOURCE = OCI_REPOSITORIES[0]
REQUESTED = "rollout.kuberik.com/"


def entry(
    number: int, tag: str, status: str = "Succeeded", user: str = "", **more: str
) -> JsonObject:
    """Return an entry of a history, by itself or as a person requested it."""
    person = {"kind": "User", "name": user} if user else {"kind": "System", "name": "operator"}
    return {
        "id": number,
        "version": {"tag": tag},
        "bakeStatus": status,
        "triggeredBy": person,
        **more,
    }


def begin() -> HistoryBuilder:
    t = HistoryBuilder().zones()
    source: JsonObject = {
        "metadata": {"name": NAME, "annotations": {f"{REQUESTED}rollout": NAME}},
        "spec": {"ref": {"tag": "1.0.0"}},
    }
    t.write(0, SOURCE, NAME, source)
    rollout: JsonObject = {"metadata": {"name": NAME, "annotations": {}}, "spec": {}}
    t.write(0, ROLLOUTS, NAME, rollout)
    return record(t, 0, entry(1, "1.0.0"))


def record(t: HistoryBuilder, at: float, *entries: JsonObject, **consumed: str) -> HistoryBuilder:
    """Have the operator record entries, the newest first, and what had its effect."""
    after = deepcopy(t.objects[ROLLOUTS.plural, NAME])
    intents = [{"annotation": name_intent(key), "value": value} for key, value in consumed.items()]
    known = part_of(after, "status").get("history") if "status" in after else []
    after["status"] = {"history": list(entries) or known, "consumedIntents": intents}
    return t.write(at, ROLLOUTS, NAME, after, actor=OPERATOR)


def annotate(
    t: HistoryBuilder, at: float, actor: str = "amy", **annotations: str | None
) -> HistoryBuilder:
    """Have annotations set, or removed with None."""
    after = deepcopy(t.objects[ROLLOUTS.plural, NAME])
    found = part_of(after, "metadata", "annotations")
    for key, value in annotations.items():
        if value is None:
            found.pop(name_intent(key), None)
        else:
            found[name_intent(key)] = value
    return t.write(at, ROLLOUTS, NAME, after, actor=actor)


def pin(t: HistoryBuilder, at: float, tag: str) -> HistoryBuilder:
    after = deepcopy(t.objects[ROLLOUTS.plural, NAME])
    after["spec"] = {"wantedVersion": tag}
    return t.write(at, ROLLOUTS, NAME, after)


def name_intent(key: str) -> str:
    return f"{REQUESTED}{key.replace('_', '-')}"


def close(
    t: HistoryBuilder, at: float, *, is_passing: bool = False, actor: str = "amy"
) -> HistoryBuilder:
    spec: JsonObject = {"rolloutRef": {"name": NAME}, "passing": is_passing}
    gate: JsonObject = {"metadata": {"name": "freeze"}, "spec": spec}
    return t.write(at, ROLLOUT_GATES, "freeze", gate, actor=actor)


def freeze(
    t: HistoryBuilder, at: float, action: str = "Deny", rule: str = "name", **selected: str
) -> HistoryBuilder:
    """Have a schedule that selects Rollouts with these labels, at all times if not said else."""
    spec: JsonObject = {"rolloutSelector": {"matchLabels": dict(selected)}, "action": action}
    spec["rules"] = [{"name": "nights", rule: "some"}]
    return t.write(at, ROLLOUT_SCHEDULES, "nights", {"metadata": {"name": "nights"}, "spec": spec})


def lose(t: HistoryBuilder, kind: Resource) -> HistoryBuilder:
    return t.fault(2, "drop_event", f"event 3 of {kind.plural}: MODIFIED some")


def label(t: HistoryBuilder, at: float, **set_to: str) -> HistoryBuilder:
    after = deepcopy(t.objects[ROLLOUTS.plural, NAME])
    part_of(after, "metadata")["labels"] = dict(set_to)
    return t.write(at, ROLLOUTS, NAME, after)


def tag(t: HistoryBuilder, at: float, value: str, actor: str = OPERATOR) -> HistoryBuilder:
    """Have the OCIRepository get a tag."""
    after = deepcopy(t.objects[SOURCE.plural, NAME])
    after["spec"] = {"ref": {"tag": value}}
    return t.write(at, SOURCE, NAME, after, actor=actor)


def annotate_source(t: HistoryBuilder, at: float, value: str) -> HistoryBuilder:
    """Have the operator tag an OCIRepository that names no Rollout."""
    metadata_of(t.objects[SOURCE.plural, NAME]).pop("annotations")
    return tag(t, at, value)


def deploy(t: HistoryBuilder, at: float, last: str = "Succeeded", user: str = "") -> HistoryBuilder:
    """Have the operator record 1.1.0 as entry 2, after entry 1 has ended so."""
    return record(t, at, entry(2, "1.1.0", "Deploying", user), entry(1, "1.0.0", last))


@as_events
def hold_up(t: HistoryBuilder, at: float) -> object:
    """Record 1.1.0 at 10; a request made before that writes 1.0.0 at a time."""
    tag(t, 1, "0.9.0", actor="amy").fault(9, "late", f"call 3: patch {SOURCE.plural}/{NAME}")
    return tag(deploy(t, 10), at, "1.0.0")


def force(t: HistoryBuilder, *, entries: int = 1, recorded: str = "1.1.0") -> HistoryBuilder:
    """Have 1.1.0 forced and deployed, once or more, and the annotation removed."""
    annotate(t, 5, force_deploy="1.1.0")
    history = [entry(1, "1.0.0", "Cancelled")]
    for number in range(2, 2 + entries):
        history.insert(0, entry(number, "1.1.0", "Deploying", "amy"))
        record(t, 5 + number, *history, force_deploy=recorded)
    return annotate(t, 20, OPERATOR, force_deploy=None)


def retry(t: HistoryBuilder, **tried: str) -> HistoryBuilder:
    """Have a failed entry tried again, or only its annotation taken."""
    record(t, 1, entry(1, "1.0.0", "Failed"))
    annotate(t, 5, retry="now")
    return record(t, 6, entry(1, "1.0.0", "Deploying", **tried), retry="now")


RELEASES = cases(
    {
        "REL-01 the next one after a success": lambda t: deploy(t, 10),
        "REL-01 while the last one bakes -> REL-01": lambda t: deploy(t, 10, "InProgress"),
        "REL-01 after a failure -> REL-01": lambda t: deploy(t, 10, "Failed"),
        "REL-01 after an unblocked failure": lambda t: deploy(
            annotate(t, 5, unblock_failed="true"), 10, "Failed"),
        "REL-01 by name while the last one bakes": lambda t: deploy(
            pin(t, 5, "1.1.0"), 10, "Cancelled"),
        "REL-01 another one by name -> REL-01": lambda t: deploy(
            pin(t, 5, "1.2.0"), 10, "Cancelled"),
        "REL-50 a gate closed for 6 s -> REL-50": lambda t: deploy(close(t, 4), 10),
        "REL-50 a gate closed for 4 s": lambda t: deploy(close(t, 6), 10),
        "REL-50 the same entry goes on": lambda t: record(
            close(t, 1), 10, entry(1, "1.0.0", "InProgress")),
        "REL-50 a gate opened again": lambda t: deploy(
            close(close(t, 1), 9, is_passing=True), 10),
        "REL-50 a gate that went": lambda t: deploy(
            close(t, 1).write(9, ROLLOUT_GATES, "freeze", None), 10),
        "REL-50 a bypass": lambda t: deploy(annotate(close(t, 1), 5, bypass_gates="1.1.0"), 10),
        "REL-50 another bypass -> REL-50": lambda t: deploy(
            annotate(close(t, 1), 5, bypass_gates="1.2.0"), 10),
        "REL-50 an event lost": lambda t: deploy(lose(close(t, 1), ROLLOUT_GATES), 10),
        "REL-50 an event lost long before -> REL-50": lambda t: deploy(
            lose(close(t, 1), ROLLOUT_GATES), 370),
        "RELB-42 a schedule, without a gate -> RELB-42": lambda t: deploy(freeze(t, 9), 10),
        "RELB-42 a schedule of this moment": lambda t: deploy(freeze(t, 9.6), 10),
        "RELB-42 a schedule that is open": lambda t: deploy(freeze(t, 9, "Allow"), 10),
        "RELB-42 a schedule that closes -> RELB-42": lambda t: deploy(
            freeze(freeze(t, 1, "Allow"), 9), 10),
        "RELB-42 a schedule of some hours": lambda t: deploy(freeze(t, 9, rule="timeRange"), 10),
        "RELB-42 an event of a schedule lost": lambda t: deploy(
            lose(freeze(t, 1), ROLLOUT_SCHEDULES), 10),
        "RELB-42 an event of the Rollout lost": lambda t: deploy(lose(freeze(t, 1), ROLLOUTS), 10),
        "RELB-42 an event of a gate lost -> RELB-42": lambda t: deploy(
            lose(freeze(t, 1), ROLLOUT_GATES), 10),
        "RELB-42 a schedule whose status is written -> RELB-42": lambda t: deploy(
            freeze(freeze(t, 9), 9.8), 10),
        "RELB-42 a schedule that went": lambda t: deploy(
            freeze(t, 1).write(9, ROLLOUT_SCHEDULES, "nights", None), 10),
        "RELB-42 a schedule of others": lambda t: deploy(freeze(t, 1, tier="web"), 10),
        "RELB-42 a label of before -> RELB-42": lambda t: deploy(
            label(freeze(t, 1, tier="web"), 9, tier="web"), 10),
        "RELB-42 a label of this moment": lambda t: deploy(
            label(freeze(t, 1, tier="web"), 9.6, tier="web"), 10),
        "RELB-42 a bypass": lambda t: deploy(annotate(freeze(t, 1), 5, bypass_gates="1.1.0"), 10),
        "RELB-42 the status is held up": lambda t: deploy(
            freeze(t, 1).fault(2, "late", f"call 3: patch {ROLLOUTS.plural}/{NAME}"), 10),
        "RELB-10 forced, deployed and removed": force,
        "RELB-10 forced and deployed twice -> RELB-10": lambda t: force(t, entries=2),
        "RELB-10 forced, and removed without a record -> RELB-10": lambda t: annotate(
            annotate(t, 5, force_deploy="1.1.0"), 6, OPERATOR, force_deploy=None),
        "RELB-10 removed by a person": lambda t: annotate(
            annotate(t, 5, force_deploy="1.1.0"), 6, force_deploy=None),
        "RELB-10 recorded, and not deployed -> RELB-10": lambda t: record(
            annotate(t, 5, force_deploy="1.1.0"), 6, force_deploy="1.1.0"),
        "RELB-10 there already": lambda t: record(
            annotate(t, 5, force_deploy="1.0.0"), 6, force_deploy="1.0.0"),
        "RELB-15 what is on record": lambda t: tag(deploy(t, 10), 11, "1.1.0"),
        "RELB-15 before it is on record -> RELB-15": lambda t: tag(t, 10, "1.1.0"),
        "RELB-15 what was before stays": lambda t: tag(deploy(t, 10), 20, "1.0.0"),
        "RELB-15 a source of no Rollout": lambda t: annotate_source(t, 5, "2.0.0"),
        "RELB-15 a gate of the operator": lambda t: close(t, 5, actor=OPERATOR),
        "RELB-15 a person may": lambda t: tag(t, 10, "1.1.0", actor="amy"),
        "RELB-15 what was before, at once": lambda t: tag(
            deploy(tag(t, 1, "0.9.0", actor="amy"), 10), 10.4, "1.0.0"),
        "RELB-15 what was before, later -> RELB-15": lambda t: tag(
            deploy(tag(t, 1, "0.9.0", actor="amy"), 10), 10.6, "1.0.0"),
        "RELB-15 what was before, held up": hold_up(100),
        "RELB-15 what was before, for longer -> RELB-15": hold_up(200),
        "RELB-35 tried again": lambda t: retry(t, lastRetryTimestamp="now"),
        "RELB-35 not tried again -> RELB-35": retry,
    }
)  # fmt: skip


@pytest.mark.parametrize(("events", "broken"), RELEASES)
def test_releases(events: Events, broken: list[str]) -> None:
    """REL-01, REL-50, RELB-10, RELB-15, RELB-35, RELB-42: found where broken, and only there."""
    t = begin()
    events(t)
    assert sorted(list_broken(t)) == broken


@pytest.mark.parametrize(
    ("verb", "is_of_schedules", "broken"),
    [
        ("list", True, []),
        ("watch", True, []),
        ("list", False, ["SI-24"]),
        ("patch", True, ["SI-24"]),
    ],
)
def test_schedules_of_the_cluster_are_read_for_releases_alone(
    verb: Verb, is_of_schedules: bool, broken: list[str]
) -> None:
    """SI-24, and the question for the right to do so."""
    resource = CLUSTER_ROLLOUT_SCHEDULES if is_of_schedules else ROLLOUTS
    assert list_broken(begin().call(1, verb, resource, namespace="")) == broken
    requests = begin().call(1, "create", SELF_ACCESS_REVIEWS)
    assert list_broken(requests) == []
    without = HistoryBuilder().zones().call(1, verb, CLUSTER_ROLLOUT_SCHEDULES)
    assert list_broken(without) == ["SI-24"]


def test_each_check_that_is_evaluated_may_be_read() -> None:
    """LI-11: not those that others write, and none without releases."""
    t = HistoryBuilder().zones()
    assert count_allowed_reads(read_book(t.history, Promises())) == READS_PER_MINUTE
    t = begin()
    without = count_allowed_reads(read_book(t.history, Promises()))
    assert without == READS_PER_MINUTE + KINDS_OF_RELEASES
    for name, kind in (("zones", "rollout-group"), ("alerts", "alerts")):
        t.write(1, HEALTH_CHECKS, name, {"metadata": {"name": name}, "spec": {"class": kind}})
    assert count_allowed_reads(read_book(t.history, Promises())) == without + READS_OF_A_CHECK
