"""Short builders for decisions on disruption: zones `ingester-zone-a`, `-b`, `-c`, and one pod.

The pods of a zone are one letter each, by ordinal: `r` ready, `F` failed, `C` crash looping, `t`
terminating, `u` unreadable, `-` absent. What `spec` and `status` want is the number of letters,
where nothing else is given.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Deletion, Pod, Underway, Unreadable, Zone
from rollout_operator.planning.budgets import BudgetSnapshot, assess_disruption
from tests.builders import NOW, pod, sts, sts_uid, unreadable
from tests.planning.tables import LEFT_FOR, change_pods, read_arguments

PATTERN: Final = r"[a-z\-]+-zone-[a-z]-([0-9]+)"
LONG_READY: Final = timedelta(hours=1)
_TROUBLES: Final = {"F": "Failed", "C": "CrashLoopBackOff", "t": "terminating"}


def budget(max_unavailable: int = 1, **changes: object) -> Budget:
    """Return budget `ingester`, in zone mode."""
    plain = Budget(
        namespace="test",
        name="ingester",
        uid=Uid("uid-budget"),
        resource_version="1",
        generation=1,
        selector={"name": "ingester"},
        max_unavailable=max_unavailable,
    )
    return replace(plain, **changes)


def by_partition(max_unavailable: int = 1, **changes: object) -> Budget:
    """Return budget `ingester` that takes the ordinal for the partition."""
    return budget(max_unavailable, **{"pattern": PATTERN, **changes})


def name_of(letter: str, ordinal: int) -> str:
    return f"ingester-zone-{letter}-{ordinal}"


def uid_of(letter: str, ordinal: int) -> Uid:
    return Uid(f"uid-{letter}-{ordinal}")


def member(letter: str, ordinal: int, state: str = "r", **changes: object) -> Pod:
    """Return pod `ingester-zone-<letter>-<ordinal>`."""
    plain = replace(
        pod(letter, ordinal),
        name=name_of(letter, ordinal),
        phase="Failed" if state == "F" else "Running",
        is_terminating=state == "t",
        is_ready=state == "r",
        ready_since=NOW - LONG_READY if state == "r" else None,
        why_not_ready=_TROUBLES.get(state, ""),
    )
    return replace(plain, **changes)


def lost_member(letter: str, ordinal: int) -> Unreadable:
    return Unreadable(
        kind="Pod",
        namespace="test",
        name=name_of(letter, ordinal),
        uid=uid_of(letter, ordinal),
        resource_version="1",
        owner_uid=sts_uid(letter),
        error="status.phase: expected str, got int: 1",
    )


def ingesters(letter: str, states: str = "rrr", **changes: object) -> Zone:
    """Return a zone with these pods."""
    listed = list(enumerate(states))
    return Zone(
        sts=replace(sts(letter, len(states), name=f"ingester-zone-{letter}"), **changes),
        pods=tuple(member(letter, at, state) for at, state in listed if state not in "-u"),
        unreadable_pods=tuple(lost_member(letter, at) for at, state in listed if state == "u"),
    )


def snapshot(
    going: str = "a-0", *zones: Zone, rule: Budget | None = None, **changes: object
) -> BudgetSnapshot:
    """Return the question whether a pod, such as `a-0`, may go; zones not given are whole."""
    given = {zone.sts.name[-1]: zone for zone in zones}
    known = tuple(given.get(letter) or ingesters(letter) for letter in "abc")
    letter, _, ordinal = going.partition("-")
    found = [one for zone in known for one in zone.pods if one.uid == uid_of(letter, int(ordinal))]
    fields: dict[str, object] = {
        "budget": budget() if rule is None else rule,
        "pod": found[0] if found else member(letter, int(ordinal)),
        "owner": sts_uid(letter),
        "zones": known,
        "now": NOW,
        "deletions": {},
        **changes,
    }
    return BudgetSnapshot(**fields)  # type: ignore[arg-type]  # a case changes any field


def read_snapshot(text: str) -> BudgetSnapshot:
    """Return a question such as `a-0; b Frr replicas=4; partitions 2; granted c-0; rollout`.

    First the pod, then zones by their letter, the budget (`budget` of zones, or `partitions`), and
    what else is not as usual; `left` zones left while they were short, `only` names the zones there
    are. A table gives any field.
    """
    going, *statements = text.split("; ")
    zones = {letter: ingesters(letter) for letter in "abc"}
    changes: dict[str, object] = {}
    deletions: dict[Uid, Deletion] = {}
    rule: Budget | None = None
    for statement in statements:
        (word, *plain), named = read_arguments(statement)
        match word:
            case "a" | "b" | "c":
                zones[word] = ingesters(word, *plain, **named)  # type: ignore[arg-type]  # any field
            case "left":
                zones |= {key: replace(zones[key], counts_for=LEFT_FOR) for key in plain}
            case "pod":
                names = [f"ingester-zone-{name}" for name in plain]
                zones = {key: change_pods(one, names, named) for key, one in zones.items()}
            case "budget" | "partitions":
                if "delay" in named:
                    named["delay"] = timedelta(seconds=int(str(named["delay"])))
                make = budget if word == "budget" else by_partition
                rule = make(*map(int, plain), **named)  # type: ignore[arg-type]  # any field
            case "only":
                zones = {letter: zones[letter] for letter in plain}
                changes["zones"] = tuple(zones.values())
            case "rollout":
                changes["engine"] = DisruptionSource.ROLLOUT
            case "override":
                changes["override"] = int(plain[0])
            case "stale":
                changes["snapshot_age"] = timedelta(seconds=int(plain[0]))
            case "owner":
                changes["owner"] = Uid(plain[0])
            case "unreadable":
                changes["unreadable"] = tuple(unreadable("StatefulSet", name) for name in plain)
            case "downscale":
                downscale = Underway(zone="ingester-zone-b", replicas_from=3, replicas_to=2)
                changes["downscale"] = downscale
            case _:
                deletions.update({Uid(f"uid-{pod}"): Deletion(word) for pod in plain})
    return snapshot(going, *zones.values(), rule=rule, deletions=deletions, **changes)


def granted(*pods: str) -> Mapping[Uid, Deletion]:
    """Return that these pods, such as `a-0`, may go."""
    return {Uid(f"uid-{one}"): Deletion.GRANTED for one in pods}


def answer(case: BudgetSnapshot) -> str:
    """Return `allow`, or the status and the text of the refusal up to the names."""
    refusal = assess_disruption(case)
    if refusal is None:
        return "allow"
    return f"{refusal.status} {refusal.reason.text.split(' (')[0].split(';')[0]}"


def render_refusal(case: BudgetSnapshot) -> list[str]:
    """Return the whole text of a refusal, and when time alone may change it."""
    refusal = assess_disruption(case)
    if refusal is None:
        return ["allow"]
    wait = refusal.requeue_after
    return [refusal.reason.text, *([] if wait is None else [f"again in {wait.total_seconds():g}s"])]
