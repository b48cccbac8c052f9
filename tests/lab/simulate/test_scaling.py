"""`simulate` with zones whose counts come from elsewhere: what follows what, and when."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace
from rollout_lab.model.fields import number
from rollout_lab.model.history import Commit
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.dump import choose_objects
from rollout_lab.simulate.flags import read_settings
from rollout_lab.simulate.report import SimulationRun, list_ends, render_text
from rollout_lab.simulate.times import choose_times
from rollout_lab.simulate.world import RunLimits, play
from rollout_lab.zones import ZoneSpec

from rollout_operator.cli.dumps import BadDump
from rollout_operator.kube.api import STATEFULSETS
from rollout_operator.model.names import InvalidInput
from tests.lab.simulate.dumps import NAMESPACE, Json, grow, pick, to_yaml
from tests.virtual_time import EPOCH

PREPARED: Final = {"grafana.com/prepare-downscale": "true"}
WAIT: Final = "grafana.com/min-time-between-zones-downscale"
LAST: Final = "grafana.com/last-downscale"
PATHS: Final = {
    "grafana.com/prepare-downscale-http-path": "prepare",
    "grafana.com/prepare-downscale-http-port": "80",
    WAIT: "3h",
}
MIRROR: Final = "grafana.com/rollout-mirror-replicas-from-resource"
MIRRORS: Final = {
    f"{MIRROR}-name": "ingesters",
    f"{MIRROR}-kind": "ReplicaTemplate",
    f"{MIRROR}-api-version": "rollout-operator.grafana.com/v1",
}
DELAYED: Final = {
    **MIRRORS,
    "grafana.com/rollout-delayed-downscale": "2h",
    "grafana.com/rollout-prepare-delayed-downscale-url": "http://pod:80/delayed",
}


def chain() -> list[ZoneSpec]:
    """Return zone-b that follows zone-a, and zone-c that follows zone-b."""
    zones = []
    for letter, leading in (("a", ""), ("b", "zone-a"), ("c", "zone-b")):
        annotations = {
            **PATHS,
            **({"grafana.com/rollout-downscale-leader": leading} if leading else {}),
        }
        zones.append(ZoneSpec(name=f"zone-{letter}", labels=PREPARED, annotations=annotations))
    return zones


def template(namespace: str = NAMESPACE, **spec: object) -> Json:
    """Return the ReplicaTemplate that zones mirror."""
    return {
        "apiVersion": "rollout-operator.grafana.com/v1",
        "kind": "ReplicaTemplate",
        "metadata": {
            "name": "ingesters",
            "namespace": namespace,
            "uid": "t",
            "resourceVersion": "7",
        },
        "spec": spec or {"replicas": 3},
    }


def _simulate(objects: Sequence[Json], *changes: str) -> SimulationRun:
    words = [word for change in changes for word in ("-change", change)]
    return simulate(read_settings(["-f", "-", *words]), to_yaml(objects), EPOCH)


def _story(run: SimulationRun) -> str:
    return " ".join(word for line in render_text(run) for word in line.split())


def _list_counts(run: SimulationRun, name: str) -> list[tuple[timedelta, int]]:
    """Return when a set came to want how many replicas, after those of the input."""
    found: list[tuple[timedelta, int]] = []
    count = -1
    for one in run.play.history.list_all(Commit):
        if one.resource == STATEFULSETS and one.name == name and one.after is not None:
            replicas = number(one.after, "spec", "replicas")
            if count not in (-1, replicas):
                found.append((one.at, replicas))
            count = replicas
    return found


def test_more_replicas_are_everywhere_at_once() -> None:
    """SCALE-08, SCALE-12."""
    run = _simulate(grow(*chain()), "scale zone-a to 5")

    for name in ("zone-a", "zone-b", "zone-c"):
        ((at, replicas),) = _list_counts(run, name)
        assert replicas == 5
        assert at < timedelta(seconds=2)
    assert "zone-c follows zone-b: 3 → 5" in _story(run)
    assert "0 requests refused" in _story(run)


@pytest.mark.slow
def test_fewer_go_zone_by_zone_hours_apart() -> None:
    """SCALE-09, SI-11: it is not at rest as long as a zone waits for its time."""
    run = _simulate(grow(*chain()), "scale zone-a to 2")

    times = [_list_counts(run, name) for name in ("zone-a", "zone-b", "zone-c")]
    ((first, _),), ((second, _),), ((third, count),) = times
    assert count == 2
    assert timedelta(hours=3) < second - first < timedelta(hours=3, minutes=1)
    assert timedelta(hours=3) < third - second < timedelta(hours=3, minutes=1)
    assert not run.play.is_cut
    story = _story(run)
    assert "zone-b follows zone-a: 3 → 2 in 3h0m" in story
    assert "zone-c-2 POST /prepare: HTTP 200" in story


@pytest.mark.slow
def test_a_wait_without_end_is_cut_off() -> None:
    """A time in the far future holds back the following zone, and is reported."""
    first, *followers = chain()
    objects = grow(replace(first, labels={}), *followers)
    pick(objects, "zone-c")["metadata"]["annotations"][LAST] = "2029-01-01T00:00:00Z"

    settings = read_settings(["-f", "-", "-change", "scale zone-a to 2"])
    dump = choose_objects(objects, "")
    played = play(
        dump,
        settings,
        choose_times(dump, settings, EPOCH),
        EPOCH,
        RunLimits(span=timedelta(hours=1)),
    )

    assert played.is_cut
    assert "that time lies in the future" in " ".join(list_ends(played))


def test_an_autoscalers_object_can_be_scaled() -> None:
    """MIRR-04, MIRR-10: the object is part of the copy, and what mirrors it follows."""
    zones = [ZoneSpec(name="zone-a", annotations=MIRRORS), ZoneSpec(name="zone-b")]

    run = _simulate([*grow(*zones), template()], "scale ingesters to 4", "pod zone-a-3 fails at 5m")

    story = _story(run)
    assert "ReplicaTemplate ingesters: 3 replicas wanted" in story
    assert "you scale ingesters to 4" in story
    assert [count for _, count in _list_counts(run, "zone-a")] == [4]
    assert _list_counts(run, "zone-b") == []
    assert "replicas 4)" in story, "its status is printed"
    assert "left out" not in story


def test_a_delayed_downscale_takes_its_time() -> None:
    """DELAY-08: pods answer at once, and have been prepared since that call."""
    zones = [ZoneSpec(name="zone-a", annotations=DELAYED)]

    run = _simulate([*grow(*zones), template()], "scale ingesters to 1")

    ((at, count),) = _list_counts(run, "zone-a")
    assert count == 1
    assert timedelta(hours=2) < at < timedelta(hours=2, minutes=1)
    story = _story(run)
    assert "pods are prepared for a delayed downscale since they are called here" in story
    assert "2h0m0s are wanted" in story


def test_what_mirrors_an_object_that_is_not_there_says_so() -> None:
    """MIRR-04: the input may be without it."""
    run = _simulate(grow(ZoneSpec(name="zone-a", annotations=MIRRORS)))

    assert _list_counts(run, "zone-a") == []
    assert "ReplicaTemplate" in " ".join(list_ends(run.play))


def test_objects_of_another_namespace_are_left_out() -> None:
    dump = choose_objects([*grow(), template("other")], "")

    assert dump.templates == ()
    assert dump.left_out == ("1 ReplicaTemplate is left out: of another namespace",)


def test_an_object_that_no_api_server_would_hold_is_refused() -> None:
    with pytest.raises(BadDump, match="ReplicaTemplate"):
        choose_objects([*grow(), template(replicas="many")], "")


def test_names_of_objects_and_of_pods_that_follow_may_be_used() -> None:
    objects = [*grow(*chain()), template()]

    assert "zone-c-3" in _story(_simulate(objects, "scale zone-a to 4", "pod zone-c-3 fails at 1m"))
    with pytest.raises(InvalidInput, match=r'it is a rollout group.* did you mean "ingesters"'):
        _simulate(objects, "scale ingester to 4")
