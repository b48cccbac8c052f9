"""The benchmarks run, measure what they say, and never fail for being slow (D-64).

Sizes are tiny here: whether a figure is good is for `python -m benchmarks` to say, not for a test.
"""

import math
from collections.abc import Callable, Mapping

import msgspec
import pytest

from benchmarks.__main__ import BENCHMARKS, main

pytestmark = pytest.mark.thorough

Figures = Mapping[str, float]
SOME = (1e-9, math.inf)
ONE_OR_MORE = (1, math.inf)


# Runs


class Smoke(msgspec.Struct, frozen=True, kw_only=True):
    """What a tiny run of a benchmark prints."""

    name: str
    most: Figures = {}
    """Targets that are upper limits; `least`: those that are lower ones."""
    least: Figures = {}
    figures: Mapping[str, float | tuple[float, float]] = {}
    """Figures that the size determines, or a range of them."""
    relations: Callable[[Figures], bool] = lambda figures: True


SYNTHETIC = {
    "D-51: memory of the process and of the cache": Smoke(
        name="memory",
        most={
            "rss_6_pods_idle_mib": 100,
            "rss_6_pods_webhooks_idle_mib": 100,
            "rss_60_pods_idle_mib": 120,
            "cache_bytes_per_pod": 4096,
        },
    ),
    "D-51: stalls while the cache is filled": Smoke(
        name="sync", most={"uvloop_list_stall_work_ms": 25, "asyncio_relist_stall_work_ms": 25}
    ),
    "D-64: cost of an event against its floor": Smoke(name="events"),
    "D-64: cost of a decision": Smoke(name="plans"),
    "D-65: many groups due at once, default limits": Smoke(
        name="crowd", most={"limited_to_unlimited": 1.1}
    ),
    "D-51: cost of a rollout that a budget holds back": Smoke(
        name="held", most={"zone_growth": 1.5, "partition_growth": 1.5}
    ),
    "LI-11: requests while nothing changes, with webhooks and without": Smoke(
        name="scaling_idle",
        most={"plain_requests_per_minute": 6},
        figures={
            "plain_requests_per_minute": (1e-9, 6),
            "webhooks_requests_per_minute": (1e-9, 6),
            "plain_writes_per_minute": 0,
            "webhooks_writes_per_minute": 0,
            "webhooks_watches_per_minute": SOME,
        },
    ),
}
SLOW = {
    "Rollouts at rest: no write, no look-up; against a process without releases": Smoke(
        name="releases",
        most={"writes": 0, "look_ups": 0},
        figures={
            "known": 3,
            "writes": 0,
            "look_ups": 0,
            "rss_off_mib": SOME,
            "memory_ratio": SOME,
            "cpu_ratio": SOME,
        },
    ),
    "D-53: reviews, saturated and at a pace, against a bare server; the API is not called": Smoke(
        name="reviews",
        most={
            f"{kind}_{name}": most
            for kind in ("object", "scale")
            for name, most in (("cost", 4), ("paced_p99_ms", 5))
        },
        least={
            f"{kind}_{name}": least
            for kind in ("object", "scale")
            for name, least in (("per_s", 2_500), ("share_of_bare", 0.25))
        },
        figures={
            f"{kind}_{name}": value
            for kind in ("object", "scale")
            for name, value in (
                ("right", 1),
                ("paced_right", 1),
                ("paced_api_reads", 0),
                ("cpu_us", SOME),
                ("bare_cpu_us", SOME),
            )
        },
    ),
    "D-50, D-53: silent connections, with a handshake and without, and new ones that send": Smoke(
        name="connections",
        most={"greeted_growth_mib": 64, "new_cpu_us": 1_500},
        least={"new_per_s": 500},
        figures={
            "plain_opened": 40,
            "greeted_opened": 40,
            "plain_right": 1,
            "greeted_right": 1,
            "new_right": 1,
            "plain_asked": (20, math.inf),
        },
    ),
    "D-75: live pages beside reviews, while reasons change": Smoke(
        name="watchers",
        most={"slower": 1.1},
        figures={
            "right": 1,
            "watched_right": 1,
            "slower": SOME,
            "news_per_page": ONE_OR_MORE,
            "pages": 5,
        },
    ),
    "D-50, D-68: hostile bodies, and what honest reviews feel of them": Smoke(
        name="hostile",
        most={"growth_mib": 64, "stall_ms": 250},
        figures={
            "answered": 1,
            "small_right": 1,
            "small_slower": SOME,
            "growth_mib": (-math.inf, 63.99),
        },
    ),
    "PREP-20: each pod is called once, and the API server has little to do": Smoke(
        name="prepare",
        most={"in_flight": 32, "p99_ms": 600},
        figures={
            "allowed": 1,
            "calls_per_pod_least": 1,
            "calls_per_pod_most": 1,
            "in_flight": 3,
            "p50_ms": (50, math.inf),
            "floor_ms": 50,
            "requests_list_statefulsets": 1,
            "requests_list_pods": 1,
        },
    ),
    "D-55: evictions refused under a budget, beside many pods, and out of scope": Smoke(
        name="evictions",
        most={"refused_cpu_us": 1_000, "unselected_cpu_us": 1_000, "growth": 1.25},
        least={"refused_per_s": 300, "unselected_per_s": 300},
        figures={
            "refused_right": 1,
            "unselected_right": 1,
            "many_right": 1,
            "refused_cpu_us": SOME,
            "unselected_cpu_us": SOME,
            "bare_cpu_us": SOME,
        },
    ),
}
ON_A_CONTROL_PLANE = {
    "D-52: a rollout, from the audit log": Smoke(
        name="rollout",
        figures={
            "limit_1_replaced": 3,
            "limit_1_reactions": 2,
            "limit_1_violations": 0,
            "limit_1_delete_pods_per_pod": 1,
            "limit_1_ratio": ONE_OR_MORE,
        },
    ),
    "D-55: evictions at once: every answer is a verdict or a retryable refusal": Smoke(
        name="evictions_storm",
        most={"p99_ms": 1_000, "violations": 0},
        least={"per_s": 300},
        figures={"allowed": ONE_OR_MORE, "others": 0, "share_of_server": (1e-9, 0.999)},
        relations=lambda each: each["allowed"] + each["refused"] + each["absent"] == 40,
    ),
    "D-55: a drain, from the audit log": Smoke(
        name="evictions_drain",
        most={"ratio": 1.15},
        figures={
            "evicted": 3,
            "asked_per_pod": ONE_OR_MORE,
            "floor_s": SOME,
            "zones_short": 1,
            "unexpected": 0,
            "violations": 0,
        },
        relations=lambda each: each["wall_s"] >= each["floor_s"],
    ),
    "SCALE-12: followers, from the audit log": Smoke(
        name="scaling_up",
        most={"beside_reaction_median_ms": 100},
        figures={
            f"{shape}_{name}": value
            for shape in ("beside", "chain")
            for name, value in (("reaction_median_ms", SOME), ("requests_per_write", ONE_OR_MORE))
        },
    ),
    "MAZ-60: three namespaces, with groups by label and by policy": Smoke(
        name="namespaces",
        most={"three_rss_idle_mib": 120, "memory_ratio": 1.1, "three_policy_p99_ms": 500},
        figures={
            "three_violations": 0,
            "three_set_reads": 0,
            "three_node_lists": 2,
            "three_label_median_ms": SOME,
            "three_policy_median_ms": SOME,
        },
    ),
    "W-06: pods are called while another group rolls": Smoke(
        name="scaling_delays",
        most={"asked_median_s": 3, "rollout_delay_ms": 100},
        figures={"calls_per_pod": 1, "begun_median_s": SOME},
        relations=lambda each: each["asked_median_s"] >= each["begun_median_s"],
    ),
}
ALL = SYNTHETIC | SLOW | ON_A_CONTROL_PLANE
# What they measure is tested by itself, in `tests/system` and `tests/web`. Of the first four each
# would start a control plane of its own, and the others start a dozen of processes and saturate
# them; `evictions` does so, too, by the same means, and stays.
FOR_PROOF = {
    *("namespaces", "scaling_up", "scaling_delays", "evictions_storm"),
    *("connections", "hostile", "watchers", "reviews"),
}


def choose_marks(name: str, smoke: Smoke) -> list[pytest.MarkDecorator]:
    """Return the marks of a benchmark's test."""
    return [
        *([pytest.mark.slow] if name in SLOW else []),
        *([pytest.mark.controlplane] if name in ON_A_CONTROL_PLANE else []),
        *([pytest.mark.prove] if smoke.name in FOR_PROOF else []),
    ]


@pytest.mark.parametrize(
    "smoke",
    [pytest.param(smoke, id=name, marks=choose_marks(name, smoke)) for name, smoke in ALL.items()],
)
def test_a_benchmark_prints_one_line_of_json(smoke: Smoke) -> None:
    lines: list[str] = []

    assert main([smoke.name, "--small"], lines.append) == 0

    (line,) = lines
    assert line.endswith("}\n")
    printed = msgspec.json.decode(line)
    figures, targets = printed["figures"], printed["targets"]
    assert printed["benchmark"] == smoke.name
    assert printed["machine"]["cpus"] >= 1
    assert figures
    assert smoke.name not in {"memory", "sync"} or min(figures.values()) >= 0
    assert smoke.most == {name: targets[name]["at_most"] for name in smoke.most}
    assert smoke.least == {name: targets[name]["at_least"] for name in smoke.least}
    for name, expected in smoke.figures.items():
        low, high = expected if isinstance(expected, tuple) else (expected, expected)
        assert low <= figures[name] <= high, name
    assert smoke.relations(figures)


def test_every_benchmark_is_tried() -> None:
    assert {smoke.name for smoke in ALL.values()} == {*BENCHMARKS}


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sync", "speed"])

    assert ended.value.code == 2
    assert "no benchmark is called speed" in capsys.readouterr().err
