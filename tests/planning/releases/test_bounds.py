"""What others write of releases, gates, health and schedules has an end, and nothing is lost."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
import pytest
from msgspec.structs import replace

from rollout_operator.model import names
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import LabelSelector
from rollout_operator.releases.model.plan import FluxObject, FluxReference, FluxWrite
from rollout_operator.releases.model.releases import (
    CLUSTER_SCHEDULE,
    SCHEDULE,
    GateOrigin,
    OwnerReference,
    RefusedRelease,
    Release,
    ReleaseGate,
    ScheduleObject,
)
from rollout_operator.releases.planning.bake import MOST_FAILED
from rollout_operator.releases.planning.candidates import assess_gates
from rollout_operator.releases.planning.flux import RELEASED, name_manager, plan_flux_writes
from rollout_operator.releases.planning.releases import plan_release
from rollout_operator.releases.planning.schedules import (
    MOST_LISTED,
    MOST_SCHEDULES,
    KnownSchedules,
    ScheduleReading,
    list_by_gate,
    list_by_rollout,
    list_holds,
    read_schedule,
    render_schedule_status,
)
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, START, at, check, entry, gate, head
from tests.planning.releases.schedules.schedule_builders import (
    MORNING,
    gated,
    make_gates,
    plan,
    schedule,
    snapshot,
)
from tests.planning.releases.stage import ReleaseStage

# An object of the API has 1.5 MiB, of which spec, annotations and managed fields need theirs.
MOST: Final = 1400 * 1024
LONG: Final = "x" * 1024


def measure(world: ReleaseStage) -> int:
    return len(msgspec.json.encode(world.status))


@pytest.mark.parametrize(("failing", "named", "quoted"), [(3, 3, 3), (5000, MOST_FAILED, 10)])
def test_a_bake_fails_however_many_checks_do(failing: int, named: int, quoted: int) -> None:
    """REL-73: the first are named, the very first with their words."""
    world = ReleaseStage(latest="1.0.0", bake_time=MINUTE, checks=ALL_CHECKS)
    world.step()
    world.wait(1)
    world.checks = tuple(
        check(f"check-{number:04}", status="Unhealthy", change=0.5, error=0.5, message=LONG)
        for number in range(failing)
    )
    world.step()
    assert world.history() == "1.0.0 Failed"
    failed = world.current.failed_health_checks
    assert (len(failed), sum(one.message == LONG for one in failed)) == (named, quoted)
    assert measure(world) < MOST


def test_a_thousand_releases_of_hostile_texts() -> None:
    """RELB-22: the newest stay, as candidates as well."""
    known = tuple(
        Release(tag=f"1.0.{number}-{'a' * 100}", digest=LONG, version=LONG, revision=LONG)
        for number in range(1000)
    )
    world = ReleaseStage(known="0.0.1")
    world.set_status(available_releases=known, history=(entry("0.0.1", "Deploying"),))
    world.latest = None
    world.step()
    assert 50 < len(world.status.available_releases) < 100
    assert world.status.available_releases[-1] == known[-1]
    assert world.status.available_releases_count == len(world.status.available_releases)
    assert measure(world) < MOST


def test_a_thousand_releases_of_usual_texts_stay() -> None:
    """RELB-22."""
    known = tuple(
        Release(tag=f"1.0.{number}", digest="sha256:" + "0" * 64, version="1.0", revision="a" * 40)
        for number in range(1000)
    )
    world = ReleaseStage(known="0.0.1")
    world.set_status(available_releases=known, history=(entry("1.0.999"),))
    world.step("1.0.999")
    world.set_spec(least_available=1000)
    world.step()
    assert len(world.status.available_releases) == 1000


def test_thousands_of_gates_and_of_versions_that_they_allow() -> None:
    """REL-50: all of them count; in the status the closed ones go before the others."""
    world = ReleaseStage(known="1.0.0 2.0.0")
    world.set_status(history=(entry("1.0.0"),))
    allowed = " ".join(["2.0.0", *(f"9.{number}.0" for number in range(1000))])
    world.gates = tuple(gate(f"gate-{number:04}", allowed=allowed) for number in range(300))
    world.step()
    assert world.tags() == "2.0.0 1.0.0"
    world.gates = (
        *world.gates,
        gate("z-closed", passing=False),
        gate("a" * 60, allowed=LONG * 500),
    )
    world.step("3.0.0")
    assert world.tags() == "2.0.0 1.0.0"
    shown = world.status.gates
    assert [one.name for one in shown if not one.passing] == ["z-closed"]
    assert (shown[1].name, len(shown[1].allowed_versions or ())) == ("gate-0000", 20)
    assert shown[1].message is not None
    assert shown[1].message.endswith("it allows 1001 versions, of which the first are shown")
    assert measure(world) < MOST


class CountedTags(tuple[str, ...]):
    """Tags that count how often they are gone through."""

    turns = 0

    def __iter__(self) -> Iterator[str]:
        self.turns += 1
        return super().__iter__()

    def __contains__(self, key: object) -> bool:
        self.turns += 1
        return super().__contains__(key)


def test_what_a_gate_names_is_gone_through_once_for_all_candidates() -> None:
    """REL-50: a hundred thousand for each of a thousand kept a process busy for seconds."""
    counted = CountedTags(["1.0.7", "9.9.9"])
    named = replace(gate(), allowed_versions=counted)
    known = tuple(Release(tag=f"1.0.{number}") for number in range(1000))
    verdict = assess_gates(known, [named])
    assert [one.tag for one in verdict.passed] == ["1.0.7"]
    assert counted.turns <= 3


def test_a_history_of_any_limit() -> None:
    """REL-06: entries that are too long together push the oldest ones out."""
    world = ReleaseStage(history_limit=2**31 - 1)
    past = tuple(
        entry(f"1.{number}.0", message=LONG * 4, id=number) for number in range(1000, 0, -1)
    )
    world.set_status(history=past)
    world.step("2.0.0")
    assert world.tags().startswith("2.0.0 1.1000.0 1.999.0")
    assert 50 < len(world.status.history) < 100
    assert measure(world) < MOST


def test_no_version_is_forgotten_while_a_rollout_is_refused() -> None:
    """REL-84: for how long they are kept stands in the spec that cannot be read."""
    world = ReleaseStage()
    old = tuple(Release(tag=f"1.{minor}.0", created=at(-60 * 24 * 60)) for minor in range(40))
    world.set_status(available_releases=old)
    refused = RefusedRelease(
        head=world.rollout.head, problem="no", status=world.status, announced=world.rollout
    )
    plan = plan_release(replace(world.snapshot(), rollout=refused))
    assert plan.status.available_releases == old


# Schedules: their bounds, and which of them a gate or Rollout concerns


OWNER = OwnerReference(
    api_version="kuberik.com/v1alpha1", kind=SCHEDULE, name="nights", uid=Uid("1")
)


def test_names_and_labels_have_room() -> None:
    """RELB-31 (h): 253 characters for a name, 63 for a label."""
    long = "r" * 250
    known = snapshot(schedule("s" * 80), gated(long + "a"), gated(long + "b"))
    gates = make_gates(known)
    assert len({one.head.name for one in gates}) == 2
    assert all(len(one.head.name) <= 253 for one in gates)
    assert all(len(text) <= 63 for one in gates for text in one.origin.labels.values())
    assert plan(replace(known, gates=gates)).actions == ()


@pytest.mark.parametrize(
    ("labelled", "label_kind", "kind", "concerned"),
    [
        ("freeze", CLUSTER_SCHEDULE, SCHEDULE, ["nights"]),
        ("freeze", CLUSTER_SCHEDULE, CLUSTER_SCHEDULE, ["freeze"]),
        ("nights", SCHEDULE, SCHEDULE, ["nights"]),
    ],
)
def test_a_gate_concerns_those_that_it_names(
    labelled: str, label_kind: str, kind: str, concerned: list[str]
) -> None:
    """REL-101: its owner and its labels, each of the kind that is read, and each of them once."""
    labels = {names.SCHEDULE_NAME: labelled, names.SCHEDULE_KIND: label_kind}
    origin = GateOrigin(labels=labels, owners=(OWNER,))
    gate = ReleaseGate(head=head("gate"), rollout="app", origin=origin)
    assert list(list_by_gate(kind, gate)) == concerned


def test_a_rollout_concerns_those_that_select_it() -> None:
    """REL-101: and those that cannot say what they select."""
    web = LabelSelector(labels={"tier": "web"})
    schedules = [schedule("web", rollouts=web), schedule("invalid", rollouts=None), schedule("all")]
    selected = gated(labels={"tier": "web"})
    assert list(list_by_rollout(schedules, [selected])) == ["web", "invalid", "all"]
    assert list(list_by_rollout(schedules, [gated()])) == ["invalid", "all"]


def test_a_status_has_room_for_any_number_of_rules_and_gates() -> None:
    """REL-100: an object of 1.5 MiB at most is stored, and tenants choose names."""
    rule_names = [*(f"rule-{number}" for number in range(20_000)), "n" * 300_000]
    rules = tuple(replace(MORNING, name=name) for name in reversed(rule_names))
    rollouts = [gated(f"{'app' * 60}-{number}") for number in range(3000)]
    known = snapshot(schedule(namespace="", rules=rules), *rollouts)
    status = render_schedule_status(known, plan(known), {})

    assert len(msgspec.json.encode(status)) < 512 * 1024
    assert status.matching_rollouts == 3000
    assert len(status.managed_gates) == MOST_LISTED
    assert 1000 < len(status.active_rules) < len(rules)
    assert status.active_rules[1:3] == ("rule-19999", "rule-19998")


def test_thousands_of_schedules_make_a_pass_no_longer() -> None:
    """RELB-42: what is not read holds, since a closed schedule may be among it."""
    read: list[str] = []

    def load(schedule: ScheduleObject) -> ScheduleReading:
        read.append(schedule.head.name)
        return read_schedule(schedule, START, ZoneInfo)

    many = tuple(schedule(f"s{number}", time_zone="Atlantis") for number in range(1000))
    holds = list_holds(KnownSchedules(schedules=many), gated(labels={}), (), load)

    assert len(read) == MOST_SCHEDULES
    assert len(holds) == MOST_SCHEDULES + 1
    assert holds[-1] == "900 schedules beyond the 100 that are read"


# What a Rollout writes into objects of Flux, and as which field manager


def test_managers_of_rollouts_are_apart() -> None:
    """RELB-13: the API server takes 128 characters, and a Rollout may have 253."""
    long = ["a" * 250 + end for end in "xy"]
    names = [name_manager(one) for one in ("web", *long)]

    assert names[0] == "rollout-controller/web"
    assert [len(one) for one in names[1:]] == [128, 128]
    assert len({*names, RELEASED}) == 4


def _carry_out(values: dict[str, str], writers: dict[str, set[str]], write: FluxWrite) -> None:
    """Do what the API server does with a server-side apply to a map."""
    spec: Any = write.body.get("spec", {})
    wanted: Mapping[str, str] = spec.get("postBuild", {}).get("substitute", {})
    for name, value in wanted.items():
        if values.get(name) != value:
            assert write.is_forced or name not in writers
            writers[name] = set()
        values[name] = value
        writers.setdefault(name, set()).add(write.manager)
    for name in [one for one in writers if one not in wanted]:
        writers[name] -= {write.manager}
        if not writers[name]:
            del writers[name], values[name]


# It is at rest, an annotation goes, a variable changes hands, and all go.
@pytest.mark.parametrize("after", ["a=web b=web", "a=web", "a=api b=web", ""])
def test_no_value_ever_goes_and_plans_come_to_rest(after: str) -> None:
    """RELB-13 and RELB-15: also where each plan is cut off after its first write."""
    values, writers = {"a": "1", "b": "1", "c": "0"}, {name: {"kustomize"} for name in "abc"}
    for claims in ("a=web b=web", after):
        for _ in range(10):
            for rollout in ("web", "api"):
                item = FluxObject(
                    kind="Kustomization",
                    head=head("app"),
                    api_version="kustomize.toolkit.fluxcd.io/v1",
                    source=FluxReference(kind="OCIRepository", namespace="prod", name="app"),
                    rollouts=dict(one.split("=") for one in claims.split()),
                    values={**values},
                    writers={name: tuple(sorted(found)) for name, found in writers.items()},
                )
                for write in plan_flux_writes(rollout, "2", [item]).writes[:1]:
                    _carry_out(values, writers, write)
                assert values.keys() == {"a", "b", "c"}

    assert values == {"a": "2", "b": "2", "c": "0"}
    claims_after = dict(one.split("=") for one in after.split())
    # What has the right value already is not taken over: it would be a write for nothing.
    for name, holding in writers.items():
        owner = name_manager(claims_after.get(name, ""))
        assert holding <= {owner, RELEASED, "kustomize"}
