"""Questions whether a pod may go under a budget, and what is answered.

The pods of a zone are letters as in `tests.builders`, those that are ready for an hour; `u` is one
that cannot be read.
"""

from datetime import timedelta
from typing import Final

from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Newcomers, Pod, Zone
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets import BudgetSnapshot, Refusal, assess_disruption
from tests.builders import NOW, pod, sts_uid, unreadable, zone
from tests.planning.tables import LEFT_FOR, read_arguments, read_group

PATTERN: Final = r"(?:[a-z\-]+-)?zone-[a-z]-([0-9]+)"
LONG_READY: Final = timedelta(hours=1)


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


def member(letter: str, ordinal: int, state: str = "l", **changes: object) -> Pod:
    since = NOW - LONG_READY if state == "l" else None
    return pod(letter, ordinal, state, **{"ready_since": since, **changes})


def ingesters(letter: str, states: str = "lll", **changes: object) -> Zone:
    """Return a zone with these pods, which its status counts as ready."""
    listed = list(enumerate(states))
    return structs.replace(
        zone(letter, "-" * len(states), **changes),  # type: ignore[arg-type]  # any field
        pods=tuple(member(letter, at, state) for at, state in listed if state not in "-u"),
        unreadable_pods=tuple(
            unreadable("Pod", f"zone-{letter}-{at}", owner=letter)
            for at, state in listed
            if state == "u"
        ),
    )


def read_question(text: str) -> BudgetSnapshot:
    """Return a question such as `a-0; b Nll replicas=4; partitions 2; granted c-0; rollout`.

    First the pod, then zones by their letter, whole ones where they are not given, the budget
    (`budget` of zones, or `partitions`), and what else is not as usual, as `read_group` has it.
    `left` zones left while they were short, `only` names the zones there are, `upscaled` ones were
    scaled from three to five and `stray a-3=L` is a pod of another owner.
    """
    going, *statements = text.split("; ")
    zones = {letter: ingesters(letter) for letter in "abc"}
    changes: dict[str, object] = {}
    rule, rest = budget(), []
    for statement in statements:
        (word, *plain), named = read_arguments(statement)
        match word:
            case "a" | "b" | "c":
                zones[word] = ingesters(word, *plain, **named)  # type: ignore[arg-type]  # any field
            case "left":
                zones |= {key: structs.replace(zones[key], counts_for=LEFT_FOR) for key in plain}
            case "upscaled":
                zones |= {key: _upscale(zones[key]) for key in plain}
            case "stray":
                [(name, state)] = named.items()
                one = member(name[0], int(name[2:]), f"{state}", owner_uid=Uid("stranger"))
                known = zones[name[0]]
                zones[name[0]] = structs.replace(known, pods=(*known.pods, one))
            case "budget" | "partitions":
                if "delay" in named:
                    named["delay"] = timedelta(seconds=int(str(named["delay"])))
                make = budget if word == "budget" else by_partition
                rule = make(*map(int, plain), **named)  # type: ignore[arg-type]  # any field
            case "only":
                zones = {letter: zones[letter] for letter in plain}
            case "rollout":
                changes["engine"] = DisruptionSource.ROLLOUT
            case "override":
                changes["override"] = int(plain[0])
            case "owner":
                changes["owner"] = Uid(plain[0])
            case _:
                rest.append(statement)
    seen = read_group("; ".join(rest), *zones.values())
    letter, _, ordinal = going.partition("-")
    pods = [one for zone in seen.zones for one in zone.pods if one.uid == f"uid-{going}"]
    fields: dict[str, object] = {
        "budget": rule,
        "pod": pods[0] if pods else member(letter, int(ordinal)),
        "owner": sts_uid(letter),
        **{key: getattr(seen, key) for key in _SEEN},
        **changes,
    }
    return BudgetSnapshot(**fields)  # type: ignore[arg-type]  # a case changes any field


_SEEN: Final = ("zones", "now", "deletions", "downscale", "snapshot_age", "unreadable")


def _upscale(base: Zone) -> Zone:
    """Return a zone of three that was scaled to five; its last two pods never became ready."""
    uids = frozenset(Uid(f"uid-{base.sts.name[-1]}-{ordinal}") for ordinal in (3, 4))
    seen = Newcomers(used=3, generation=base.sts.generation, pods=uids)
    return structs.replace(base, sts=replace(base.sts, ready_replicas=3), newcomers=seen)


_COUNTED: Final = {Code.DISRUPTION_BUDGET_USED, Code.ZONE_LEFT_SHORT}


def answer(case: BudgetSnapshot) -> str:
    """Return `allow`, or the status with who is down, or else the code."""
    refusal = assess_disruption(case)
    return "allow" if refusal is None else show_refusal(refusal)


def show_refusal(refusal: Refusal) -> str:
    if refusal.reason.code not in _COUNTED:
        return f"{refusal.status} {refusal.reason.code}"
    return f"{refusal.status} {refusal.reason.text.split(' (')[0].split(';')[0]}"
