"""A scrape in steps: how much one step reads, and what may change between two (D-51)."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from rollout_operator.gates.metrics import GateMetrics
from rollout_operator.model.outcome import Code
from rollout_operator.telemetry.exposition import PIECE, Counter, Gauge, Histogram, Rebuilt
from rollout_operator.telemetry.metrics import WAIT_CODES, Metrics
from tests.fakes_clock import EPOCH

pytestmark = pytest.mark.thorough

GROUPS = 300
# To read a sample and write it as text takes about thirty.
CALLS_PER_SAMPLE = 40


@pytest.fixture(scope="module")
def crowded() -> Metrics:
    """Return the metrics of many groups. Only for tests that change nothing."""
    return make_metrics(GROUPS)


def make_metrics(groups: int) -> Metrics:
    metrics = Metrics()
    for number in range(groups):
        metrics.begin_group(f"group-{number}")
    return metrics


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count the calls of functions, of Python and of C, as the only item of a list."""
    calls = [0]

    def count(frame: FrameType, event: str, argument: object) -> None:
        calls[0] += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def waiting_of(text: str) -> dict[str, list[str]]:
    """Return the reasons with a one, by group."""
    found: dict[str, list[str]] = {}
    for family in text_string_to_metric_families(text):
        if family.name == "rollout_operator_group_waiting":
            for sample in family.samples:
                reasons = found.setdefault(sample.labels["rollout_group"], [])
                reasons += [sample.labels["reason"]] * int(sample.value)
    return found


@pytest.mark.thorough
def test_no_step_of_a_scrape_of_many_groups_is_long(crowded: Metrics) -> None:
    """D-51: by the work that is done, not by the clock; the whole is many steps."""
    steps, longest, lines = 0, 0, 0
    with counted_calls() as calls:
        before = calls[0]
        for piece in crowded.render():
            longest = max(longest, calls[0] - before)
            lines = max(lines, piece.count(b"\n"))
            steps += 1
            before = calls[0]
        total = calls[0]

    assert steps > total // (PIECE * CALLS_PER_SAMPLE)
    assert longest < (PIECE + len(WAIT_CODES)) * CALLS_PER_SAMPLE
    assert total > 20 * longest
    assert lines <= PIECE + len(WAIT_CODES) + 2


@pytest.mark.thorough
def test_pieces_make_the_page_that_one_step_would(crowded: Metrics) -> None:
    """SEED-063: each family once and together, under one head, with all its series."""
    text = b"".join(crowded.render()).decode()
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]

    assert len(heads) == len(set(heads))
    assert text.count("rollout_operator_group_waiting{") == GROUPS * len(WAIT_CODES)
    assert text.count("rollout_operator_group_reconcile_duration_seconds_count{") == GROUPS
    for family in text_string_to_metric_families(text):
        assert family.type != "unknown", f"{family.name} is apart from its head"


def test_every_piece_is_whole_lines(crowded: Metrics) -> None:
    for piece in crowded.render():
        assert piece.endswith(b"\n")
        assert not piece.startswith(b"\n")


def test_groups_that_go_between_two_steps_do_not_break_the_page() -> None:
    """DEP-67: they are in it or not; the next page is without them."""
    metrics, pieces = make_metrics(100), []
    gates = GateMetrics(metrics.registry)
    for number in range(PIECE + 1):
        gates.show_group(f"{number}", is_blocked=False, is_misconfigured=False)
    for number, piece in enumerate(metrics.render()):
        pieces.append(piece)
        metrics.forget_group(f"group-{number}")
        metrics.begin_group(f"late-{number}")
        gates.show_group(f"new-{number}", is_blocked=False, is_misconfigured=False)
    page, left = b"".join(pieces).decode(), b"".join(metrics.render()).decode()
    families = {family.name for family in text_string_to_metric_families(page)}
    assert "rollout_operator_build_info" in families
    assert (len(pieces) < 100, "p-99" in page, 'p-0"' in left, 'late-0"' in left) == (1, 1, 0, 1)


def test_what_a_group_waits_for_is_of_one_moment() -> None:
    """W-31: a page never says of a group that nothing holds it, or two things that never did."""
    metrics = make_metrics(200)
    reasons = (Code.PAUSED, Code.BUDGET_USED)
    pieces = []
    for number in range(200):
        metrics.show_blockers(f"group-{number}", [reasons[0]], EPOCH)
    for turn, piece in enumerate(metrics.render(), start=1):
        pieces.append(piece)
        for number in range(200):
            metrics.show_blockers(f"group-{number}", [reasons[turn % 2]], EPOCH)
    held = waiting_of(b"".join(pieces).decode())

    assert {one for found in held.values() for one in found} == {*reasons}
    assert {len(found) for found in held.values()} == {1}


@pytest.mark.parametrize("series", [0, 1, PIECE, PIECE + 1, 3 * PIECE])
def test_a_family_is_cut_anywhere(series: int) -> None:
    """D-51."""
    gauge = Gauge("probe", "A probe.", ("name",), registry=CollectorRegistry())
    for number in range(series):
        gauge.labels(f"{number}")
    rebuilt = Rebuilt("probe", "A probe.", ("a",), lambda: (((f"{n}",), n) for n in range(series)))

    for pieces in ([*gauge.collect()], [*rebuilt.collect()]):
        assert len(pieces) == max(1, -(-series // PIECE))
        assert sum(len(piece.samples) for piece in pieces) == series


def test_a_histogram_is_of_one_moment() -> None:
    """Its sum is that of the observations that it counts, where a step ends between them too."""
    histogram = Histogram("probe", "A probe.", ("x",), registry=None, buckets=range(PIECE - 1))
    series, values = histogram.labels("y"), {}
    for piece in histogram.collect():
        values.update({sample.name: sample.value for sample in piece.samples})
        series.observe(1)

    assert values["probe_count"] == values["probe_sum"] == 0


def test_each_kind_is_collected_as_the_library_does() -> None:
    registry = CollectorRegistry()
    Counter("a", "A.", registry=registry).inc(2)
    Gauge("d_total", "D.", registry=registry).set(3)
    Gauge("b", "B.", registry=registry).set_function(lambda: 7)
    Histogram("c", "C.", ("x",), registry=registry, buckets=(1, 2)).labels("y").observe(1.5)

    assert registry.get_sample_value("a_total") == 2
    assert registry.get_sample_value("b") == 7
    assert registry.get_sample_value("d_total") == 3
    assert registry.get_sample_value("c_bucket", {"x": "y", "le": "1.0"}) == 0
    assert registry.get_sample_value("c_bucket", {"x": "y", "le": "2.0"}) == 1
    assert registry.get_sample_value("c_sum", {"x": "y"}) == 1.5
