"""The benchmarks run, measure what they say, and never fail for being slow (D-64).

Sizes are tiny here: whether a figure is good is for `python -m benchmarks` to say, not for a test.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec
import pytest

from benchmarks.__main__ import BENCHMARKS, main

pytestmark = pytest.mark.thorough

SOME: Final = (1e-9, math.inf)
MORE: Final = (1, math.inf)

# What a tiny run determines: a figure, or a range of it.
SYNTHETIC: Final[Mapping[str, Mapping[str, float | tuple[float, float]]]] = {
    "memory": {"rss_6_pods_idle_mib": SOME, "cache_bytes_per_pod": SOME},  # D-51
    "sync": {"uvloop_list_stall_work_ms": SOME},
    "events": {},
    "plans": {},
    "crowd": {"limited_to_unlimited": SOME},  # D-65
    "held": {"zone_growth": SOME, "partition_growth": SOME},
    "scaling_idle": {  # LI-11
        "plain_requests_per_minute": (1e-9, 6),
        "webhooks_requests_per_minute": (1e-9, 6),
        "plain_writes_per_minute": 0,
        "webhooks_writes_per_minute": 0,
        "webhooks_watches_per_minute": SOME,
    },
}
SLOW: Final[Mapping[str, Mapping[str, float | tuple[float, float]]]] = {
    "releases": {"known": 3, "writes": 0, "look_ups": 0, "memory_ratio": SOME, "cpu_ratio": SOME},
    "reviews": {  # D-53
        "object_right": 1,
        "object_paced_right": 1,
        "object_paced_api_reads": 0,
        "scale_right": 1,
        "scale_paced_right": 1,
        "scale_paced_api_reads": 0,
    },
    "connections": {  # D-50, D-53
        "plain_opened": 40,
        "greeted_opened": 40,
        "plain_right": 1,
        "greeted_right": 1,
        "new_right": 1,
        "plain_asked": (20, math.inf),
    },
    "watchers": {"right": 1, "watched_right": 1, "news_per_page": MORE, "pages": 5},  # D-75
    "hostile": {"answered": 1, "small_right": 1, "growth_mib": (-math.inf, 63.99)},  # D-50, D-68
    "prepare": {  # PREP-20
        "allowed": 1,
        "calls_per_pod_least": 1,
        "calls_per_pod_most": 1,
        "in_flight": 3,
        "p50_ms": (50, math.inf),
        "floor_ms": 50,
        "requests_list_statefulsets": 1,
        "requests_list_pods": 1,
    },
    "evictions": {"refused_right": 1, "unselected_right": 1, "many_right": 1},  # D-55
}
ON_A_CONTROL_PLANE: Final[Mapping[str, Mapping[str, float | tuple[float, float]]]] = {
    "rollout": {  # D-52
        "limit_1_replaced": 3,
        "limit_1_reactions": 2,
        "limit_1_violations": 0,
        "limit_1_delete_pods_per_pod": 1,
        "limit_1_ratio": MORE,
    },
    "evictions_storm": {"allowed": MORE, "others": 0, "share_of_server": (1e-9, 0.999)},
    "evictions_drain": {
        "evicted": 3,
        "asked_per_pod": MORE,
        "ratio": MORE,
        "zones_short": 1,
        "unexpected": 0,
        "violations": 0,
    },
    "scaling_up": {"beside_requests_per_write": MORE, "chain_requests_per_write": MORE},  # SCALE-12
    "namespaces": {"three_violations": 0, "three_set_reads": 0, "three_node_lists": 2},  # MAZ-60
    "scaling_delays": {"calls_per_pod": 1, "begun_median_s": SOME},  # W-06
}
ALL: Final = {**SYNTHETIC, **SLOW, **ON_A_CONTROL_PLANE}
# What they measure is tested by itself, in `tests/system` and `tests/web`. Of the first four each
# would start a control plane of its own, and the others start a dozen of processes and saturate
# them; `evictions` does so, too, by the same means, and stays.
FOR_PROOF: Final = {
    *("namespaces", "scaling_up", "scaling_delays", "evictions_storm"),
    *("connections", "hostile", "watchers", "reviews"),
}


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [
        *([pytest.mark.slow] if name in SLOW else []),
        *([pytest.mark.controlplane] if name in ON_A_CONTROL_PLANE else []),
        *([pytest.mark.prove] if name in FOR_PROOF else []),
    ]


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in ALL])
def test_a_benchmark_prints_one_line_of_json(name: str) -> None:
    lines: list[str] = []

    assert main([name, "--small"], lines.append) == 0

    (line,) = lines
    printed = msgspec.json.decode(line)
    assert line.endswith("}\n")
    assert printed["benchmark"] == name
    assert printed["machine"]["cpus"] >= 1
    assert printed["figures"]
    for figure, expected in ALL[name].items():
        low, high = expected if isinstance(expected, tuple) else (expected, expected)
        assert low <= printed["figures"][figure] <= high, figure


def test_every_benchmark_is_tried() -> None:
    assert {*ALL} == {*BENCHMARKS}


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sync", "speed"])

    assert ended.value.code == 2
    assert "no benchmark is called speed" in capsys.readouterr().err
