"""Gates as a schedule knows them while the cache lags behind what this process wrote."""

import json
from collections.abc import Mapping
from typing import Any, cast

from rollout_operator.controllers.schedules import (
    OWN_WRITES_LAST,
    GateClient,
    KeptGates,
    render_gate,
)
from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import JsonObject, Precondition, Resource
from rollout_operator.model.decode.releases import decode_gate, watch_as
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.releases import (
    CreateGate,
    DeleteGate,
    GateOrigin,
    OwnerReference,
    ReleaseGate,
    WantedGate,
)
from tests.controllers.releases.bench import FakeKind, FakeReleaseApi
from tests.virtual_time import VirtualClock, in_virtual_time

OWNER = OwnerReference(
    api_version="kuberik.com/v1alpha1", kind="RolloutSchedule", name="nights", uid=Uid("uid-nights")
)
ORIGIN = GateOrigin(
    labels={"gate.kuberik.com/schedule-name": "nights"}, pretty_name="Nights", owners=(OWNER,)
)
WANTED = WantedGate(
    namespace="prod", name="nights-app", rollout="app", is_passing=False, origin=ORIGIN
)
VIEW = watch_as(decode_gate)
HEAD = {"name": "nights-app", "namespace": "prod", "uid": "uid-1", "resourceVersion": "7"}


class GateApi:
    """Stores what is created, and takes every delete."""

    def __init__(self) -> None:
        self.deleted: list[Precondition] = []

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        head = {**cast(Mapping[str, object], body["metadata"]), "namespace": namespace}
        return render({**body, "metadata": {**head, "uid": "uid-1", "resourceVersion": "7"}})

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, precondition: Precondition
    ) -> None:
        self.deleted.append(precondition)


def render(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()


class Rig:
    """The gates of one namespace, a cache that the test fills, and its callbacks."""

    def __init__(self) -> None:
        self.api = GateApi()
        self.cached = FakeKind([kinds.ROLLOUT_GATES], FakeReleaseApi())
        self.gates = KeptGates(cast(GateClient, self.api), self.cached, VirtualClock())

    async def create(self) -> WatchedObject:
        """Create the gate, and return it as the cache will show it."""
        await self.gates.carry_out(CreateGate(wanted=WANTED))
        return VIEW(await self.api.create(kinds.ROLLOUT_GATES, "prod", render_gate(WANTED)))

    def show(self, new: WatchedObject | None, old: WatchedObject | None = None) -> None:
        """Have the cache show a gate, or that it is gone."""
        self.cached.store.replace_all(() if new is None else (new,))
        self.cached._notify(old, new)

    def names(self) -> list[str]:
        return [one.head.name for one in self.gates.list_all()]


@in_virtual_time
async def test_a_gate_counts_from_its_creation_on() -> None:
    """REL-99: no second one is made while the cache does not show it."""
    rig = Rig()
    await rig.create()
    assert rig.names() == ["nights-app"]


@in_virtual_time
async def test_a_gate_that_this_process_deleted_is_gone_at_once() -> None:
    """REL-99: it is not deleted again by a cache that still shows it."""
    rig = Rig()
    shown = await rig.create()
    rig.show(shown)
    (gate,) = rig.gates.list_all()
    await rig.gates.carry_out(DeleteGate(head=gate.head))
    assert rig.names() == []
    assert rig.api.deleted == [Precondition(uid=Uid("uid-1"), resource_version="7")]


@in_virtual_time
async def test_a_gate_that_another_client_deleted_is_gone_as_the_cache_shows_it() -> None:
    """RELB-31 (l): it is made anew then, not half a minute later."""
    rig = Rig()
    shown = await rig.create()
    rig.show(shown)
    rig.show(None, old=shown)
    assert rig.names() == []


@in_virtual_time
async def test_what_was_written_counts_for_half_a_minute_at_most() -> None:
    """A gate that was deleted before any cache showed it is not waited for."""
    rig = Rig()
    await rig.create()
    await VirtualClock().sleep(OWN_WRITES_LAST * 1.1)
    assert rig.names() == []


def test_a_new_gate_says_all_that_it_is_known_by() -> None:
    """REL-99, REL-100: kind, owner, labels, and only the annotations that it has."""
    body = render_gate(WANTED)
    assert body == {
        "apiVersion": "kuberik.com/v1alpha1",
        "kind": "RolloutGate",
        "metadata": {
            "name": "nights-app",
            "namespace": "prod",
            "labels": {"gate.kuberik.com/schedule-name": "nights"},
            "annotations": {"gate.kuberik.com/pretty-name": "Nights"},
            "ownerReferences": [
                {
                    "apiVersion": "kuberik.com/v1alpha1",
                    "kind": "RolloutSchedule",
                    "name": "nights",
                    "uid": "uid-nights",
                }
            ],
        },
        "spec": {"rolloutRef": {"name": "app"}, "passing": False},
    }
    assert isinstance(decode_gate(render({**body, "metadata": HEAD})), ReleaseGate)
