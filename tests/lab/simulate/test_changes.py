"""`-change`: its grammar, its times, and the names in it."""

import re
from datetime import timedelta

import pytest
from msgspec.structs import replace
from rollout_lab.simulate.changes import (
    FORMS,
    Cordon,
    Deed,
    DeletePod,
    EvictPod,
    KillOperator,
    Names,
    NewImage,
    NewTemplate,
    NoRoom,
    Pause,
    PodFails,
    PodRecovers,
    ScaleChange,
    check_names,
    parse_change,
    set_times,
)
from rollout_lab.simulate.policies import PolicyEdit

from rollout_operator.model.names import InvalidInput

NAMES = Names(
    groups={"ingester": ("zone-a", "zone-b"), "store": ("store-a",)},
    pods=frozenset({"zone-a-0", "zone-b-0", "store-a-0"}),
    nodes={"node-1": frozenset({"zone-a"}), "node-2": frozenset({"zone-a", "store-a"})},
)
NODELESS = replace(NAMES, nodes={})


@pytest.mark.parametrize(
    ("text", "deed"),
    [
        ("new template", NewTemplate()),
        ("new template zone-a", NewTemplate(("zone-a",))),
        ("  new   template zone-a, zone-b ", NewTemplate(("zone-a", "zone-b"))),
        ("bad template", NewTemplate(is_bad=True)),
        ("bad template zone-b", NewTemplate(("zone-b",), is_bad=True)),
        ("image v2", NewImage("v2")),
        ("image zone-a=repo:5000/app:v2", NewImage("repo:5000/app:v2", ("zone-a",))),
        ("image app@sha256:0a1b", NewImage("app@sha256:0a1b")),
        ("scale zone-a to 0", ScaleChange("zone-a", 0)),
        ("pod zone-a-1 fails", PodFails("zone-a-1")),
        ("pod zone-a-1 recovers", PodRecovers("zone-a-1")),
        ("delete pod zone-a-1", DeletePod("zone-a-1")),
        ("evict zone-a-1", EvictPod("zone-a-1")),
        ("evict pod zone-a-1", EvictPod("zone-a-1")),
        ("drain node-1", Cordon(("node-1",), is_zone=False, is_drain=True)),
        ("drain node node-1", Cordon(("node-1",), is_zone=False, is_drain=True)),
        ("drain n1 n2", Cordon(("n1", "n2"), is_zone=False, is_drain=True)),
        ("drain zone zone-b", Cordon(("zone-b",), is_zone=True, is_drain=True)),
        ("cordon node-1", Cordon(("node-1",), is_zone=False, is_drain=False)),
        ("cordon zone zone-b", Cordon(("zone-b",), is_zone=True, is_drain=False)),
        ("kill operator", KillOperator()),
        ("no room for 3 pods", NoRoom(3)),
        ("no room for 1 pod", NoRoom(1)),
        ("set db paused to true", PolicyEdit("db", "paused", True)),
        ("set db spec.azOrder to b, a", PolicyEdit("db", "azOrder", ["b", "a"])),
        ("set db maxUnavailable to 25%", PolicyEdit("db", "maxUnavailable", "25%")),
        ("set db intervalSeconds to 0", PolicyEdit("db", "intervalSeconds", 0)),
        ("pause zone-a", Pause("zone-a", is_paused=True)),
        ("resume zone-a", Pause("zone-a", is_paused=False)),
    ],
)
@pytest.mark.parametrize(
    ("end", "at"),
    [("", None), (" at 0", timedelta(0)), (" at 1m30s", timedelta(seconds=90))],
    ids=["no time", "at once", "later"],
)
def test_what_is_said_is_understood(text: str, deed: Deed, end: str, at: timedelta | None) -> None:
    change = parse_change(f"{text}{end}")

    assert (change.deed, change.at) == (deed, at)
    assert change.text == " ".join(f"{text}{end}".split())


def test_every_form_is_among_those_that_are_tried() -> None:
    """The forms are what a person is shown: each is understood as it stands, with names put in."""
    for form in FORMS:
        plain = re.sub(r"\[ZONE=\]|\[\w+ \.\.\.\]", "", form.shown)
        words = {"ZONE": "zone-a", "POD": "zone-a-0", "NODE": "n", "N": "2", "IMAGE": "v2"}
        words |= {"POLICY": "db", "FIELD": "paused", "VALUE": "true"}
        said = " ".join(words.get(word, word) for word in plain.split())
        assert parse_change(said).text == said


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no such change"),
        ("new templates", "no such change"),
        ("restart zone-a", '"scale ZONE to N"'),
        ("scale zone-a", 'no such change; did you mean "scale ZONE to N"?'),
        ("drian node-1", 'did you mean "drain NODE [NODE ...]" or "drain zone ZONE"?'),
        ("kill", 'did you mean "kill operator"?'),
        ("no room for many pods", '"many" is not an integer'),
        ("no room for -1 pods", "pods without room must be from 0 to 1000: -1"),
        ("scale zone-a to many", '"many" is not an integer'),
        ("scale zone-a to -1", "replicas must be from 0 to 1000: -1"),
        ("scale zone-a to 1001", "replicas must be from 0 to 1000: 1001"),
        ("image zone-a=", "no such change"),
        ("pause zone-a at noon", 'invalid duration "noon"'),
        ("pause zone-a at 5", 'missing unit in duration "5"'),
        ("pause zone-a at -1s", "a time before the start"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(complaint)):
        parse_change(text)


def test_a_change_without_time_comes_with_the_one_before() -> None:
    said = ("new template", "pause zone-a at 30s", "scale zone-b to 2", "image v2 at 30s")

    timed = set_times(parse_change(text) for text in said)

    assert [at.total_seconds() for at, _ in timed] == [0, 30, 30, 30]


def test_changes_come_in_the_order_of_their_times() -> None:
    with pytest.raises(
        InvalidInput, match='"pause zone-a at 1s": it comes before "image v2 at 2s"'
    ):
        set_times([parse_change("image v2 at 2s"), parse_change("pause zone-a at 1s")])


@pytest.mark.parametrize(
    "texts",
    [
        ["new template", "new template ingester zone-a", "image store=v2"],
        ["scale zone-a to 3", "pod zone-a-2 fails at 1m"],
        ["delete pod zone-b-0", "pause store-a", "resume store-a"],
        ["pause ingester", "resume ingester", "evict zone-b-0"],
        [
            "drain node-2",
            "drain node-2 node-1",
            "cordon node-1",
            "drain zone zone-a",
            "cordon zone store-a",
        ],
        ["kill operator", "no room for 2 pods"],
    ],
)
def test_known_names_are_taken(texts: list[str]) -> None:
    check_names(map(parse_change, texts), NAMES)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "new template zone-x",
            'no StatefulSet or rollout group "zone-x"; did you mean "zone-a" or "zone-b"?',
        ),
        ("new template ingestr", 'did you mean "ingester"?'),
        (
            "image other=v2",
            'group "other"; there are "store-a", "zone-a", "zone-b", "ingester" and',
        ),
        (
            "scale ingester to 2 at 5s",
            'no StatefulSet "ingester"; it is a rollout group: write "scale zone-a to 2 at 5s"; '
            'it has "zone-a" and "zone-b"',
        ),
        ("scale zone-b-0 to 2", 'it is a pod: write "scale zone-b to 2"'),
        ("pause zone", 'group "zone"; did you mean "zone-a" or "zone-b"?'),
        ("pause A", 'did you mean "store-a" or "zone-a"?'),
        ("pod zone-a-1 fails", 'no pod "zone-a-1"; did you mean "zone-a-0" or "zone-b-0"?'),
        ("pod zone-a fails", 'it is a StatefulSet: write "pod zone-a-0 fails"'),
        ("evict ingester", 'it is a rollout group: write "evict zone-a-0"; it has "zone-a-0" and'),
        ("delete pod zone-b-7", 'no pod "zone-b-7"'),
        ("drain node-3", 'no node "node-3"; did you mean "node-1" or "node-2"?'),
        ("drain node-1 node-3", 'no node "node-3"; did you mean'),
        ("drain zone-b", 'no node "zone-b"; it is a StatefulSet: write "drain zone zone-b"'),
        ("cordon ingester", 'it is a rollout group: write "cordon zone zone-a"'),
        ("drain zone-a-0", 'it is a pod: write "evict zone-a-0", or the node that it runs on'),
        ("drain zone ingester", 'it is a rollout group: write "drain zone zone-a"'),
        ("drain zone node-1", 'no StatefulSet "node-1"; there are "store-a", "zone-a" and'),
        ("set db paused to true", 'no policy "db"; there are none'),
        ("drain zone zone-b", "no pod of zone-b in the input has spec.nodeName"),
    ],
)
def test_an_unknown_name_is_refused_with_those_like_it(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(complaint)):
        check_names([parse_change(text)], NAMES)


@pytest.mark.parametrize("text", ["drain node-1", "cordon zone zone-a"])
def test_nodes_are_not_known_where_the_input_does_not_name_them(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^[^\n]*has spec\.nodeName[^\n]*$") as refused:
        check_names([parse_change(text)], NODELESS)

    assert str(refused.value).startswith(f'-change "{text}": no pod')
    assert "pass what `kubectl get statefulsets,pods -o yaml` prints" in str(refused.value)


def test_a_zone_has_the_nodes_of_its_pods() -> None:
    def list_nodes(text: str) -> tuple[str, ...]:
        deed = parse_change(text).deed
        assert isinstance(deed, Cordon)
        return NAMES.list_nodes(deed)

    assert list_nodes("drain zone zone-a") == ("node-1", "node-2")
    assert list_nodes("drain zone store-a") == ("node-2",)
    assert list_nodes("drain node-1") == ("node-1",)
    assert list_nodes("drain node-2 node-1") == ("node-2", "node-1")


@pytest.mark.parametrize(
    ("named", "zones"),
    [
        ((), ("store-a", "zone-a", "zone-b")),
        (("ingester",), ("zone-a", "zone-b")),
        (("zone-b", "ingester"), ("zone-b", "zone-a")),
    ],
    ids=["none is all", "a group is its zones", "none comes twice"],
)
def test_names_stand_for_zones(named: tuple[str, ...], zones: tuple[str, ...]) -> None:
    assert NAMES.expand(named) == zones
