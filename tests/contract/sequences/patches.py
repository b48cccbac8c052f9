"""Patches of the three kinds, with preconditions and without."""

from collections.abc import Sequence

from rollout_lab.model.fields import child
from rollout_lab.model.request import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from tests.contract.bodies import config_map, pod, statefulset, uid_of, version_of
from tests.contract.plays import Play, add_each, sequence
from tests.contract.sides import CONFIG_MAPS
from tests.contract.world import World

OTHER_UID = "11111111-2222-3333-4444-555555555555"


@sequence()
async def a_patch_without_change_keeps_the_version(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "value"}})
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "value"}}, STRATEGIC_PATCH)
    await world.patch(CONFIG_MAPS, "a", [_step("replace", "/data/key", "value")], JSON_PATCH)
    await world.patch(CONFIG_MAPS, "a", {})
    await world.patch(CONFIG_MAPS, "a", [], JSON_PATCH)


@sequence()
async def a_mark_that_changed_or_went_before_a_late_patch(world: World) -> None:
    """SI-02: what holds by a mark holds by that very text, which the patch takes away."""
    path = "/metadata/annotations/example.com~1mark"
    held = '{"id":"7-1","replicasFrom":3,"replicasTo":2}'
    late = [
        _step("test", path, held),
        _step("remove", path),
        _step("add", "/metadata/annotations/late", "yes"),
    ]
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.patch(CONFIG_MAPS, "a", late, JSON_PATCH)  # no annotation at all
    await world.patch(CONFIG_MAPS, "a", {"metadata": {"annotations": {"other": "yes"}}})
    for text in (held.replace("7-1", "7-2"), held.replace(":3", ": 3"), held):
        await world.patch(CONFIG_MAPS, "a", late, JSON_PATCH)
        await world.patch(CONFIG_MAPS, "a", [_step("add", path, text)], JSON_PATCH)
    await world.patch(CONFIG_MAPS, "a", late, JSON_PATCH)
    await world.patch(CONFIG_MAPS, "a", late, JSON_PATCH)
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def preconditions_of_a_patch(world: World) -> None:
    for kind in (MERGE_PATCH, STRATEGIC_PATCH):
        await world.patch(CONFIG_MAPS, "a", {"data": {"key": "value"}}, kind)
    await world.patch(CONFIG_MAPS, "a", [], JSON_PATCH)
    made = await world.make(CONFIG_MAPS, config_map("a"))
    old, other = {"resourceVersion": version_of(made)}, {"uid": OTHER_UID}
    holds = {"uid": uid_of(made), **old}
    await world.patch(CONFIG_MAPS, "a", {"metadata": holds, "data": {"key": "other"}})
    for metadata in (old, other, {**old, **other}):
        for kind in (MERGE_PATCH, STRATEGIC_PATCH):
            await world.patch(CONFIG_MAPS, "a", {"metadata": metadata, "data": {"key": "3"}}, kind)
    await world.patch(CONFIG_MAPS, "a", {"metadata": old, "data": {"key": "other"}})
    await world.get(CONFIG_MAPS, "a")
    empty = {"resourceVersion": ""}
    await world.patch(CONFIG_MAPS, "a", {"metadata": empty, "data": {"key": "3"}})


@sequence()
async def preconditions_of_sets_and_pods(world: World) -> None:
    spec: JsonObject = {"spec": {"replicas": 1}}
    annotation: JsonObject = {"metadata": {"annotations": {"x": "y"}}}
    for resource, body, patch in (
        (STATEFULSETS, statefulset("a"), spec),
        (PODS, pod("a"), annotation),
    ):
        made = await world.make(resource, body)
        held: JsonObject = {"uid": uid_of(made), "resourceVersion": version_of(made)}
        for identity in ({"uid": OTHER_UID}, held, held):
            metadata = {**child(patch, "metadata"), **identity}
            await world.patch(resource, "a", {**patch, "metadata": metadata})


@sequence()
async def a_merge_patch_removes_by_null_and_replaces_lists(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a", annotations={"x": "y", "z": "w"}))
    await world.patch(CONFIG_MAPS, "a", {"metadata": {"annotations": {"x": None, "absent": None}}})
    await world.patch(CONFIG_MAPS, "a", {"data": None, "metadata": {"annotations": None}})
    await world.make(STATEFULSETS, statefulset("a"))
    containers = [{"name": "other", "image": "v2"}]
    template = {"spec": {"containers": containers}}
    await world.patch(STATEFULSETS, "a", {"spec": {"template": template}})


@sequence()
async def dry_run_of_a_patch_changes_nothing(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": 1}}, dryRun="All")
    await world.get(STATEFULSETS, "a")


def _strategic(*patches: JsonObject) -> Play:
    async def play(world: World) -> None:
        await world.make(STATEFULSETS, statefulset("a", template=TEMPLATE))
        for patch in patches:
            await world.patch(STATEFULSETS, "a", {"spec": {"template": patch}}, STRATEGIC_PATCH)

    return play


TEMPLATE: JsonObject = {
    "metadata": {"labels": {"name": "a"}, "annotations": {"x": "y"}},
    "spec": {
        "containers": [
            {
                "name": "app",
                "image": "v1",
                "args": ["-a", "-b"],
            },
            {"name": "side", "image": "s1"},
        ],
        "nodeSelector": {"zone": "a", "disk": "ssd"},
    },
}


def _container(**fields: object) -> JsonObject:
    return {"spec": {"containers": [{"name": "app", **fields}]}}


add_each(
    (
        ("an_image_by_name", _strategic(_container(image="v2"))),
        ("a_new_container_comes_first", _strategic(
            {"spec": {"containers": [{"name": "new", "image": "n"}]}})),
        ("a_container_is_deleted", _strategic(
            {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}})),
        ("arguments_are_replaced", _strategic(_container(args=["-c"]))),
        ("maps_are_merged", _strategic({"spec": {"nodeSelector": {"disk": None, "cpu": "big"}}})),
        ("annotations_of_the_template", _strategic(
            {"metadata": {"annotations": {"restartedAt": "now"}}})),
    ),
    "strategic_patches",
)  # fmt: skip


def _json(*steps: JsonObject) -> Play:
    async def play(world: World) -> None:
        body = config_map("a", annotations={"x/y": "z"})
        await world.make(CONFIG_MAPS, body)
        await world.patch(CONFIG_MAPS, "a", list(steps), JSON_PATCH)
        await world.get(CONFIG_MAPS, "a")

    return play


def _step(op: str, path: str, *value: object, **more: object) -> JsonObject:
    return {"op": op, "path": path, **({"value": value[0]} if value else {}), **more}


STEPS: Sequence[tuple[str, Play]] = (
    ("add", _json(_step("add", "/data/new", "1"))),
    ("add_over", _json(_step("add", "/data/key", "1"))),
    ("add_below_nothing", _json(_step("add", "/metadata/labels/x", "1"))),
    ("add_a_map", _json(_step("add", "/metadata/labels", {"x": "1"}))),
    ("replace", _json(_step("replace", "/data/key", "1"))),
    ("replace_nothing", _json(_step("replace", "/data/absent", "1"))),
    ("remove", _json(_step("remove", "/data/key"))),
    ("remove_nothing", _json(_step("remove", "/data/absent"))),
    ("remove_below_nothing", _json(_step("remove", "/metadata/labels/x"))),
    ("escaped_path", _json(_step("replace", "/metadata/annotations/x~1y", "1"))),
    ("test_holds", _json(_step("test", "/data/key", "value"), _step("remove", "/data/key"))),
    ("test_fails", _json(_step("test", "/data/key", "other"), _step("remove", "/data/key"))),
    ("test_of_nothing", _json(_step("test", "/data/absent", "x"), _step("remove", "/data/key"))),
    ("test_for_null", _json(_step("test", "/data/absent", None), _step("remove", "/data/key"))),
    ("a_failed_test_after_a_change", _json(
        _step("remove", "/data/key"), _step("test", "/data/key", "value"))),
    ("append_to_nothing", _json(_step("add", "/metadata/finalizers/-", "x.org/a"))),
)  # fmt: skip

add_each(STEPS, "json_patches")


TEXTS: Sequence[str] = (
    *("J\u00fcrgen", "<ann@example.com>", "a & b", "\x7f", "\U0001f600", "\u2027", "\u202a"),
    *("plain", "\u2028 \u2029", '"quoted" \\ \n \t \b \f \x01', "a/b~c'd`"),
)


@sequence()
async def a_test_of_a_text_compares_it_as_it_is_written(world: World) -> None:
    """REL-70: what people write in annotations is consumed by other means."""
    path = "/metadata/annotations/text"
    await world.make(CONFIG_MAPS, config_map("a", annotations={"x": "y"}))
    for text in TEXTS:
        await world.patch(CONFIG_MAPS, "a", [_step("add", path, text)], JSON_PATCH)
        await world.patch(CONFIG_MAPS, "a", [_step("test", path, text)], JSON_PATCH)
        held = _step("test", "/metadata/annotations", {"x": "y", "text": text})
        await world.patch(CONFIG_MAPS, "a", [held, _step("remove", path)], JSON_PATCH)
        await world.patch(CONFIG_MAPS, "a", {"metadata": {"annotations": {"text": None}}})


@sequence()
async def a_test_of_version_and_uid(world: World) -> None:
    made = await world.make(CONFIG_MAPS, config_map("a"))
    for path, value in (("resourceVersion", version_of(made)), ("uid", OTHER_UID)):
        for key in "12":
            steps = [_step("test", f"/metadata/{path}", value), _step("replace", "/data/key", key)]
            await world.patch(CONFIG_MAPS, "a", steps, JSON_PATCH)


@sequence()
async def a_replaced_version_is_a_precondition(world: World) -> None:
    made = await world.make(CONFIG_MAPS, config_map("a"))
    held = _step("replace", "/metadata/resourceVersion", version_of(made))
    for key in "12":
        await world.patch(CONFIG_MAPS, "a", [held, _step("replace", "/data/key", key)], JSON_PATCH)
