"""`uninstall-webhooks`: what it deletes, what it leaves alone, what it says (DEP-85)."""

from collections import deque
from typing import Final

import pytest

from rollout_operator.cli.admin import LeftOver
from rollout_operator.cli.admin import uninstall as uninstall_webhooks
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, JsonObject
from rollout_operator.model.names import ApiError, Conflict, Denied, NotFound, UnknownOutcome
from tests.controllers.fake_client import FakeClient

Captured = pytest.CaptureFixture[str]


NAMESPACE: Final = "prod"
NAME: Final = "no-downscale-prod"
NO_DOWNSCALE: Final = f"ValidatingWebhookConfiguration {NAME}"
PREPARE: Final = "MutatingWebhookConfiguration prepare-downscale-prod"
NOTHING: Final = "there are no webhook configurations of namespace prod"


def configuration(
    name: str, path: str = "/admission/no-downscale", namespace: str = NAMESPACE
) -> JsonObject:
    """Return a configuration with the operator's labels and one hook."""
    service: JsonObject = {"name": "rollout-operator", "namespace": namespace, "path": path}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": {"grafana.com/namespace": namespace},
        },
        "webhooks": [{"name": f"{name}.grafana.com", "clientConfig": {"service": service}}],
    }


class Cluster(FakeClient):
    """The configurations of a cluster."""

    def __init__(self, *, validating: list[JsonObject], mutating: list[JsonObject]) -> None:
        super().__init__([], [])
        for resource, found in (VALIDATING_WEBHOOKS, validating), (MUTATING_WEBHOOKS, mutating):
            for one in found:
                self.put(resource.plural, one)

    @property
    def left(self) -> list[str]:
        return [name for _, name in self.objects]


def shipped() -> Cluster:
    """Return a cluster with the two configurations of our manifests, and two of others."""
    return Cluster(
        validating=[
            configuration("no-downscale-prod"),
            configuration("no-downscale-other", namespace="other"),
            configuration("policy", path="/validate"),
        ],
        mutating=[configuration("prepare-downscale-prod", path="/admission/prepare-downscale")],
    )


async def uninstall(cluster: Cluster, *, is_dry_run: bool = False) -> list[str]:
    """Return the lines printed; a line that starts with `!` is the error at the end."""
    printed: list[str] = []
    try:
        await uninstall_webhooks(cluster, NAMESPACE, printed.append, is_dry_run=is_dry_run)
    except LeftOver as error:
        printed.append(f"!{error}")
    return printed


async def test_only_what_is_of_this_operator_is_deleted() -> None:
    """DEP-85: by the namespace's label and the path, both kinds, one line each."""
    cluster = shipped()

    assert await uninstall(cluster) == [
        f"{NO_DOWNSCALE}: deleted",
        "ValidatingWebhookConfiguration policy: left alone, none of its webhooks calls /admission/",
        f"{PREPARE}: deleted",
    ]
    assert cluster.left == ["no-downscale-other", "policy"]
    assert cluster.deleted == ["no-downscale-prod", "prepare-downscale-prod"]


async def test_a_dry_run_deletes_nothing() -> None:
    cluster = shipped()

    assert [line for line in await uninstall(cluster, is_dry_run=True) if "would" in line] == [
        f"{NO_DOWNSCALE}: would be deleted",
        f"{PREPARE}: would be deleted",
    ]
    assert len(cluster.left) == 4
    assert not [call for call in cluster.calls if call.startswith("delete")]


async def test_a_second_run_finds_nothing_and_is_no_failure() -> None:
    cluster = Cluster(validating=[], mutating=[])

    assert await uninstall(cluster) == [NOTHING]


async def test_a_list_in_pages_is_read_to_its_end() -> None:
    names = [f"hook-{number:03}" for number in range(501)]
    cluster = Cluster(validating=[configuration(name) for name in names], mutating=[])

    assert len(await uninstall(cluster, is_dry_run=True)) == 501


async def test_a_write_of_the_operator_in_between_is_no_failure() -> None:
    """It renews `caBundle` in the very object: judged again, deleted at its new version."""
    cluster = Cluster(validating=[configuration("no-downscale-prod")], mutating=[])

    def write(call: str) -> None:
        if call.startswith("delete") and len(cluster.calls) < 4:
            newer = configuration("no-downscale-prod")
            newer["metadata"] = {**_metadata(newer), "resourceVersion": "2"}
            cluster.put(VALIDATING_WEBHOOKS.plural, newer)

    cluster.before = write

    assert await uninstall(cluster) == [f"{NO_DOWNSCALE}: deleted"]
    assert cluster.left == []


@pytest.mark.parametrize(
    "newer",
    [
        pytest.param(configuration("no-downscale-prod", path="/other"), id="another path"),
        pytest.param(configuration("no-downscale-prod", namespace="other"), id="another namespace"),
    ],
)
async def test_what_took_its_place_is_judged_anew(newer: JsonObject) -> None:
    """Of the same name, but nothing of ours: it stays."""
    cluster = Cluster(validating=[configuration("no-downscale-prod")], mutating=[])
    cluster.fail_delete[NAME] = deque([Conflict("precondition failed", status=409)])
    cluster.before = lambda call: (
        cluster.put(VALIDATING_WEBHOOKS.plural, newer) if call.startswith("get") else None
    )

    assert await uninstall(cluster) == [f"{NO_DOWNSCALE}: left alone, it has changed"]
    assert cluster.left == ["no-downscale-prod"]


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        pytest.param(NotFound("gone", status=404), True, id="another client was faster"),
        pytest.param(UnknownOutcome("no answer"), True, id="no answer, but done"),
        pytest.param(UnknownOutcome("no answer"), False, id="no answer, not done"),
    ],
)
async def test_what_became_of_a_delete_is_looked_up(error: ApiError, is_gone: bool) -> None:
    cluster = Cluster(validating=[configuration("no-downscale-prod")], mutating=[])
    cluster.fail_delete[NAME] = deque([error])
    if is_gone:
        cluster.before = lambda call: cluster.objects.clear() if call.startswith("get") else None

    assert await uninstall(cluster) == [f"{NO_DOWNSCALE}: deleted"]


async def test_a_fight_has_an_end() -> None:
    cluster = Cluster(validating=[configuration("no-downscale-prod")], mutating=[])
    cluster.fail_delete[NAME] = deque(Conflict("precondition failed", status=409) for _ in range(9))

    printed = await uninstall(cluster)

    assert printed[0] == (
        f"{NO_DOWNSCALE}: it changed 5 times while it was to be deleted: try again"
    )
    assert printed[1].startswith("!webhook configurations may be left: 1 failed")


async def test_what_is_forbidden_does_not_hide_the_rest() -> None:
    """Exit code 1, the refusal as it came, and everything else is done all the same."""
    cluster = shipped()
    cluster.fail_delete[NAME] = deque([Denied("grant verb delete", status=403)])

    printed = await uninstall(cluster)

    assert printed[0] == f"{NO_DOWNSCALE}: grant verb delete"
    assert printed[2] == f"{PREPARE}: deleted"
    assert printed[3].startswith("!webhook configurations may be left: 1 failed")


async def test_a_kind_that_cannot_be_listed_does_not_hide_the_other() -> None:
    cluster = shipped()

    def forbid(call: str) -> None:
        if call.startswith("list validating"):
            raise Denied("grant verb list", status=403)

    cluster.before = forbid

    assert await uninstall(cluster) == [
        "grant verb list",
        f"{PREPARE}: deleted",
        "!webhook configurations may be left: 1 failed, see above",
    ]


async def test_what_cannot_be_read_is_reported_and_stays() -> None:
    broken = configuration("broken")
    broken["webhooks"] = "none"
    cluster = Cluster(validating=[broken, configuration("no-downscale-prod")], mutating=[])

    printed = await uninstall(cluster)

    assert "webhooks" in printed[0]
    assert printed[1] == f"{NO_DOWNSCALE}: deleted"
    assert printed[2].startswith("!")
    assert cluster.left == ["broken"]


def _metadata(one: JsonObject) -> JsonObject:
    metadata = one["metadata"]
    assert isinstance(metadata, dict)
    return metadata
