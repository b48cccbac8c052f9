"""What if a MultiAZRollout were another: fields that are set, files, and both side by side."""

import json
import re
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rollout_lab.simulate.compare import render_comparison
from rollout_lab.simulate.document import SimulationDocument, render_json

from rollout_operator.cli.dumps import BadDump
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.names import InvalidInput
from tests.lab.simulate.dumps import grow, to_yaml
from tests.lab.simulate.policy_dumps import (
    db_zones,
    list_delete_times,
    policy,
    render_words,
    run_changes,
)

pytestmark = pytest.mark.thorough


def test_a_field_is_set_in_mid_rollout_and_counts_at_once() -> None:
    """MT-31, MAZ-46: 30 s become 5 s in the first pause; then both pods of a zone go at a time."""
    changes = ["set db intervalSeconds to 5 at 30s", "set db rollingUpdate.maxUnavailable to 100%"]

    run = run_changes([*grow(*db_zones()), policy()], "new template", *changes)

    times = list_delete_times(run)
    assert timedelta(seconds=29) < times[1] - times[0] < timedelta(seconds=32)
    assert times[3] - times[2] < timedelta(seconds=1)
    assert [len(one.pods) for one in run.figures.batches] == [1, 1, 2, 2]
    assert re.search("4 batches of policy db, [567]s apart at least", render_words(run))


def test_others_cross_the_limit_of_the_policy_as_it_is_then() -> None:
    """Of the zone, and not of the annotation: what was one too many is not once two may be down."""
    objects = [*grow(*db_zones()), policy(paused=True)]
    changes = ["delete pod db-a-0 at 1s", "delete pod db-a-1"]

    strict = run_changes(objects, *changes)
    loose = run_changes(objects, "set db maxUnavailable to 2", *changes)

    assert [one.text for one in strict.figures.crossings] == [
        "db-a-1 is number 2 down of us-west-2a, of 1 allowed"
    ]
    assert loose.figures.crossings == ()


def test_an_order_of_zones_is_set() -> None:
    """MT-22, and a list that is empty."""
    sample = policy()
    sample["spec"]["azOrder"] = ["us-west-2c"]

    run = run_changes([*grow(*db_zones()), sample], "set db azOrder to []", "image v2")
    other = run_changes([*grow(*db_zones()), sample], "set db azOrder to us-west-2b,x", "image v2")

    assert (run.figures.deletes[0], other.figures.deletes[0]) == ("db-a-1", "db-b-1")


def test_a_policy_is_paused_by_its_name_and_goes_on() -> None:
    """MAZ-11a: spec.paused, and no annotation."""
    changes = ["new template at 1s", "resume db at 5m"]

    paused = run_changes([*grow(*db_zones()), policy()], "pause db", "new template at 1s")
    resumed = run_changes([*grow(*db_zones()), policy()], "pause db", *changes)

    assert paused.figures.deletes == ()
    assert "policy db: waiting: the policy is paused: 2 outdated pods of db-c" in render_words(
        paused
    )
    assert len(resumed.figures.deletes) == 6
    assert list_delete_times(resumed)[0] > timedelta(minutes=5)


def test_what_is_set_to_no_value_is_refused_by_the_operator() -> None:
    run = run_changes(
        [*grow(*db_zones()), policy()], "new template", "set db maxUnavailable to none at 20s"
    )

    assert run.figures.deletes == ("db-c-1",), "an open batch ends, and nothing else begins"
    story = render_words(run)
    assert "policy db it is refused: MultiAZRollout prod/db: spec.rollingUpdate.maxUn" in story


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("set db pods to 5", 'no field "pods" of a policy; there are maxUnavailable, '),
        ("set db pods to 5", "manageUpdateStrategy and progressDeadlineSeconds"),
        ("set db-a paused to true", 'no policy "db-a"; did you mean "db"'),
        ("pause dbs", 'no StatefulSet, rollout group or policy "dbs"; did you mean '),
    ],
)
def test_what_no_policy_has_is_named(change: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(why)):
        run_changes([*grow(*db_zones()), policy()], change)


def test_a_policy_of_another_file_takes_the_place_of_one(tmp_path: Path) -> None:
    """As it would be applied: without what the API server adds, and without namespace."""
    applied = policy(azOrder=["us-west-2b"])
    applied["metadata"] = {"name": "db"}
    path = tmp_path / "policy.yaml"
    path.write_bytes(to_yaml([applied]))

    changed = run_changes([*grow(*db_zones()), policy()], "image v2", flags=f"-policy {path}")
    alone = run_changes(grow(*db_zones()), "image v2", flags=f"-policy {path}")

    assert changed.figures.deletes[0] == alone.figures.deletes[0] == "db-b-1"
    (found,) = changed.dump.others_of(MULTI_AZ_ROLLOUTS)
    assert found["metadata"] == {**policy()["metadata"], "generation": 2}
    assert alone.exit_code == 0


def test_a_new_policy_is_the_younger_one(tmp_path: Path) -> None:
    """MAZ-24: what is applied now takes nothing from what is there."""
    path = tmp_path / "policy.yaml"
    path.write_bytes(to_yaml([{**policy(), "metadata": {"name": "a"}}]))

    run = run_changes([*grow(*db_zones()), policy()], flags=f"-policy {path}")

    assert [one.name for one in run.dump.policies if one.policy is None] == ["a"]


def test_a_file_without_a_policy_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(to_yaml(grow()))

    with pytest.raises(BadDump, match=r"^-policy /nowhere: No such file or directory"):
        run_changes(grow(), flags="-policy /nowhere")
    with pytest.raises(BadDump, match="no MultiAZRollout is in it"):
        run_changes(grow(), flags=f"-policy {path}")
    with pytest.raises(BadDump, match="the input holds MultiAZRollout db twice"):
        run_changes([*grow(*db_zones()), policy(), policy()])


def test_without_the_flag_of_the_operator_policies_are_not_obeyed() -> None:
    """A group that one would drive goes by its label, as it did."""
    objects = grow(*(replace(one, group="db") for one in db_zones()))
    flags = "-multi-az-rollouts.enabled=false"

    run = run_changes([*objects, policy()], "new template", flags=flags)
    without = run_changes(objects, "new template")

    assert "MultiAZRollout db in namespace prod is not obeyed" in render_words(run)
    assert run.figures.deletes == without.figures.deletes
    assert run.exit_code == 0


def test_policies_are_there_for_machines_and_absent_without_any() -> None:
    run = run_changes([*grow(*db_zones()), policy()], "new template")

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
    assert "policies" not in json.loads(render_json(run_changes(grow())))
    assert msgspec.convert(printed, SimulationDocument).policies


def test_two_settings_of_a_policy_stand_side_by_side() -> None:
    objects = [*grow(*db_zones()), policy()]

    run = run_changes(objects, "new template")
    versus = run_changes(objects, "set db intervalSeconds to 0", "new template")

    rows = list(render_comparison(run, versus, 100))
    assert any(re.fullmatch(r"batches of db +6 +6", row) for row in rows)
    assert any(re.fullmatch(r"shortest pause of db +3[0-2]s +[0-2]s", row) for row in rows)
