"""Simulations under a MultiAZRollout: what it owns, its zones, batches and pauses, and refusals."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pytest

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS
from rollout_operator.lab.model.history import Called
from rollout_operator.lab.nodes.nodes import node
from rollout_operator.lab.simulate.command import simulate
from rollout_operator.lab.simulate.compare import render_comparison
from rollout_operator.lab.simulate.document import SimulationDocument, render_json
from rollout_operator.lab.simulate.dump import choose_objects
from rollout_operator.lab.simulate.flags import read_settings
from rollout_operator.lab.simulate.input import BadDump
from rollout_operator.lab.simulate.report import SimulationRun, render_text
from rollout_operator.lab.zones import ZoneSpec
from rollout_operator.model.errors import InvalidInput
from tests.lab.simulate.dumps import NAMESPACE, Json, grow, to_yaml
from tests.virtual_time import EPOCH

pytestmark = pytest.mark.thorough

KEY: Final = "topology.kubernetes.io/zone"
LABELS: Final = {"app": "db"}
ORDER: Final = ["us-west-2c"]
"""Of the zones of SAMPLE, the last one by name goes first."""


def db_zones(replicas: int = 2) -> list[ZoneSpec]:
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
    run = _tell([*grow(*db_zones()), policy()], "new template")

    order = [f"db-{letter}-{ordinal}" for letter in "cab" for ordinal in (1, 0)]
    assert list(run.figures.deletes) == order
    times = _deletes(run)
    assert all(after - before > timedelta(seconds=40) for before, after in pairwise(times))
    assert run.figures.overlaps == ()
    assert run.exit_code == 0
    story = _story(run)
    assert "policy db: rolled out: 6 pods of 3 zones" in story
    assert "at most 1 down in a zone, a pause of 30s, pods descending:" in story
    assert "db-c zone us-west-2c (Label), 2 of 2 pods ready" in story
    assert "policy db batch 1, of db-c in zone us-west-2c: db-c-1" in story
    assert "policy db batch 1 is complete; a pause of 30s follows" in story


def test_a_pause_of_hours_is_no_rest() -> None:
    """MAZ-40: virtual time passes for nothing, and nothing ends in between."""
    run = _tell([*grow(*db_zones()), policy(rollingUpdate={"intervalSeconds": 3600})], "image v2")

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
    run = _tell([*grow(*db_zones()), sample], "new template", flags=flags)

    assert timedelta(seconds=19) < _deletes(run)[0] < timedelta(seconds=23)
    assert "policy db batch 5, of db-c" in _story(run)


def test_a_killed_operator_repeats_no_batch_and_shortens_no_pause() -> None:
    """MT-30: killed in the middle of the first pause."""
    run = _tell([*grow(*db_zones()), policy()], "new template", "kill operator at 25s")

    assert len(run.figures.deletes) == 6
    first, second, *_ = _deletes(run)
    assert timedelta(seconds=43) < second - first < timedelta(seconds=48)


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
    run = _tell([*grow(*db_zones()), policy(**spec)], "new template")

    story = _story(run)
    assert "MultiAZRollout db in namespace prod is not in service" in story
    assert story.count(f"MultiAZRollout prod/db: {text}") >= 2
    assert "policy db: held: MultiAZRollout prod/db: spec." in story
    assert run.figures.deletes == ()
    assert run.exit_code == 4


def test_of_two_policies_the_older_one_works() -> None:
    """MT-62."""
    younger = policy("younger", "2026-01-01T00:00:01Z", azOrder=["us-west-2a"])

    run = _tell([*grow(*db_zones()), younger, policy()], "new template")

    assert run.figures.deletes[0] == "db-c-1"
    assert len(run.figures.deletes) == 6
    why = "StatefulSets of the older MultiAZRollout prod/db are selected: db-a, db-b and db-c"
    assert f"MultiAZRollout prod/younger: spec.statefulSetSelector: {why} [Conflict]" in _story(run)
    assert run.exit_code == 4, "a person must choose"


def test_a_policy_over_a_whole_group_drives_it_beside_another_group() -> None:
    """MT-63: the annotation of the limit does not count, and the other group goes by its label."""
    ours = [replace(one, group="db", max_unavailable=2) for one in db_zones()]

    run = _tell([*grow(*ours, ZoneSpec(name="other", replicas=1)), policy()], "new template")

    assert sorted(run.figures.deletes)[:6] == [f"db-{one}-{pod}" for one in "abc" for pod in (0, 1)]
    assert run.figures.most_down == {"db-a": 1, "db-b": 1, "db-c": 1, "other": 1}
    story = _story(run)
    assert "Rollout group ingester in namespace prod: other" in story
    assert "Rollout group db" not in story
    assert run.exit_code == 0


def test_a_policy_that_splits_a_group_leaves_it_to_its_label() -> None:
    """MT-64."""
    zones = [replace(one, group="db") for one in db_zones()]

    run = _tell([*grow(*zones[:2], replace(zones[2], labels={})), policy()], "new template")

    assert run.figures.deletes[0] == "db-a-0", "by name, the lowest ordinal first"
    assert len(run.figures.deletes) == 6
    assert 'of the rollout group "db", db-a and db-b would be selected' in _story(run)


def test_zones_come_from_nodes_of_the_input() -> None:
    """MT-05, and two StatefulSets of one zone: their pods may be down together."""
    zones = [replace(one, labels=LABELS) for one in db_zones()]
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
    run = _tell([*grow(*db_zones()), policy(progressDeadlineSeconds=1200)], "bad template")

    assert run.figures.deletes == ("db-c-1",)
    story = _story(run)
    assert "policy db: held: batch 1 of db-c is open: zone us-west-2c: db-c has 1 of 2" in story
    assert "What holds it in the end, and what would help:" in story
    assert run.exit_code == 4


def test_names_of_policies_stand_for_what_they_select() -> None:
    run = _tell(
        [*grow(*db_zones(), ZoneSpec(name="other", replicas=1)), policy()], "new template db"
    )

    assert len(run.figures.deletes) == 6


def test_a_field_is_set_in_mid_rollout_and_counts_at_once() -> None:
    """MT-31, MAZ-46: 30 s become 5 s in the first pause; then both pods of a zone go at a time."""
    changes = ["set db intervalSeconds to 5 at 30s", "set db rollingUpdate.maxUnavailable to 100%"]

    run = _tell([*grow(*db_zones()), policy()], "new template", *changes)

    times = _deletes(run)
    assert timedelta(seconds=29) < times[1] - times[0] < timedelta(seconds=32)
    assert times[3] - times[2] < timedelta(seconds=1)
    assert [len(one.pods) for one in run.figures.batches] == [1, 1, 2, 2]
    assert re.search("4 batches of policy db, [567]s apart at least", _story(run))


def test_others_cross_the_limit_of_the_policy_as_it_is_then() -> None:
    """Of the zone, and not of the annotation: what was one too many is not once two may be down."""
    objects = [*grow(*db_zones()), policy(paused=True)]
    changes = ["delete pod db-a-0 at 1s", "delete pod db-a-1"]

    strict = _tell(objects, *changes)
    loose = _tell(objects, "set db maxUnavailable to 2", *changes)

    assert [one.text for one in strict.figures.crossings] == [
        "db-a-1 is number 2 down of us-west-2a, of 1 allowed"
    ]
    assert loose.figures.crossings == ()


def test_an_order_of_zones_is_set() -> None:
    """MT-22, and a list that is empty."""
    sample = policy()
    sample["spec"]["azOrder"] = ["us-west-2c"]

    run = _tell([*grow(*db_zones()), sample], "set db azOrder to []", "image v2")
    other = _tell([*grow(*db_zones()), sample], "set db azOrder to us-west-2b,x", "image v2")

    assert (run.figures.deletes[0], other.figures.deletes[0]) == ("db-a-1", "db-b-1")


def test_a_policy_is_paused_by_its_name_and_goes_on() -> None:
    """MAZ-11a: spec.paused, and no annotation."""
    changes = ["new template at 1s", "resume db at 5m"]

    paused = _tell([*grow(*db_zones()), policy()], "pause db", "new template at 1s")
    resumed = _tell([*grow(*db_zones()), policy()], "pause db", *changes)

    assert paused.figures.deletes == ()
    assert "policy db: waiting: the policy is paused: 2 outdated pods of db-c" in _story(paused)
    assert len(resumed.figures.deletes) == 6
    assert _deletes(resumed)[0] > timedelta(minutes=5)


def test_what_is_set_to_no_value_is_refused_by_the_operator() -> None:
    run = _tell(
        [*grow(*db_zones()), policy()], "new template", "set db maxUnavailable to none at 20s"
    )

    assert run.figures.deletes == ("db-c-1",), "an open batch ends, and nothing else begins"
    story = _story(run)
    assert "policy db it is refused: MultiAZRollout prod/db: spec.rollingUpdate.maxUn" in story


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("set db pods to 5", 'no field "pods" of a policy; there are maxUnavailable, '),
        ("set db-a paused to true", 'no policy "db-a"; did you mean "db"'),
        ("pause dbs", 'no StatefulSet, rollout group or policy "dbs"; did you mean '),
    ],
)
def test_what_no_policy_has_is_named(change: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(why)):
        _tell([*grow(*db_zones()), policy()], change)


def test_a_policy_of_another_file_takes_the_place_of_one(tmp_path: Path) -> None:
    """As it would be applied: without what the API server adds, and without namespace."""
    applied = policy(azOrder=["us-west-2b"])
    applied["metadata"] = {"name": "db"}
    path = tmp_path / "policy.yaml"
    path.write_bytes(to_yaml([applied]))

    changed = _tell([*grow(*db_zones()), policy()], "image v2", flags=f"-policy {path}")
    alone = _tell(grow(*db_zones()), "image v2", flags=f"-policy {path}")

    assert changed.figures.deletes[0] == alone.figures.deletes[0] == "db-b-1"
    (found,) = changed.dump.others_of(MULTI_AZ_ROLLOUTS)
    assert found["metadata"] == {**policy()["metadata"], "generation": 2}
    assert alone.exit_code == 0


def test_a_new_policy_is_the_younger_one(tmp_path: Path) -> None:
    """MAZ-24: what is applied now takes nothing from what is there."""
    path = tmp_path / "policy.yaml"
    path.write_bytes(to_yaml([{**policy(), "metadata": {"name": "a"}}]))

    run = _tell([*grow(*db_zones()), policy()], flags=f"-policy {path}")

    assert [one.name for one in run.dump.policies if one.policy is None] == ["a"]


def test_a_file_without_a_policy_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(to_yaml(grow()))

    with pytest.raises(BadDump, match="no MultiAZRollout is in it"):
        _tell(grow(), flags=f"-policy {path}")
    with pytest.raises(BadDump, match="MultiAZRollout db is in the input twice"):
        _tell([*grow(*db_zones()), policy(), policy()])


def test_without_the_flag_of_the_operator_policies_are_not_obeyed() -> None:
    """A group that one would drive goes by its label, as it did."""
    objects = grow(*(replace(one, group="db") for one in db_zones()))
    flags = "-multi-az-rollouts.enabled=false"

    run = _tell([*objects, policy()], "new template", flags=flags)
    without = _tell(objects, "new template")

    assert "MultiAZRollout db in namespace prod is not obeyed" in _story(run)
    assert run.figures.deletes == without.figures.deletes
    assert run.exit_code == 0


def test_policies_are_there_for_machines_and_absent_without_any() -> None:
    run = _tell([*grow(*db_zones()), policy()], "new template")

    printed = json.loads(render_json(run))
    (found,) = printed["policies"]
    assert found["zones"][0] == {"name": "us-west-2c", "statefulSets": ["db-c"]}
    assert (found["phase"], found["refusals"], found["isObeyed"]) == ("rolled out", [], True)
    assert [one["number"] for one in found["batches"]] == [1, 2, 3, 4, 5, 6]
    first = found["batches"][0]
    assert (first["zone"], first["statefulSet"], first["pods"]) == (
        "us-west-2c",
        "db-c",
        ["db-c-1"],
    )
    assert 12 < first["seconds"] < 15
    assert "policies" not in json.loads(render_json(_tell(grow())))
    assert msgspec.convert(printed, SimulationDocument).policies


def test_two_settings_of_a_policy_stand_side_by_side() -> None:
    objects = [*grow(*db_zones()), policy()]

    run = _tell(objects, "new template")
    versus = _tell(objects, "set db intervalSeconds to 0", "new template")

    rows = list(render_comparison(run, versus, 100))
    assert any(re.fullmatch(r"batches of db +6 +6", row) for row in rows)
    assert any(re.fullmatch(r"shortest pause of db +3[0-2]s +[0-2]s", row) for row in rows)


def test_what_no_policy_selects_is_no_input() -> None:
    lonely = [replace(one, labels={}) for one in db_zones()]
    refused = policy(statefulSetSelector={})

    with pytest.raises(BadDump, match="db-a, db-b and db-c: no label rollout-group, and no Multi"):
        choose_objects([*grow(*lonely), policy()], "")
    with pytest.raises(
        BadDump, match=r"MultiAZRollout prod/db: spec\.statefulSetSelector: an empty"
    ):
        choose_objects([*grow(*lonely), refused], "")
