"""What people create and change in the stories, as the simulated API server takes it."""

import pytest

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.demo.flags import DemoSettings
from rollout_operator.lab.demo.objects import (
    GUARDED,
    NAMESPACE,
    PREPARED,
    allow_downscale,
    change_version,
    create_webhook,
    create_zone,
    pause,
    scale,
)
from rollout_operator.lab.demo.picture import Cell, PodCell, read_row
from rollout_operator.lab.demo.scenarios import TALES, count_cells, is_done, is_moving
from rollout_operator.lab.demo.stage import choose_behaviour
from rollout_operator.lab.model.fields import child, children, text
from rollout_operator.lab.model.request import ApiRequest
from rollout_operator.lab.nodes.behaviour import StartKind
from tests.lab.demo.pictures import NEW, OLD, STARTING, picture, row

SETTINGS = DemoSettings(pods=4, limit=2)


def body(request: ApiRequest) -> JsonObject:
    assert isinstance(request.body, dict)
    return request.body


def test_a_zone_has_the_pods_and_the_limit_that_are_asked_for() -> None:
    request = create_zone(SETTINGS, "zone-a", {})

    assert (request.verb, request.namespace) == ("create", NAMESPACE)
    assert len(read_row(body(request), {}).cells) == 4
    assert child(body(request), "metadata", "labels")["rollout-group"] == "ingester"
    assert child(body(request), "metadata", "annotations") == {"rollout-max-unavailable": "2"}


def test_a_guarded_zone_carries_its_label() -> None:
    labels = child(body(create_zone(SETTINGS, "zone-a", GUARDED)), "metadata", "labels")

    assert labels["grafana.com/no-downscale"] == "true"


def test_a_prepared_zone_says_where_its_pods_are_asked() -> None:
    metadata = child(body(create_zone(SETTINGS, "zone-a", PREPARED)), "metadata")

    assert child(metadata, "labels")["grafana.com/prepare-downscale"] == "true"
    annotations = child(metadata, "annotations")
    assert annotations["grafana.com/prepare-downscale-http-port"] == "8080"
    assert annotations["grafana.com/prepare-downscale-http-path"] == "prepare-shutdown"


@pytest.mark.parametrize(
    ("hook", "kind"),
    [
        ("no-downscale", "ValidatingWebhookConfiguration"),
        ("prepare-downscale", "MutatingWebhookConfiguration"),
    ],
)
def test_a_webhook_asks_the_operator_and_fails_closed(hook: str, kind: str) -> None:
    found = body(create_webhook(hook))
    (webhook,) = children(found, "webhooks")

    assert found["kind"] == kind
    assert text(webhook, "clientConfig", "service", "path") == f"/admission/{hook}"
    assert webhook["failurePolicy"] == "Fail"
    # By this one the operator knows that it may answer with a patch.
    assert text(found, "metadata", "labels", "grafana.com/namespace") == NAMESPACE


@pytest.mark.parametrize(
    ("request_", "change"),
    [
        (scale("zone-a", 2), {"spec": {"replicas": 2}}),
        (allow_downscale("zone-a"), {"metadata": {"labels": {"grafana.com/no-downscale": None}}}),
        (
            pause("zone-a", is_paused=True),
            {"metadata": {"annotations": {"grafana.com/rollout-paused": "true"}}},
        ),
        (
            pause("zone-a", is_paused=False),
            {"metadata": {"annotations": {"grafana.com/rollout-paused": None}}},
        ),
    ],
)
def test_changes_touch_nothing_else(request_: ApiRequest, change: JsonObject) -> None:
    assert (request_.verb, request_.name, request_.user) == ("patch", "zone-a", "you")
    assert request_.body == change


def test_a_new_template_keeps_the_name_of_the_container() -> None:
    """A strategic patch finds the container by it, and leaves the others alone."""
    request = change_version("zone-a", "v2")

    assert request.content_type == "application/strategic-merge-patch+json"
    containers = children(body(request), "spec", "template", "spec", "containers")
    assert containers == [{"name": "app", "image": "v2"}]


# How pods behave


def pod(version: str) -> JsonObject:
    return {"spec": {"containers": [{"name": "app", "image": version}]}}


def test_pods_of_before_the_story_are_quick_and_the_others_as_asked() -> None:
    choose = choose_behaviour(TALES["rollout"], SETTINGS)
    first, next_ = choose(pod("v1")), choose(pod("v2"))

    assert first.starts_after + first.ready_after < SETTINGS.ready_after / 5
    assert next_.starts_after + next_.ready_after == SETTINGS.ready_after
    assert next_.kind is StartKind.NORMAL


def test_only_the_bad_version_crashes() -> None:
    choose = choose_behaviour(TALES["bad-revision"], SETTINGS)

    kinds = {version: choose(pod(version)).kind for version in ("v1", "v2", "v3")}
    assert kinds == {"v1": StartKind.NORMAL, "v2": StartKind.CRASH_LOOP, "v3": StartKind.NORMAL}


# What is waited for


@pytest.mark.parametrize(
    ("cells", "update", "done"),
    [
        pytest.param((NEW, NEW), "1f", True, id="all new, and recorded"),
        pytest.param((NEW, NEW), "2e", False, id="all new, not recorded yet"),
        pytest.param((NEW, OLD), "1f", False, id="one old"),
        pytest.param((NEW, STARTING), "1f", False, id="one starting"),
    ],
)
def test_a_zone_is_done_when_it_is_recorded_so(
    cells: tuple[Cell, ...], update: str, done: bool
) -> None:
    found = picture(row("zone-a", *cells, current="1f", update=update))

    assert is_done("zone-a", found) is done
    assert not is_done("zone-b", found)


def test_a_zone_moves_while_a_pod_is_on_its_way() -> None:
    found = picture(row("zone-a", NEW, STARTING), row("zone-b", OLD, OLD))

    assert is_moving(found, "zone-a")
    assert not is_moving(found, "zone-b")
    assert count_cells(found, PodCell.OLD) == 2
