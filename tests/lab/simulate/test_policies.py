"""Simulations under a MultiAZRollout: what it owns, its zones, batches and pauses, and refusals."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from rollout_lab.nodes.nodes import node
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.dump import choose_objects
from rollout_lab.simulate.flags import read_settings
from rollout_lab.zones import ZoneSpec

from rollout_operator.cli.dumps import BadDump
from rollout_operator.model.names import ExitCode
from tests.lab.simulate.dumps import Json, grow
from tests.lab.simulate.policy_dumps import (
    KEY,
    LABELS,
    db_zones,
    list_delete_times,
    policy,
    render_words,
    run_changes,
)
from tests.virtual_time import EPOCH

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[3]


def test_the_sample_goes_zone_by_zone_with_pauses() -> None:
    """MT-20, MT-22: in the order of the spec, the highest ordinal first, 30 s apart."""
    run = run_changes([*grow(*db_zones()), policy()], "new template")

    order = [f"db-{letter}-{ordinal}" for letter in "cab" for ordinal in (1, 0)]
    assert list(run.figures.deletes) == order
    times = list_delete_times(run)
    assert all(after - before > timedelta(seconds=40) for before, after in pairwise(times))
    assert run.figures.overlaps == ()
    assert run.exit_code == 0
    story = render_words(run)
    assert "policy db: rolled out: 6 pods of 3 zones" in story
    assert "at most 1 down in a zone, a pause of 30s, pods descending:" in story
    assert "db-c zone us-west-2c (Label), 2 of 2 pods ready" in story
    assert "policy db batch 1, of db-c in zone us-west-2c: db-c-1" in story
    assert "policy db batch 1 is complete; a pause of 30s follows" in story


def test_a_pause_of_hours_is_no_rest() -> None:
    """MAZ-40: virtual time passes for nothing, and nothing ends in between."""
    run = run_changes(
        [
            *grow(*db_zones()),
            policy(rollingUpdate={"intervalSeconds": 3600, "maxUnavailable": 2}),
        ],
        "image v2",
    )

    assert len(run.figures.deletes) == 6
    assert timedelta(hours=2) < run.play.moved_at < timedelta(hours=3)
    assert not run.play.is_cut


def test_a_pause_that_was_underway_is_kept() -> None:
    """MAZ-43: what the input has recorded of the last batch counts."""
    sample = policy()
    batch = {"number": 4, "zone": "us-west-2c", "statefulSet": "db-c", "updateRevision": "r"}
    times = {"startTime": "2026-01-02T03:04:40Z", "completionTime": "2026-01-02T03:04:50Z"}
    sample["status"] = {"lastBatch": {**batch, "pods": [{"name": "db-c-0", "uid": "u"}], **times}}

    flags = "-as-of 2026-01-02T03:05:00Z"
    run = run_changes([*grow(*db_zones()), sample], "new template", flags=flags)

    assert timedelta(seconds=19) < list_delete_times(run)[0] < timedelta(seconds=23)
    assert "policy db batch 5, of db-c" in render_words(run)


def test_a_killed_operator_repeats_no_batch_and_shortens_no_pause() -> None:
    """MT-30: killed in the middle of the first pause."""
    run = run_changes([*grow(*db_zones()), policy()], "new template", "kill operator at 25s")

    assert len(run.figures.deletes) == 6
    first, second, *_ = list_delete_times(run)
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
    run = run_changes([*grow(*db_zones()), policy(**spec)], "new template")

    story = render_words(run)
    assert "MultiAZRollout db in namespace prod is not in service" in story
    assert story.count(f"MultiAZRollout prod/db: {text}") >= 2
    assert "policy db: held: MultiAZRollout prod/db: spec." in story
    assert "] fix what is named: the field, the selector" in story
    assert run.figures.deletes == ()
    assert run.exit_code == 4


def test_of_two_policies_the_older_one_works() -> None:
    """MT-62."""
    younger = policy("younger", "2026-01-01T00:00:01Z", azOrder=["us-west-2a"])

    run = run_changes([*grow(*db_zones()), younger, policy()], "new template")

    assert run.figures.deletes[0] == "db-c-1"
    assert len(run.figures.deletes) == 6
    why = "StatefulSets of the older MultiAZRollout prod/db are selected: db-a, db-b and db-c"
    assert (
        f"MultiAZRollout prod/younger: spec.statefulSetSelector: {why} [Conflict]"
        in render_words(run)
    )
    assert run.exit_code == 4, "a person must choose"


def test_a_policy_over_a_whole_group_drives_it_beside_another_group() -> None:
    """MT-63: the annotation of the limit does not count, and the other group goes by its label."""
    ours = [replace(one, group="db", max_unavailable=2) for one in db_zones()]

    run = run_changes([*grow(*ours, ZoneSpec(name="other", replicas=1)), policy()], "new template")

    assert sorted(run.figures.deletes)[:6] == [f"db-{one}-{pod}" for one in "abc" for pod in (0, 1)]
    assert run.figures.most_down == {"db-a": 1, "db-b": 1, "db-c": 1, "other": 1}
    story = render_words(run)
    assert "Rollout group ingester in namespace prod: other" in story
    assert "Rollout group db" not in story
    assert run.exit_code == 0


def test_a_group_that_a_policy_drives_is_reported_by_the_policy() -> None:
    """Not as one more that waits, also after a restart."""
    ours = [replace(zone, group="db") for zone in db_zones()]

    run = run_changes([*grow(*ours), policy()], "bad template", "kill operator at 30s")

    story = render_words(run)
    assert "policy db: held: batch 1 of db-c is open" in story
    assert "replaces the pods" not in story


def test_a_policy_that_splits_a_group_leaves_it_to_its_label() -> None:
    """MT-64."""
    zones = [replace(one, group="db") for one in db_zones()]

    run = run_changes([*grow(*zones[:2], replace(zones[2], labels={})), policy()], "new template")

    assert run.figures.deletes[0] == "db-a-0", "by name, the lowest ordinal first"
    assert len(run.figures.deletes) == 6
    assert 'of the rollout group "db", db-a and db-b would be selected' in render_words(run)


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

    run = run_changes([*objects, *nodes], "new template", "delete pod db-b-0 at 3s")

    story = render_words(run)
    assert "db-c zone east (Nodes)" in story
    assert "db-a zone west (Nodes), 2 of 2 pods ready db-b zone west (Nodes)" in story
    [crossing] = run.figures.crossings
    assert crossing.text == "db-b-0 goes down beside pods of east"


def test_a_bad_template_holds_the_policy_and_is_stalled() -> None:
    """MT-46, MAZ-44: the deadline of the policy is waited for."""
    run = run_changes([*grow(*db_zones()), policy(progressDeadlineSeconds=1200)], "bad template")

    assert run.figures.deletes == ("db-c-1",)
    story = render_words(run)
    assert "policy db: held: batch 1 of db-c is open: zone us-west-2c: db-c has 1 of 2" in story
    assert "[batch_open] when it stays, find out why the named pods are not ready" in story
    assert run.exit_code == 4


def test_a_rollout_that_is_cut_off_may_go_on() -> None:
    """In a pause and in a batch."""
    objects = [*grow(*db_zones()), policy()]

    codes = [
        run_changes(objects, "new template", flags=f"-until {until}").exit_code
        for until in ("5s", "30s")
    ]

    assert codes == [3, 3]


def test_names_of_policies_stand_for_what_they_select() -> None:
    run = run_changes(
        [*grow(*db_zones(), ZoneSpec(name="other", replicas=1)), policy()], "new template db"
    )

    assert len(run.figures.deletes) == 6


def test_a_drain_beside_a_policy_crosses_its_bounds_by_zone() -> None:
    """What evictions take without a budget is shown at the zones of the policy, and counts."""
    objects = [*grow(*db_zones()), policy(rollingUpdate={"intervalSeconds": 0})]
    for one in objects:
        if one["kind"] == "Pod":
            one["spec"]["nodeName"] = f"node-{one['metadata']['name'].rpartition('-')[0]}"

    run = run_changes(objects, "new template", "drain zone db-a at 20s")

    assert [one.zones for one in run.figures.overlaps] == [("us-west-2a", "us-west-2c")]
    texts = [one.text for one in run.figures.crossings]
    assert "db-a-1 goes down beside pods of us-west-2c" in texts
    assert run.exit_code == 5
    assert not run.play.undone
    assert len(run.figures.deletes) < 6, "what was evicted comes back as new"


def test_what_no_policy_selects_is_no_input() -> None:
    lonely = [replace(one, labels={}) for one in db_zones()]
    refused = policy(statefulSetSelector={})

    with pytest.raises(BadDump, match="db-a, db-b and db-c: no label rollout-group, and no Multi"):
        choose_objects([*grow(*lonely), policy()], "")
    with pytest.raises(
        BadDump, match=r"MultiAZRollout prod/db: spec\.statefulSetSelector: an empty"
    ):
        choose_objects([*grow(*lonely), refused], "")


@pytest.mark.parametrize("namespace", [[], ["-namespace", "rollouts"]])
def test_a_manifest_that_was_never_applied_is_played(namespace: list[str]) -> None:
    """The sample as it is shipped."""
    sample = (ROOT / "manifests/multi-az-rollouts/sample.yaml").read_bytes()
    settings = read_settings(["-f", "-", *namespace, "-change", "new template"])

    run = simulate(settings, sample, EPOCH)

    assert run.exit_code == ExitCode.DONE
    assert (len(run.figures.deletes), run.figures.overlaps) == (9, ())
