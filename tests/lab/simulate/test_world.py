"""Simulations: the state of the input is kept, changes take effect, and all comes to rest."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from rollout_lab.model.fields import text
from rollout_lab.model.history import Called, Commit
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.dump import choose_objects
from rollout_lab.simulate.flags import read_settings
from rollout_lab.simulate.report import SimulationRun, list_ends, render_text
from rollout_lab.simulate.times import choose_times
from rollout_lab.simulate.world import RunLimits, play
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import STATEFULSETS
from tests.lab.simulate.dumps import THREE, Json, grow, pick, to_yaml
from tests.virtual_time import EPOCH

NO_DOWNSCALE = {"grafana.com/no-downscale": "true"}
PREPARED = {"grafana.com/prepare-downscale": "true"}
PREPARE_AT = {
    "grafana.com/prepare-downscale-http-path": "prepare",
    "grafana.com/prepare-downscale-http-port": "80",
    "grafana.com/min-time-between-zones-downscale": "1h",
}
NINE = [f"zone-{letter}-{ordinal}" for letter in "abc" for ordinal in range(3)]


def _simulate(
    objects: Sequence[Json], *changes: str, flags: str = "", written: datetime = EPOCH
) -> SimulationRun:
    words = [word for change in changes for word in ("-change", change)]
    settings = read_settings(["-f", "-", *flags.split(), *words])
    return simulate(settings, to_yaml(objects), written)


def _story(run: SimulationRun) -> str:
    return "\n".join(" ".join(line.split()) for line in render_text(run))


def _ends(run: SimulationRun) -> str:
    return " ".join(list_ends(run.play))


def _outdate(objects: list[Json], *pods: str) -> list[Json]:
    """Let pods be of an older template, as in mid-rollout, and return all objects."""
    for name in pods:
        pod = pick(objects, name)
        zone = name.rpartition("-")[0]
        pod["metadata"]["labels"]["controller-revision-hash"] = f"{zone}-old"
        pick(objects, zone)["status"]["currentRevision"] = f"{zone}-old"
    return objects


def test_nothing_happens_to_a_group_at_rest() -> None:
    """The revisions of the input are kept: nothing is outdated only because it was copied."""
    run = _simulate(grow())

    assert run.figures.deletes == ()
    assert run.play.moved_at == timedelta(0)
    assert "all ready at the update revision" in _ends(run)
    assert not [
        one
        for one in run.play.history.list_all(Commit)
        if one.resource == STATEFULSETS and one.actor == "statefulset-controller"
    ]


def test_a_new_template_is_rolled_out_zone_by_zone() -> None:
    run = _simulate(grow(), "new template", flags="-ready-after 1m -terminates-after 20s")

    assert list(run.figures.deletes) == NINE
    assert run.figures.most_down == {"zone-a": 1, "zone-b": 1, "zone-c": 1}
    assert run.figures.overlaps == ()
    # Each pod takes 80 s, one after the other; the rest is what controllers and kubelets take.
    took = run.play.moved_at.total_seconds()
    assert 9 * 80 < took < 9 * 82


def test_outdated_pods_of_the_input_go_without_any_change() -> None:
    run = _simulate(_outdate(grow(), "zone-a-2", "zone-c-0"))

    assert run.figures.deletes == ("zone-a-2", "zone-c-0")
    names = {
        text(one.after or {}, "metadata", "name")
        for one in run.play.history.list_all(Commit)
        if one.resource.plural == "controllerrevisions" and one.actor == "statefulset-controller"
    }
    assert names == set(), "no revision is made: those of the input are found equal"


def test_a_pod_that_is_not_ready_stays_so_and_holds_the_others() -> None:
    run = _simulate(_outdate(grow(failed=["zone-c-1"]), "zone-a-0"))

    assert run.figures.deletes == ()
    assert "zone-c has 2 of 3 pods ready (zone-c-1: CrashLoopBackOff)" in _ends(run)
    assert "zone-c-1 stays as it is until it is replaced: CrashLoopBackOff" in _story(run)


def test_until_it_recovers() -> None:
    run = _simulate(_outdate(grow(failed=["zone-c-1"]), "zone-a-0"), "pod zone-c-1 recovers at 5m")

    assert run.figures.deletes == ("zone-a-0",)
    assert run.play.moved_at > timedelta(minutes=5)


def test_or_gets_a_new_template_and_is_the_first_to_go() -> None:
    run = _simulate(grow(failed=["zone-c-1"]), "new template")

    assert run.figures.deletes[0] == "zone-c-1"
    assert sorted(run.figures.deletes) == NINE


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Pending"}, id="without node"),
        pytest.param(
            {
                "phase": "Pending",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [
                    {"name": "app", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
                ],
            },
            id="without image",
        ),
        pytest.param({}, id="without status"),
    ],
)
def test_a_pod_that_waits_goes_on_waiting(status: Json) -> None:
    """An image that cannot be pulled is none that is being pulled: the reason stays the same."""
    objects = _outdate(grow(), "zone-a-0")
    pod = pick(objects, "zone-b-1")
    pod["status"] = status
    if status == {"phase": "Pending"}:
        del pod["spec"]["nodeName"]

    run = _simulate(objects, "pod zone-b-1 recovers at 2m", flags="-stuck zone-b-1")

    assert run.figures.deletes == ()
    assert "zone-b-1 has not started at that time" in _story(run) or not status
    if "containerStatuses" in status:
        assert "zone-b-1: ImagePullBackOff" in _ends(run)


def test_a_terminating_pod_ends_and_comes_back() -> None:
    objects = _outdate(grow(), "zone-c-0")
    meta = pick(objects, "zone-a-2")["metadata"]
    meta |= {"deletionTimestamp": "2026-01-02T03:04:35Z", "deletionGracePeriodSeconds": 30}

    run = _simulate(objects)

    assert run.figures.deletes == ("zone-c-0",)
    assert run.figures.down_before == {"zone-a": 1, "zone-b": 0, "zone-c": 0}
    assert "zone-a 2 of 3 pods ready, 1 terminating, at most 1 down" in _story(run)


def test_a_paused_zone_is_left_alone() -> None:
    run = _simulate(grow(), "pause zone-b", "new template")

    assert list(run.figures.deletes) == [*NINE[:3], *NINE[6:]]
    assert "zone-b is paused: 3 outdated pods wait" in _ends(run)
    assert "zone-b" not in {one.partition("-")[0] for one in run.figures.deletes}


def test_a_bad_template_stops_at_its_first_pod_and_the_next_one_heals_it() -> None:
    bad = _simulate(grow(), "bad template")
    healed = _simulate(grow(), "bad template", "image v2 at 5m")

    assert bad.figures.deletes == ("zone-a-0",)
    assert "zone-a-0 (CrashLoopBackOff)" in _ends(bad)
    assert list(healed.figures.deletes) == ["zone-a-0", *NINE]
    assert "10 deletes by the operator, 1 of them a second time" in _story(healed)


def test_a_pod_that_is_gone_cannot_fail() -> None:
    run = _simulate(grow(), "new template", "pod zone-a-0 fails at 3s")

    assert "zone-a-0 is not there at that time: nothing is done" in _story(run)
    assert list(run.figures.deletes) == NINE


def test_a_client_may_delete_a_pod() -> None:
    run = _simulate(grow(), "delete pod zone-b-1")

    assert run.figures.deletes == ()
    assert run.figures.most_down == {"zone-a": 0, "zone-b": 1, "zone-c": 0}
    assert "you delete pod zone-b-1" in _story(run)
    assert "you deletes zone-b-1" not in _story(run), "once is enough"


def test_a_downscale_that_is_forbidden_is_refused_in_the_operators_words() -> None:
    zones = (*THREE[:2], ZoneSpec(name="zone-c", labels=NO_DOWNSCALE))

    run = _simulate(grow(*zones), "scale zone-c to 2", "scale zone-b to 2")

    (refusal,) = run.figures.refusals
    assert "it has the label 'grafana.com/no-downscale=true'" in refusal
    assert "no-downscale refused scaling zone-c to 2 replicas" in _story(run)
    assert "1 request refused" in _story(run)
    assert "wants 2 pods instead of 3" in _story(run)


def test_a_downscale_is_prepared_and_the_next_zone_has_to_wait() -> None:
    zones = [ZoneSpec(name=f"zone-{one}", labels=PREPARED, annotations=PREPARE_AT) for one in "ab"]

    run = _simulate(
        grow(*zones), "scale zone-a to 2", "scale zone-b to 2 at 59m", "scale zone-b to 2 at 61m"
    )

    story = _story(run)
    assert "zone-a-2 POST /prepare: HTTP 200" in story
    (refusal,) = run.figures.refusals
    assert "labelled to wait 1h0m0s between zone downscales" in refusal
    assert "zone-b-2 POST /prepare: HTTP 200" in story


@pytest.mark.parametrize(("written", "refused"), [(30, 1), (90, 0)])
def test_how_long_ago_a_zone_was_scaled_counts_from_when_the_input_was_read(
    written: int, refused: int
) -> None:
    zones = [ZoneSpec(name=f"zone-{one}", labels=PREPARED, annotations=PREPARE_AT) for one in "ab"]
    objects = grow(*zones)
    annotations = pick(objects, "zone-a")["metadata"]["annotations"]
    annotations["grafana.com/last-downscale"] = "2026-01-02T03:04:05Z"

    run = _simulate(objects, "scale zone-b to 2", written=EPOCH + timedelta(minutes=written))

    assert len(run.figures.refusals) == refused


def test_it_never_begins_before_what_stands_in_the_input() -> None:
    """A file may be older than it says: it was unpacked, or its clock was wrong."""
    run = _simulate(grow(), written=EPOCH - timedelta(days=1))
    later = _simulate(grow(), flags="-as-of 2031-01-02T03:04:05Z")

    assert run.epoch > EPOCH
    assert later.epoch.year == 2031


def test_a_template_that_the_controller_has_not_seen_yet_is_seen() -> None:
    objects = grow()
    sts = pick(objects, "zone-a")
    sts["metadata"]["generation"] += 1
    sts["spec"]["template"]["spec"]["containers"][0]["image"] = "v2"

    assert list(_simulate(objects).figures.deletes) == NINE[:3]


def test_a_count_that_the_controller_has_not_seen_yet_makes_no_revision() -> None:
    """A status is behind its spec after any change of that: pods show which template it knows."""
    objects = grow()
    sts = pick(objects, "zone-a")
    sts["metadata"]["generation"] += 1
    sts["spec"]["replicas"] = 2

    assert _simulate(objects).figures.deletes == ()


def test_what_a_template_holds_besides_does_not_matter() -> None:
    objects = grow()
    for letter in "abc":
        spec = pick(objects, f"zone-{letter}")["spec"]
        claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
        spec["volumeClaimTemplates"] = claims
        inner = spec["template"]["spec"]
        inner |= {"priorityClassName": "high", "initContainers": [{"name": "i", "image": "i"}]}
        inner["topologySpreadConstraints"] = [{"maxSkew": 1}]

    assert list(_simulate(objects, "new template").figures.deletes) == NINE


def test_nothing_is_written_before_the_first_change() -> None:
    """Only leases of attention: no object of the input is changed by being copied."""
    run = _simulate(grow(), "new template at 10m")

    writes = [
        one
        for one in run.play.history.list_all(Called)
        if one.at < timedelta(minutes=10) and one.actor not in ("the input", "sandbox")
        if one.request.verb in ("create", "update", "patch", "delete")
    ]
    assert writes == []


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(RunLimits(span=timedelta(seconds=20)), id="in time"),
        pytest.param(RunLimits(records=150, records_per_pod=0), id="in what happens"),
        pytest.param(RunLimits(records=3, records_per_pod=0), id="before the changes"),
    ],
)
def test_it_ends_even_where_nothing_rests(limits: RunLimits) -> None:
    settings = read_settings(["-f", "-", "-change", "new template", "-change", "image v2 at 10m"])
    dump = choose_objects(grow(), "")

    played = play(dump, settings, choose_times(dump, settings, EPOCH), EPOCH, limits)

    assert played.is_cut
    assert played.ended_at <= timedelta(minutes=10, seconds=30)
    ended = round(played.ended_at.total_seconds())
    assert list(list_ends(played))[-1].startswith("it was cut off after ")
    assert ended or limits.records == 3


def test_what_moves_slowly_is_not_taken_for_rest() -> None:
    """Twenty minutes without any write are none of rest while a pod is starting."""
    run = _simulate(grow(ZoneSpec(name="zone-a")), "new template", flags="-ready-after 20m")

    assert not run.play.is_cut
    assert run.figures.deletes == ("zone-a-0", "zone-a-1", "zone-a-2")
