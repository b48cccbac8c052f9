"""Following kinds of the cluster, all objects or one by its name (CA-01, SEC-18)."""

import asyncio

import msgspec

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import VALIDATING_WEBHOOKS
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.store import Configuration, ConfigurationStore
from rollout_operator.model.decode.webhooks import decode_validating_webhooks
from rollout_operator.model.errors import Unreachable
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.informer_rig import after
from tests.kube.scripted_watch import (
    Listing,
    ScriptedApi,
    as_raw,
    page,
)
from tests.model.webhook_trees import configuration_tree
from tests.samples import read_samples
from tests.virtual_time import in_virtual_time

DOWN = Unreachable("list validatingwebhookconfigurations: connection refused")


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
