"""The benchmarks run, measure what they say, and never fail for being slow (D-64).

Sizes are tiny here: whether a figure is good is for `python -m benchmarks` to say, not for a test.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
import pytest

from benchmarks.__main__ import BENCHMARKS, main

pytestmark = pytest.mark.thorough

# What a tiny run determines of its figures, and the marks of each; D-50 to D-55, D-64, D-65, D-75.
SLOW, PLANE, PROOF = pytest.mark.slow, pytest.mark.controlplane, pytest.mark.prove
ALL: Final[Mapping[str, tuple[str, tuple[pytest.MarkDecorator, ...]]]] = {
    "memory": ("rss_6_pods_idle_mib>0 cache_bytes_per_pod>0", ()),
    "start": ("ready_60_pods_cpu_s>0 rss_60_pods_mib>0", ()),
    "sync": ("uvloop_list_stall_work_ms>0", ()),
    "events": ("", ()),
    "plans": ("", ()),
    "crowd": ("limited_to_unlimited>0", ()),
    "held": ("zone_growth>0 partition_growth>0", ()),
    "scaling_idle": (  # LI-11
        "plain_requests_per_minute>0 plain_requests_per_minute<=6 webhooks_requests_per_minute>0"
        " webhooks_requests_per_minute<=6 plain_writes_per_minute==0"
        " webhooks_writes_per_minute==0 webhooks_watches_per_minute>0",
        (),
    ),
    "releases": ("known==3 writes==0 look_ups==0 memory_ratio>0 cpu_ratio>0", (SLOW,)),
    "reviews": (
        "object_right==1 object_paced_right==1 object_paced_api_reads==0 scale_right==1"
        " scale_paced_right==1 scale_paced_api_reads==0",
        (SLOW, PROOF),
    ),
    "connections": (
        "plain_opened==40 greeted_opened==40 plain_right==1 greeted_right==1 new_right==1"
        " plain_asked>=20",
        (SLOW, PROOF),
    ),
    "watchers": ("right==1 watched_right==1 news_per_page>=1 pages==5", (SLOW, PROOF)),
    "hostile": ("answered==1 small_right==1 growth_mib<64", (SLOW, PROOF)),  # D-68
    "prepare": (  # PREP-20
        "allowed==1 calls_per_pod_least==1 calls_per_pod_most==1 in_flight==3 p50_ms>=50"
        " floor_ms==50 requests_list_statefulsets==1 requests_list_pods==1",
        (SLOW,),
    ),
    "evictions": ("refused_right==1 unselected_right==1 many_right==1", (SLOW,)),
    "rollout": (
        "limit_1_replaced==3 limit_1_reactions==2 limit_1_violations==0"
        " limit_1_delete_pods_per_pod==1 limit_1_ratio>=1",
        (PLANE,),
    ),
    "evictions_storm": ("allowed>=1 others==0 share_of_server>0 share_of_server<1", (PLANE, PROOF)),
    "evictions_drain": (
        "limit_1_evicted==3 limit_1_asked_per_pod>=1 limit_1_ratio>=1 limit_1_zones_short==1"
        " limit_1_unexpected==0 limit_1_violations==0",
        (PLANE,),
    ),
    "scaling_up": (  # SCALE-12
        "beside_requests_per_write>=1 chain_requests_per_write>=1",
        (PLANE, PROOF),
    ),
    "namespaces": (  # MAZ-60
        "three_violations==0 three_set_reads==0 three_node_lists==2",
        (PLANE, PROOF),
    ),
    "hour": ("violations==0 errors==0 unexpected==0 replaced>=1 evicted>=1", (PLANE, PROOF)),
    "scaling_delays": ("calls_per_pod==1 begun_median_s>0", (PLANE, PROOF)),  # W-06
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=ALL[name][1]) for name in BENCHMARKS])
def test_a_benchmark_prints_one_line_of_json(name: str) -> None:
    lines: list[str] = []

    assert main([name, "--small"], lines.append) == 0

    (line,) = lines
    printed = msgspec.json.decode(line)
    assert printed["benchmark"] == name
    assert printed["machine"]["cpus"] >= 1
    assert printed["figures"]
    wanted = ALL[name][0].split()
    assert [one for one in wanted if not eval(one, {}, printed["figures"])] == []  # noqa: S307


@pytest.mark.parametrize("words", ["sync speed", "reviews=x", "reviews=0", "start --runs 0"])
def test_what_cannot_be_run_is_named(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    assert re.search(f"(called|least 1:) {words.split()[-1]}", capsys.readouterr().err)
