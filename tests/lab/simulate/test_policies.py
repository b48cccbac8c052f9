"""Simulations under a MultiAZRollout: what it owns, its zones, batches and pauses, and refusals."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Final

import pytest

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS
from rollout_operator.lab.model.history import Called
from rollout_operator.lab.nodes.nodes import node
from rollout_operator.lab.simulate.command import simulate
from rollout_operator.lab.simulate.dump import choose_objects
from rollout_operator.lab.simulate.flags import read_settings
from rollout_operator.lab.simulate.input import BadDump
from rollout_operator.lab.simulate.report import SimulationRun, render_text
from rollout_operator.lab.zones import ZoneSpec
from tests.lab.simulate.dumps import NAMESPACE, Json, grow, to_yaml
from tests.virtual_time import EPOCH

pytestmark = pytest.mark.thorough

KEY: Final = "topology.kubernetes.io/zone"
LABELS: Final = {"app": "db"}
ORDER: Final = ["us-west-2c"]
"""Of the zones of SAMPLE, the last one by name goes first."""


def _zones(replicas: int = 2) -> list[ZoneSpec]:
    return [
        ZoneSpec(
            name=f"db-{letter}",
            group=None,
            replicas=replicas,
            labels={**LABELS, KEY: f"us-west-2{letter}"},
        )
        for letter in "abc"
    ]


def policy(name: str = "db", created: str = "2026-01-01T00:00:00Z", **spec: object) -> Json:
    """Return a policy over all that has LABELS, as the API server prints it."""
    head = {"uid": f"u-{name}", "resourceVersion": "9", "creationTimestamp": created}
    return {
        "apiVersion": f"{MULTI_AZ_ROLLOUTS.group}/{MULTI_AZ_ROLLOUTS.version}",
        "kind": MULTI_AZ_ROLLOUTS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1, **head},
        "spec": {"statefulSetSelector": {"matchLabels": LABELS}, "azOrder": ORDER, **spec},
    }


def _tell(objects: Sequence[Json], *changes: str, flags: str = "") -> SimulationRun:
    words = [word for change in changes for word in ("-change", change)]
    settings = read_settings(["-f", "-", *flags.split(), *words])
    return simulate(settings, to_yaml(objects), EPOCH)


def _story(run: SimulationRun) -> str:
    return " ".join(word for line in render_text(run) for word in line.split())


def _deletes(run: SimulationRun) -> list[timedelta]:
    return [
        one.at
        for one in run.play.history.list_all(Called)
        if one.actor == "operator" and one.request.verb == "delete"
        if one.request.resource == PODS
    ]


def test_the_sample_goes_zone_by_zone_with_pauses() -> None:
    """MT-20, MT-22: in the order of the spec, the highest ordinal first, 30 s apart."""
    run = _tell([*grow(*_zones()), policy()], "new template")

    order = [f"db-{letter}-{ordinal}" for letter in "cab" for ordinal in (1, 0)]
    assert list(run.figures.deletes) == order
    times = _deletes(run)
    assert all(after - before > timedelta(seconds=40) for before, after in pairwise(times))
    assert run.figures.overlaps == ()
    assert run.exit_code == 0
    story = _story(run)
    assert "policy db: rolled out: 6 pods of 3 StatefulSets" in story
    assert "at most 1 down in a zone, a pause of 30s, pods descending:" in story
    assert "db-c zone us-west-2c (Label), 2 of 2 pods ready" in story
    assert "policy db batch 1, of db-c in zone us-west-2c: db-c-1" in story
    assert "policy db batch 1 is complete; a pause of 30s follows" in story


def test_a_pause_of_hours_is_no_rest() -> None:
    """MAZ-40: virtual time passes for nothing, and nothing ends in between."""
    run = _tell([*grow(*_zones()), policy(rollingUpdate={"intervalSeconds": 3600})], "image v2")

    assert len(run.figures.deletes) == 6
    assert timedelta(hours=5) < run.play.moved_at < timedelta(hours=6)
    assert not run.play.is_cut


def test_a_pause_that_was_underway_is_kept() -> None:
    """MAZ-43: what the input has recorded of the last batch counts."""
    sample = policy()
    batch = {"number": 4, "zone": "us-west-2c", "statefulSet": "db-c", "updateRevision": "r"}
    times = {"startTime": "2026-01-02T03:04:40Z", "completionTime": "2026-01-02T03:04:50Z"}
    sample["status"] = {"lastBatch": {**batch, "pods": [{"name": "db-c-0", "uid": "u"}], **times}}

    flags = "-as-of 2026-01-02T03:05:00Z"
    run = _tell([*grow(*_zones()), sample], "new template", flags=flags)

    assert timedelta(seconds=19) < _deletes(run)[0] < timedelta(seconds=21)
    assert "policy db batch 5, of db-c" in _story(run)


def test_a_killed_operator_repeats_no_batch_and_shortens_no_pause() -> None:
    """MT-30: killed in the middle of the first pause."""
    run = _tell([*grow(*_zones()), policy()], "new template", "kill operator at 25s")

    assert len(run.figures.deletes) == 6
    first, second, *_ = _deletes(run)
    assert timedelta(seconds=43) < second - first < timedelta(seconds=46)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"rollingUpdate": {"maxUnavailable": "0%"}}, "spec.rollingUpdate.maxUnavailable: "),
        ({"azOrder": ["a", "a"]}, 'spec.azOrder[1]: "a" is in the list before [InvalidSpec]'),
        ({"namespace": "other"}, 'spec.namespace: "other" is not the namespace of the policy'),
    ],
    ids=["MT-27", "MT-24", "MT-60"],
)
def test_a_policy_that_is_refused_says_why(spec: Json, text: str) -> None:
    """Object, field and value, as in the status that the operator writes."""
    run = _tell([*grow(*_zones()), policy(**spec)], "new template")

    story = _story(run)
    assert "MultiAZRollout db in namespace prod is not in service" in story
    assert story.count(f"MultiAZRollout prod/db: {text}") >= 2
    assert "policy db: held: MultiAZRollout prod/db: spec." in story
    assert run.figures.deletes == ()
    assert run.exit_code == 4


def test_of_two_policies_the_older_one_works() -> None:
    """MT-62."""
    younger = policy("younger", "2026-01-01T00:00:01Z", azOrder=["us-west-2a"])

    run = _tell([*grow(*_zones()), younger, policy()], "new template")

    assert run.figures.deletes[0] == "db-c-1"
    assert len(run.figures.deletes) == 6
    why = "StatefulSets of the older MultiAZRollout prod/db are selected: db-a, db-b and db-c"
    assert f"MultiAZRollout prod/younger: spec.statefulSetSelector: {why} [Conflict]" in _story(run)
    assert run.exit_code == 4, "a person must choose"


def test_a_policy_over_a_whole_group_drives_it_beside_another_group() -> None:
    """MT-63: the annotation of the limit does not count, and the other group goes by its label."""
    ours = [replace(one, group="db", max_unavailable=2) for one in _zones()]

    run = _tell([*grow(*ours, ZoneSpec(name="other", replicas=1)), policy()], "new template")

    assert sorted(run.figures.deletes)[:6] == [f"db-{one}-{pod}" for one in "abc" for pod in (0, 1)]
    assert run.figures.most_down == {"db-a": 1, "db-b": 1, "db-c": 1, "other": 1}
    story = _story(run)
    assert "Rollout group ingester in namespace prod: other" in story
    assert "Rollout group db" not in story
    assert run.exit_code == 0


def test_a_policy_that_splits_a_group_leaves_it_to_its_label() -> None:
    """MT-64."""
    zones = [replace(one, group="db") for one in _zones()]

    run = _tell([*grow(*zones[:2], replace(zones[2], labels={})), policy()], "new template")

    assert run.figures.deletes[0] == "db-a-0", "by name, the lowest ordinal first"
    assert len(run.figures.deletes) == 6
    assert 'of the rollout group "db", db-a and db-b would be selected' in _story(run)


def test_zones_come_from_nodes_of_the_input() -> None:
    """MT-05, and two StatefulSets of one zone: their pods may be down together."""
    zones = [replace(one, labels=LABELS) for one in _zones()]
    objects = [*grow(*zones), policy()]
    for one in objects:
        if one["kind"] == "Pod":
            one["spec"]["nodeName"] = "west" if one["metadata"]["name"] < "db-c" else "east"
    nodes: list[Json] = [dict(node(name, {KEY: name})) for name in ("west", "east")]
    for each in nodes:
        each["metadata"] |= {"uid": "u", "resourceVersion": "7"}

    run = _tell([*objects, *nodes], "new template", "delete pod db-b-0 at 3s")

    story = _story(run)
    assert "db-c zone east (Nodes)" in story
    assert "db-a zone west (Nodes), 2 of 2 pods ready db-b zone west (Nodes)" in story
    [crossing] = run.figures.crossings
    assert crossing.text == "db-b-0 goes down beside pods of east"


def test_a_bad_template_holds_the_policy_and_is_stalled() -> None:
    """MT-46, MAZ-44: the deadline of the policy is waited for."""
    run = _tell([*grow(*_zones()), policy(progressDeadlineSeconds=1200)], "bad template")

    assert run.figures.deletes == ("db-c-1",)
    story = _story(run)
    assert "policy db: held: batch 1 of db-c is open: zone us-west-2c: db-c has 1 of 2" in story
    assert "What holds it in the end, and what would help:" in story
    assert run.exit_code == 4


def test_names_of_policies_stand_for_what_they_select() -> None:
    run = _tell([*grow(*_zones(), ZoneSpec(name="other", replicas=1)), policy()], "new template db")

    assert len(run.figures.deletes) == 6


def test_what_no_policy_selects_is_no_input() -> None:
    lonely = [replace(one, labels={}) for one in _zones()]
    refused = policy(statefulSetSelector={})

    with pytest.raises(BadDump, match="db-a, db-b and db-c: no label rollout-group, and no Multi"):
        choose_objects([*grow(*lonely), policy()], "")
    with pytest.raises(
        BadDump, match=r"MultiAZRollout prod/db: spec\.statefulSetSelector: an empty"
    ):
        choose_objects([*grow(*lonely), refused], "")
