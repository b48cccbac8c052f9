"""What is proposed, what is held back until when, and that no pod is replaced by it."""

import pytest
from msgspec.structs import replace

from rollout_operator.model.adoption import AdoptableSet
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.outcome import Severity
from rollout_operator.planning.adoption import AdoptionCode, AdoptionPlan
from tests.planning.adoption.adoptable import APP, DONE, plain, plan, three

ERROR, WARN, INFO = Severity.ERROR, Severity.WARN, Severity.INFO
ON_DELETE = {"type": "OnDelete", "rollingUpdate": None}
PARTITIONED = {"partition": 2}
UNDERWAY = replace(DONE, updated_replicas=1, update_revision="two")


def findings(found: AdoptionPlan) -> list[tuple[AdoptionCode, Severity]]:
    return [(one.code, one.severity) for group in found.groups for one in group.findings]


def test_three_plain_zones_become_a_group() -> None:
    [group] = plan(three()).groups

    assert (group.name, group.pods, group.checked, group.findings) == ("ingester", 9, True, ())
    assert [one.name for one in group.patched] == [f"ingester-zone-{zone}" for zone in "abc"]
    for one in group.patched:
        assert one.patch == {
            "metadata": {
                "labels": {"rollout-group": "ingester"},
                "annotations": {"rollout-max-unavailable": "1"},
            },
            "spec": {"updateStrategy": ON_DELETE},
        }


def test_the_way_back_restores_each_field() -> None:
    """What was there before comes back with its value, what was not goes."""
    sets = three(rolling_update={"partition": 0, "maxUnavailable": "25%"})
    one = plan(sets).groups[0].sets[0]

    assert one.undo == {
        "metadata": {
            "labels": {"rollout-group": None},
            "annotations": {"rollout-max-unavailable": None},
        },
        "spec": {
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"partition": 0, "maxUnavailable": "25%"},
            }
        },
    }


@pytest.mark.parametrize(
    ("before", "limit"),
    [(None, "1"), ({"maxUnavailable": 2}, "2"), ({"maxUnavailable": "25%"}, "25%"),
     ({"maxUnavailable": "0"}, "1")],
)  # fmt: skip
def test_as_many_pods_at_a_time_as_before(before: dict[str, object] | None, limit: str) -> None:
    [group] = plan(three(rolling_update=before)).groups

    assert group.sets[0].patch is not None
    head = group.sets[0].patch["metadata"]
    assert isinstance(head, dict)
    assert head["annotations"] == {"rollout-max-unavailable": limit}


def test_only_what_is_missing_is_patched() -> None:
    """A limit that a person has set stays, and so does a label in its long spelling."""
    first, *rest = three(annotations={"rollout-max-unavailable": "5"})
    labelled = replace(first, labels={**APP, "grafana.com/rollout-group": "ingester"})

    sets = plan([labelled, *rest]).groups[0].sets

    assert sets[0].patch == {"spec": {"updateStrategy": ON_DELETE}}
    assert sets[1].patch == {
        "metadata": {"labels": {"rollout-group": "ingester"}},
        "spec": {"updateStrategy": ON_DELETE},
    }


def test_what_is_adopted_is_left_alone_even_during_a_rollout() -> None:
    sets = three(labels={**APP, "rollout-group": "ingester"}, strategy="OnDelete", status=UNDERWAY)
    found = plan(sets)

    assert findings(found) == []
    assert not found.groups[0].patched
    assert not found.needs_a_person


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        pytest.param(
            plain("ingester-zone-a", status=UNDERWAY), (AdoptionCode.ROLLOUT_UNDERWAY, ERROR),
            id="outdated pods",
        ),
        pytest.param(
            plain("ingester-zone-a", status=UNDERWAY, strategy="OnDelete"),
            (AdoptionCode.ROLLOUT_UNDERWAY, ERROR), id="outdated pods under OnDelete",
        ),
        pytest.param(
            plain("ingester-zone-a", generation=2), (AdoptionCode.ROLLOUT_UNDERWAY, ERROR),
            id="a spec that the status does not know",
        ),
        pytest.param(
            plain("ingester-zone-a", status=replace(DONE, current_revision="zero")),
            (AdoptionCode.ROLLOUT_UNDERWAY, ERROR), id="a revision that is not recorded",
        ),
        pytest.param(
            plain("ingester-zone-a", rolling_update=PARTITIONED, status=None),
            (AdoptionCode.ROLLOUT_UNDERWAY, ERROR), id="a manifest whose partition may be in use",
        ),
        pytest.param(
            plain("ingester-zone-a", labels={"rollout-group": "other"}),
            (AdoptionCode.GROUPS_DIFFER, ERROR), id="another group",
        ),
        pytest.param(
            plain("ingester-zone-a", node_selector={"topology.kubernetes.io/zone": "zone-b"}),
            (AdoptionCode.ZONE_SHARED, ERROR), id="two sets in one zone",
        ),
        pytest.param(
            plain("ingester-zone-a", controller="SearchCluster main"),
            (AdoptionCode.OTHER_CONTROLLER, ERROR), id="a controller that owns it",
        ),
    ],
)  # fmt: skip
def test_what_is_named(first: AdoptableSet, expected: tuple[AdoptionCode, Severity]) -> None:
    """Each with what to do; an error holds the patches back and ends with 4."""
    is_in_group = expected[0] in (AdoptionCode.GROUPS_DIFFER, AdoptionCode.ZONE_SHARED)
    labels = {**APP, "zone": "zone-b", "rollout-group": "ingester"} if is_in_group else APP
    second = plain("ingester-zone-b", labels=labels)
    named = expected[0] is AdoptionCode.GROUPS_DIFFER
    found = plan([first, second], *([first.name, second.name] if named else []), group="ingester")

    assert findings(found) == [expected]
    assert all(one.text and one.remedy for one in found.groups[0].findings)
    assert found.needs_a_person
    assert not found.groups[0].patched


@pytest.mark.parametrize(
    "fields",
    [{"status": None}, {"rolling_update": PARTITIONED}, {"strategy": "OnDelete"}],
    ids=["a manifest", "a partition that keeps nothing back", "a group that is begun"],
)
def test_what_holds_nothing_back(fields: dict[str, object]) -> None:
    [group] = plan(three(**fields)).groups

    assert (group.findings, len(group.patched)) == ((), 3)
    assert group.checked == ("status" not in fields)


def test_a_partition_that_keeps_pods_back_must_be_set_to_0() -> None:
    """`kubectl rollout status` says that such a rollout is complete."""
    [finding] = plan(three(rolling_update=PARTITIONED, status=UNDERWAY)).groups[0].findings[:1]

    assert (finding.code, finding.severity) == (AdoptionCode.ROLLOUT_UNDERWAY, ERROR)
    assert "from 2 to 0" in finding.remedy


def test_one_zone_is_left_alone_and_an_error_only_if_it_was_meant() -> None:
    sets = [*three(), plain("compactor")]

    found = plan(sets)
    assert [(one.code, one.severity, one.object) for one in found.left_alone] == [
        (AdoptionCode.SINGLE_ZONE, INFO, "StatefulSet compactor")
    ]
    assert not found.needs_a_person
    assert plan(sets, "compactor").needs_a_person
    assert plan(sets, group="ingester").left_alone == ()


def test_names_and_a_group_make_zones_of_any_sets() -> None:
    sets = [plain("blue"), plain("green"), plain("red")]

    found = plan(sets, "blue", "green", group="db")

    assert [(group.name, [one.name for one in group.sets]) for group in found.groups] == [
        ("db", ["blue", "green"])
    ]


def test_a_zone_that_is_in_the_group_already_belongs_to_it() -> None:
    old = plain("ingester-old", labels={**APP, "rollout-group": "ingester"}, strategy="OnDelete")

    [group] = plan([*three(), old], "ingester-zone-a", "ingester-zone-b").groups

    assert [one.name for one in group.sets] == [
        "ingester-old", "ingester-zone-a", "ingester-zone-b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "owner"),
    [
        ({"controller": "SearchCluster main"}, "SearchCluster main controls it"),
        ({"labels": {"app.kubernetes.io/managed-by": "tidb-operator"}}, '"tidb-operator" manages'),
        ({"labels": {"managed-by": "lokistack-controller"}}, '"lokistack-controller" manages it'),
        ({"writers": ("helm", "vm-operator")}, '"vm-operator" writes its spec'),
        ({"writers": ("tidb-controller-manager",)}, '"tidb-controller-manager" writes its spec'),
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, ""),
        ({"labels": {"app.kubernetes.io/managed-by": "rollout-operator"}}, ""),
        ({"writers": ("kubectl-client-side-apply", "argocd-application-controller")}, ""),
        ({"writers": ("kustomize-controller", "helm-operator", "kube-controller-manager")}, ""),
    ],
)
def test_sets_of_another_controller_are_refused_by_its_name(
    fields: dict[str, object], owner: str
) -> None:
    """It would revert the patches. Tools that sync from Git get the patches there."""
    found = plan(three(**fields))

    [group] = found.groups
    texts = [one.text for one in group.findings if one.code is AdoptionCode.OTHER_CONTROLLER]
    assert [owner in text for text in texts] == ([True] * 3 if owner else [])
    assert bool(group.patched) == (not owner)
    assert found.needs_a_person == bool(owner)
    alone = plan([plain("db", **fields)]).left_alone[0]
    assert (alone.code is AdoptionCode.OTHER_CONTROLLER) == bool(owner)


def test_two_applications_get_no_group_in_common() -> None:
    """Each is held until it has a name, by which a person may take what differs together."""
    mimir = three(image="grafana/mimir")
    loki = [plain(f"ingester-zone-{zone}", image="grafana/loki") for zone in "xy"]
    found = plan([*mimir, *loki])

    assert findings(found) == [(AdoptionCode.APPLICATIONS_DIFFER, ERROR)] * 2
    assert not any(group.patched for group in found.groups)
    remedy = found.groups[1].findings[0].remedy
    assert remedy.endswith("adopt -group NAME ingester-zone-x ingester-zone-y")

    named = plan([*mimir, *loki], "ingester-zone-x", "ingester-zone-y", group="loki")
    assert [len(group.patched) for group in named.groups] == [2]
    both = plan([*mimir, *loki], "ingester-zone-a", "ingester-zone-x", group="one")
    assert findings(both) == [
        (AdoptionCode.APPLICATIONS_DIFFER, WARN), (AdoptionCode.ZONE_LEFT_OUT, WARN)
    ]  # fmt: skip


def test_a_name_that_another_application_has_for_its_group_is_refused() -> None:
    there = [
        plain(f"mimir-{zone}", image="mimir", labels={**APP, "rollout-group": "ingester"})
        for zone in "ab"
    ]
    own = [plain(f"ingester-{zone}", image="loki") for zone in "ab"]
    for found in (
        plan([*there, *own], "ingester-a", "ingester-b"),
        plan([*there, *own], "ingester-a", "ingester-b", group="ingester"),
    ):
        assert (AdoptionCode.APPLICATIONS_DIFFER, ERROR) in findings(found)
        assert not any(group.patched for group in found.groups)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["ingester-zone-a", "ingester-zone-b"], "ingester-zone-c looks like a zone and is not"),
        (["ingester-zone-a", "ingester-zone-b", "ingester-zone-c"], ""),
    ],
)
def test_a_zone_that_is_not_named_is_told(names: list[str], expected: str) -> None:
    sets = [*three(), plain("ingester-canary"), plain("ingester-zone-old", image="ingester:1")]
    [group] = plan(sets, *names).groups

    assert [one.text.startswith(expected) for one in group.findings] == [True] * bool(expected)


def test_one_name_is_too_few_where_others_look_like_its_zones() -> None:
    [alone] = plan(three(), "ingester-zone-a").left_alone

    assert alone.text.startswith("ingester-zone-b and ingester-zone-c look like zones of ingester")


@pytest.mark.parametrize("words", [{"names": ("x",)}, {"group": "x"}])
def test_names_that_are_not_there(words: dict[str, object]) -> None:
    names = words.get("names", ())
    assert isinstance(names, tuple)
    with pytest.raises(InvalidInput, match="x"):
        plan(three(), *names, group=f"{words.get('group', '')}")


@pytest.mark.parametrize("name", ["db\ntouch x\n", "db\n", "--all", "$(id)", "Db", "d\x1b[2Jb", ""])
def test_a_name_that_no_object_has_is_refused(name: str) -> None:
    """A line break in a name ends the comment that says the way back, and begins a command."""
    with pytest.raises(InvalidInput, match="is no name of an object"):
        plan([plain(f"{name}-a"), plain(f"{name}-b")])


@pytest.mark.parametrize("group", ["g\nrm -r x", "g h", "-g", "g" * 64])
def test_a_group_that_no_label_can_name_is_refused(group: str) -> None:
    with pytest.raises(InvalidInput, match="is no value of a label"):
        plan(three(labels={"rollout-group": group}))
    with pytest.raises(InvalidInput, match="is no value of a label"):
        plan([plain("blue"), plain("red")], "blue", "red", group=group)
