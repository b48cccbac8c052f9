"""A MultiAZRollout as every outlet shows it: by its status, and by what was decided last."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.description import Phase, PolicyDescription
from rollout_operator.model.names import GroupName, Revision, Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.policy import (
    Policy,
    PolicyRefusal,
    PolicyRefusalCode,
    PolicyScope,
    RefusedPolicy,
    SetCounts,
    WatchedPolicy,
    ZoneCounts,
)
from rollout_operator.planning.describe_policies import (
    describe_idle,
    describe_policy,
    describe_unreadable_policy,
    find_disobedience,
    is_held,
    list_worst_policies,
)
from tests.model.cases import bend
from tests.model.policy_trees import status_tree
from tests.planning.policies.snapshots import policy
from tests.stories import check_tables

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TIME: Final = 'lastTransitionTime: "2026-01-02T03:04:05Z"'
CODES: Final = {f"{code}": code for code in Code}
SCOPE: Final = PolicyScope(policy=policy(), groups=frozenset({GroupName("y"), GroupName("x")}))


def watched(changes: str) -> WatchedPolicy:
    """Return a policy with a value in each field of its status, changed as by `tests.model`.

    It has no status where that is `none`, and nothing but conditions where it is `conditions`.
    """
    tree = status_tree()
    if changes in ("none", "conditions"):
        kept, changes = changes, ""
        tree["status"] = {key: one for key, one in tree["status"].items() if key == kept}
    found = decode_watched_policy(msgspec.json.encode(bend(tree, changes, "status")))
    assert isinstance(found.policy, Policy)
    return found


def show(text: str) -> str:
    """Return the description of a policy: first what is known of it, after ` / ` of its status."""
    commands, _, changes = text.partition(" / ")
    one, now, waits = watched(changes), NOW, tuple[Reason, ...]()
    scope: PolicyScope | RefusedPolicy | None = SCOPE
    counts: list[ZoneCounts] = []
    for command in commands.split("; "):
        word, *words = command.split()
        match word:
            case "wait":
                waits = (*waits, Reason(CODES[words[0]], " ".join(words[1:])))
            case "at":
                now += timedelta(seconds=float(words[0]))
            case "counts":
                names = ("replicas", "updated", "outdated", "ready", "unavailable")
                sets: Any = dict(zip(names, map(int, words), strict=True))
                each = SetCounts(name="db-a", revision=Revision("last"), **sets)
                counts = [ZoneCounts(name="a", sets=(each,))]
            case "refuse":
                refusals = tuple(
                    PolicyRefusal(code=PolicyRefusalCode.CONFLICT, field="spec", text=said)
                    for said in words
                )
                scope = RefusedPolicy(head=policy().head, refusals=refusals)
            case "leave":
                scope = None
            case "unobeyed":
                return _show_unobeyed(one, words[0], is_switched_off="off" in words)
            case "unreadable":
                lost = Unreadable(
                    kind="MultiAZRollout", namespace="prod", name="db", uid=Uid("u"),
                    resource_version="1", error=" ".join(words),
                )  # fmt: skip
                return _show(describe_unreadable_policy(lost))
    found = describe_policy(one, scope, waits, now=now, counts=counts)
    return _show_whole(found) if "whole" in commands or counts else _show(found)


def _show_unobeyed(one: WatchedPolicy, age: str, *, is_switched_off: bool) -> str:
    """Return why no operator obeys a policy of that age; it is held for a person, in `wait` too."""
    created = None if age == "?" else NOW - timedelta(seconds=float(age))
    head = replace(one.policy.head, created=created)
    one = replace(one, policy=replace(one.policy, head=head))
    lack = find_disobedience(one, NOW, is_switched_off=is_switched_off)
    if lack is None:
        return "obeyed"
    found = describe_policy(one, SCOPE, (lack,), now=NOW)
    assert is_held(found)
    assert describe_idle(found, NOW).phase is Phase.HELD
    return _show(found)


def _show(found: PolicyDescription) -> str:
    waits = [f"{one.code}{f' ({one.remedy})' if one.remedy else ''}" for one in found.waits]
    phase = f"{found.phase or 'no phase'} {found.code or 'undecided'} {found.reason}".rstrip()
    pause = [f"pause until {found.next_batch:%T}"] if found.next_batch else []
    began = [f"began {found.began:%T}"] if found.began else []
    return "; ".join([f"{phase}: {found.headline}", *waits, *pause, *began])


def _show_whole(found: PolicyDescription) -> str:
    numbers = f"{found.updated}/{found.desired} ready {found.ready}"
    zones = [
        f"{one.order} {one.name} {one.state}: "
        + ", ".join(
            f"{each.name} by {each.source} {each.updated}/{each.desired}"
            f" outdated {each.outdated} down {each.unavailable}"
            for each in one.sets
        )
        for one in found.zones
    ]
    batch = found.batch
    last = "no batch"
    if batch is not None:
        ends = f"{batch.began and batch.began.time()}-{batch.completed and batch.completed.time()}"
        last = f"batch {batch.number} of {batch.zone}, {batch.stateful_set}: {batch.pods} {ends}"
    more = [f"{one.type} {one.is_true} since {one.since:%T}" for one in found.conditions]
    lists = [f"groups {' '.join(found.groups)}", f"unknown {' '.join(found.unknown_zones)}"]
    return "; ".join([found.title, _show(found), numbers, *zones, *lists, last, *more])


test_case = check_tables(__file__, policies=show)


def test_of_a_hundred_policies_those_come_first_that_do_not_go_on() -> None:
    """The page shows thirty: one that only a person can mend is among them, whatever its name."""
    refused = Reason(Code.DELETE_REFUSED, "no", Severity.WARN)
    known = {
        "a": "Idle", "b": "Progressing", "c": "Waiting IntervalWait", "d": "Paused", "e": "Waiting",
        "f": "Waiting BatchOpen", "g": "Progressing ProgressDeadlineExceeded", "h": "Invalid",
        "i": "Blocked",
    }  # fmt: skip
    policies = []
    for name, words in known.items():
        phase, _, reason = words.partition(" ")
        condition = f'{{type: Progressing, status: "True", reason: "{reason}", {TIME}}}'
        changes = f"phase: {phase}, conditions: [{condition}]"
        waits = (refused,) if name == "f" else ()
        found = describe_policy(watched(changes), SCOPE, waits, now=NOW)
        policies.append(replace(found, name=name))
    worst = list_worst_policies(policies)

    assert "".join(one.name for one in worst) == "fghiedbca"
    assert [is_held(one) for one in worst] == [True] * 4 + [False] * 5
