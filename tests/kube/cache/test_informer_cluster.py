"""Following kinds of the cluster (CA-01, SEC-18), and lists that go back (FP-05, SI-09)."""

import asyncio
from collections.abc import Sequence

import msgspec

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import VALIDATING_WEBHOOKS
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.store import Configuration, ConfigurationStore
from rollout_operator.model.decode.installation import decode_validating_webhooks
from rollout_operator.model.names import Gone, Unreachable
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.informer_rig import after, played
from tests.kube.scripted_watch import Listing, ScriptedApi, Wait, as_raw, bookmark, page, pod
from tests.model.webhook_trees import configuration_tree
from tests.samples import read_samples
from tests.virtual_time import in_virtual_time

DOWN = Unreachable("list validatingwebhookconfigurations: connection refused")

GONE = Gone("watch pods in namespace prod: too old resource version", status=410)


async def follow(
    until: float, *lists: Listing, name: str = "guard", metrics: Metrics | None = None
) -> tuple[ScriptedApi, dict[str, float]]:
    """Follow one configuration up to this moment of the loop; return what was cached, by label."""
    api, metrics = ScriptedApi(lists), metrics or Metrics()
    of: Collection[Configuration] = Collection(
        resource=VALIDATING_WEBHOOKS,
        namespace="",
        decode=decode_validating_webhooks,
        store=ConfigurationStore(),
        field_selector=f"metadata.name={name}",
    )
    informer = Informer(api, of, metrics, LoopClock(), lambda: 0.5)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(informer.run(), name="informer")
        await after(until)
        task.cancel()
    return api, {kind: value for (kind,), value in read_samples(metrics, "cached_objects").items()}


def item(name: str) -> msgspec.Raw:
    return as_raw(configuration_tree(name, 5))


@in_virtual_time
async def test_sec_18_one_configuration_is_selected_by_name_in_list_and_watch() -> None:
    """Two of one kind have series of their own."""
    metrics = Metrics()
    api, cached = await follow(5, [page(10, item("guard"))], metrics=metrics)
    assert api.field_selectors == ["metadata.name=guard"] * 2
    assert cached == {"ValidatingWebhookConfiguration metadata.name=guard": 1}
    _, cached = await follow(6, [page(10)], name="b", metrics=metrics)
    assert sorted(cached.values()) == [0, 1]


@in_virtual_time
async def test_the_log_names_no_namespace(lines: list[str]) -> None:
    await follow(60, [page("")], [DOWN], [page(10)])
    assert (
        'err="list validatingwebhookconfigurations: metadata.resourceVersion is empty"' in lines[0]
    )
    assert all("namespace" not in line for line in lines)
    assert all("field_selector=" in line for line in lines)


def back(*versions: int) -> Sequence[Listing]:
    """Return lists of these versions; up to 50, the pod `a-0` is another."""
    return [[page(v, pod("a-0", 80 if v > 50 else 7))] for v in versions]


@in_virtual_time
async def test_fp05_a_lagging_server_is_read_again(lines: list[str]) -> None:
    rig = await played(8, back(90, 50, 95), [[GONE]])
    assert rig.stored() == "Pod@80", "the old list was not taken"
    assert rig.restarts("went_back") == 1
    assert rig.requested[-1] == "watch 95"
    assert any("metadata.resourceVersion 50 < 90" in line for line in lines)


@in_virtual_time
async def test_fp05_a_restored_server_is_believed_in_the_end(lines: list[str]) -> None:
    rig = await played(30, back(90, 50, 50, 50, 50), [[GONE]])
    assert rig.stored() == "Pod@7"
    assert [one for one in rig.requested if "watch" in one][1] == "watch 50"
    assert 4 < rig.api.lists[-1].at < 15
    assert sum("Accepting an older list" in line for line in lines) == 1


@in_virtual_time
async def test_fp05_lagging_now_and_then_is_not_a_restore() -> None:
    rig = await played(30, back(90, 50, 50, 95, 60, 60, 99), [[GONE], [GONE]])
    assert [call.version for call in rig.api.watches] == ["90", "95", "99"]


@in_virtual_time
async def test_a_bookmark_counts_as_seen_when_a_list_goes_back() -> None:
    rig = await played(10, back(10, 20, 41), [[Wait(2), bookmark(40), GONE]])
    assert [call.version for call in rig.api.watches] == ["10", "41"]
