"""The series of MultiAZRollouts, of one namespace and of several (MAZ-55)."""

from datetime import UTC, datetime, timedelta
from typing import Final

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from rollout_operator.model.policy import PolicySetStatus, PolicyStatus, PolicyZoneStatus
from rollout_operator.telemetry.extra import PolicyMetrics
from rollout_operator.telemetry.metrics import Metrics

REASONS: Final = ("Conflict", "MultipleZonesUnavailable")
SPECIFIED: Final = {
    "info": {"namespace", "name", "phase"},
    "pods": {"namespace", "name", "zone", "state"},
    "batches_total": {"namespace", "name", "zone"},
    "batch_duration_seconds_count": {"namespace", "name"},
    "pods_deleted_total": {"namespace", "name", "zone"},
    "blocked": {"namespace", "name", "reason"},
    "last_completed_timestamp_seconds": {"namespace", "name"},
}


def zone(name: str, *names: str, outdated: int = 0) -> PolicyZoneStatus:
    sets = tuple(
        PolicySetStatus(name=one, replicas=3, updated_pods=3 - outdated, outdated_pods=outdated)
        for one in names
    )
    return PolicyZoneStatus(name=name, stateful_sets=sets)


def status(*zones: PolicyZoneStatus, phase: str = "Progressing") -> PolicyStatus:
    return PolicyStatus(phase=phase, zones=zones)


def show_all(metrics: PolicyMetrics, name: str = "db") -> None:
    metrics.show(name, status(zone("a", "db-a", outdated=2), zone("b", "db-b")), ["Conflict"])
    metrics.count_batch(name, "a")
    metrics.count_delete(name, "a")
    metrics.record_duration(name, timedelta(seconds=20))
    metrics.show_completion(name, datetime(2026, 1, 1, tzinfo=UTC))


def render(metrics: Metrics) -> list[str]:
    text = b"".join(metrics.render()).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [line for line in lines if line.startswith("rollout_operator_multiaz_")]


def test_maz55_names_and_labels_are_those_of_the_page() -> None:
    metrics = Metrics()
    show_all(PolicyMetrics(metrics.registry, "prod", REASONS))

    families = read_text(b"".join(metrics.render()).decode())
    samples = [sample for family in families for sample in family.samples]
    found = {sample.name: {*sample.labels} for sample in samples}

    own = {
        name.removeprefix("rollout_operator_multiaz_"): labels
        for name, labels in found.items()
        if name.startswith("rollout_operator_multiaz_")
    }
    assert {name: own[name] for name in SPECIFIED} == SPECIFIED
    rest = {"batch_duration_seconds_bucket", "batch_duration_seconds_sum"}
    assert {*own} == {*SPECIFIED} | rest


def test_maz55_what_each_series_says() -> None:
    metrics = Metrics()
    show_all(PolicyMetrics(metrics.registry, "prod", REASONS))

    lines = [line.removeprefix("rollout_operator_multiaz_") for line in render(metrics)]

    own = 'namespace="prod",name="db"'
    for line in (
        f'info{{{own},phase="Progressing"}} 1',
        f'pods{{{own},zone="a",state="updated"}} 1',
        f'pods{{{own},zone="a",state="outdated"}} 2',
        f'pods{{{own},zone="a",state="unavailable"}} 0',
        f'pods{{{own},zone="b",state="total"}} 3',
        f'blocked{{{own},reason="Conflict"}} 1',
        f'blocked{{{own},reason="MultipleZonesUnavailable"}} 0',
        f'batches_total{{{own},zone="a"}} 1',
        f'batches_total{{{own},zone="b"}} 0',
        f'pods_deleted_total{{{own},zone="a"}} 1',
        f'pods_deleted_total{{{own},zone="b"}} 0',
        f"batch_duration_seconds_sum{{{own}}} 20",
        f"last_completed_timestamp_seconds{{{own}}} 1767225600",
    ):
        assert line in lines


def test_maz55_one_namespace_and_several_give_the_same_series_each_once() -> None:
    """The label of the page is the one that distinguishes registries of namespaces."""
    alone, process = Metrics(), Metrics()
    show_all(PolicyMetrics(alone.registry, "prod", REASONS))
    for namespace in ("prod", "test"):
        show_all(PolicyMetrics(process.for_namespace(namespace).registry, namespace, REASONS))

    own, merged = render(alone), render(process)

    assert [line for line in merged if 'namespace="prod"' in line] == own
    assert [line.replace('"test"', '"prod"') for line in merged if "test" in line] == own
    names = [line.rsplit(" ", 1)[0] for line in merged]
    assert len(names) == len({*names}) == 2 * len(own)
    text = b"".join(process.render()).decode()
    heads = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len({*heads}), "each family is one block"
    assert [*read_text(text)]
    opened = b"".join(process.render_openmetrics()).decode()
    assert [*read_openmetrics(opened)]  # type: ignore[no-untyped-call]  # the library's


def test_maz55_all_series_go_with_the_policy() -> None:
    metrics = Metrics()
    policies = PolicyMetrics(metrics.registry, "prod", REASONS)
    show_all(policies)
    show_all(policies, "other")

    policies.forget("db")
    policies.forget("db")

    assert {'name="other"' in line for line in render(metrics)} == {True}
    policies.forget("other")
    assert render(metrics) == []


def test_what_is_over_leaves_no_series() -> None:
    """Another phase, a zone that is gone, a reason that holds no more."""
    metrics = Metrics()
    policies = PolicyMetrics(metrics.registry, "prod", REASONS)
    policies.show("db", status(zone("a", "db-a"), zone("b", "db-b")), ["Conflict", "Odd"])
    policies.show("db", status(zone("a", "db-a"), phase="Idle"), [])

    lines = [line for line in render(metrics) if "info{" in line or "pods{" in line]

    assert len(lines) == 1 + 4
    assert 'phase="Idle"' in lines[0]
    assert not [line for line in render(metrics) if "blocked{" in line and line.endswith(" 1")]


def test_two_zones_of_one_name_are_one_series() -> None:
    """A StatefulSet that is a zone of its own stays alone, even where another zone has its name."""
    metrics = Metrics()
    policies = PolicyMetrics(metrics.registry, "prod", REASONS)
    policies.show("db", status(zone("a", "db-a"), zone("a", "a")), [])

    (line,) = [line for line in render(metrics) if 'state="total"' in line]
    assert line.endswith(" 6")


def test_without_policies_there_is_no_family_of_them() -> None:
    assert "multiaz" not in b"".join(Metrics().render()).decode()


def test_sec13_series_of_zones_go_with_them() -> None:
    """A tenant may name others as often as a StatefulSet can be labelled."""
    metrics = Metrics()
    own = PolicyMetrics(metrics.registry, "prod", REASONS)
    own.show("db", status(zone("last", "db-a")), [])
    expected = len(render(metrics))
    for number in range(100):
        own.show("db", status(zone(f"z{number}", "db-a")), [])
        own.count_batch("db", f"z{number}")
        own.count_delete("db", f"z{number - 1}")
    own.show("db", status(zone("last", "db-a")), [])

    assert len(render(metrics)) == expected
    assert not [line for line in render(metrics) if 'zone="z' in line]
