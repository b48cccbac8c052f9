"""Following kinds of the cluster, all objects or one by its name (CA-01, SEC-18)."""

import asyncio
from dataclasses import dataclass

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
    ScriptedApi,
    as_raw,
    page,
)
from tests.model.webhook_trees import configuration_tree
from tests.virtual_time import in_virtual_time

DOWN = Unreachable("list validatingwebhookconfigurations: connection refused")


@dataclass
class Rig:
    api: ScriptedApi
    store: ConfigurationStore
    informer: Informer[Configuration]
    metrics: Metrics

    def cached(self) -> dict[str, float]:
        """Return the numbers of cached objects by label."""
        return {
            sample.labels["kind"]: sample.value
            for family in self.metrics.cached_objects.collect()
            for sample in family.samples
        }


def make(api: ScriptedApi, field_selector: str = "", metrics: Metrics | None = None) -> Rig:
    store, metrics = ConfigurationStore(), metrics or Metrics()
    of: Collection[Configuration] = Collection(
        resource=VALIDATING_WEBHOOKS,
        namespace="",
        decode=decode_validating_webhooks,
        store=store,
        field_selector=field_selector,
    )
    return Rig(api, store, Informer(api, of, metrics, LoopClock(), lambda: 0.5), metrics)


async def follow(rig: Rig, seconds: float) -> None:
    """Run the informer up to this moment of the loop."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(rig.informer.run(), name="informer")
        await after(seconds)
        task.cancel()


def item(name: str, version: int, **bend: object) -> msgspec.Raw:
    return as_raw({**configuration_tree(name, version), **bend})


@in_virtual_time
async def test_sec_18_one_configuration_is_asked_for_by_name_in_list_and_watch() -> None:
    rig = make(ScriptedApi([[page(10, item("guard", 5))]]), "metadata.name=guard")
    await follow(rig, 5)
    assert rig.api.field_selectors == ["metadata.name=guard"] * 2
    assert rig.cached() == {"ValidatingWebhookConfiguration metadata.name=guard": 1}


@in_virtual_time
async def test_two_informers_of_one_kind_have_series_of_their_own() -> None:
    metrics = Metrics()
    first = make(ScriptedApi([[page(10, item("a", 5))]]), "metadata.name=a", metrics)
    other = make(ScriptedApi([[page(10)]]), "metadata.name=b", metrics)
    await follow(first, 1)
    await follow(other, 2)
    assert sorted(first.cached().values()) == [0, 1]


@in_virtual_time
async def test_the_log_names_no_namespace(lines: list[str]) -> None:
    rig = make(ScriptedApi([[page("")], [DOWN], [page(10)]]), "metadata.name=guard")
    await follow(rig, 60)
    assert (
        'err="list validatingwebhookconfigurations: metadata.resourceVersion is empty"' in lines[0]
    )
    assert all("namespace" not in line for line in lines)
    assert all("field_selector=" in line for line in lines)
