"""Several namespaces as one description, and one of them out of it (MAZ-60)."""

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.model.description import Description, OperatorDescription, PolicyDescription
from rollout_operator.planning.describe_groups import merge_descriptions, select_namespace
from rollout_operator.planning.text import render_description
from tests.cli.described import EXAMPLE, NOW
from tests.web.status.descriptions import release, release_schedule

PROCESS: Final = OperatorDescription(version="9", is_ready=True, is_acting=True)
OWN: Final = Description(namespace="ops", now=NOW, operator=PROCESS)
READY: Final = replace(EXAMPLE, namespace="mimir", operator=PROCESS)
HELD: Final = Description(
    namespace="loki",
    now=NOW,
    operator=replace(PROCESS, is_ready=False, is_acting=False, missing=("pods watch: forbidden",)),
)
OTHER: Final = replace(READY, namespace="other")


def test_maz60_what_stands_in_a_description_says_where_it_is() -> None:
    merged = merge_descriptions(OWN, [READY, HELD, OTHER])

    assert (merged.namespace, merged.operator) == ("ops", PROCESS)
    assert [one.title for one in merged.groups] == ["mimir/ingester", "other/ingester"]
    assert [one.title for one in merged.budgets] == ["mimir/ingester", "other/ingester"]
    assert [(one.name, one.is_ready) for one in merged.namespaces] == [
        ("loki", False),
        ("mimir", True),
        ("other", True),
    ]


def test_maz60_the_text_names_namespaces_and_what_they_lack() -> None:
    lines = list(render_description(merge_descriptions(OWN, [READY, HELD])))

    assert "namespace loki: not ready: pods watch: forbidden" in lines
    assert "namespace mimir: ready" in lines
    assert any(line.startswith('group "mimir/ingester": ') for line in lines)


def test_one_namespace_is_taken_out_with_what_the_process_is_to_it() -> None:
    merged = merge_descriptions(OWN, [READY, HELD])

    held, ready = select_namespace(merged, "loki"), select_namespace(merged, "mimir")

    assert held is not None
    assert held.operator == HELD.operator
    assert (held.groups, held.namespaces) == ((), ())
    assert ready is not None
    assert ready.operator == PROCESS
    assert [group.name for group in ready.groups] == ["ingester"]
    assert select_namespace(merged, "elsewhere") is None


def test_the_description_of_one_namespace_stays_as_it_is() -> None:
    assert select_namespace(EXAMPLE, "elsewhere") is EXAMPLE
    assert [group.title for group in EXAMPLE.groups] == ["ingester"]


def test_policies_are_merged_and_taken_out_where_any_namespace_obeys_them() -> None:
    policies = tuple(
        PolicyDescription(name="db", namespace=name, phase="Idle", headline="")
        for name in ("mimir", "other")
    )
    obeying = [
        replace(one, policies=(policy,))
        for one, policy in zip((READY, OTHER), policies, strict=True)
    ]
    merged = merge_descriptions(OWN, [HELD, *obeying])

    assert merged.policies == policies
    chosen = select_namespace(merged, "other")
    assert chosen is not None
    assert chosen.policies == policies[1:]
    assert merge_descriptions(OWN, [HELD, READY]).policies is UNSET


def test_releases_are_merged_and_what_is_of_the_cluster_stands_once() -> None:
    everywhere = replace(release_schedule(), namespace="")
    making = [
        replace(
            one,
            releases=(replace(release(), namespace=one.namespace),),
            schedules=(everywhere,),
            health_checks=(),
        )
        for one in (READY, OTHER)
    ]
    merged = merge_descriptions(OWN, [HELD, *making])

    assert [one.title for one in merged.list_releases()] == ["mimir/app", "other/app"]
    assert merged.schedules == (everywhere,)
    chosen = select_namespace(merged, "other")
    assert chosen is not None
    assert [one.title for one in chosen.list_releases()] == ["other/app"]
    assert (chosen.schedules, chosen.health_checks) == ((everywhere,), ())
    without = merge_descriptions(OWN, [HELD, READY])
    assert (without.releases, without.schedules, without.health_checks) == (UNSET,) * 3
