"""From grafana's operator to this one and back, in mid-rollout, on the real control plane.

Grafana's operator is played by a script that takes pods as it does; its Secret and its webhook
configurations are as it leaves them.
"""

import asyncio
import ssl
from collections import Counter
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import three_zones

from rollout_operator.model.names import REVISION_LABEL
from tests.system.certs import legacy
from tests.system.hooked import TLS_FLAGS, put_secret, secret_body, shake_hands, trusting
from tests.world.api import PODS, SECRETS, STATEFULSETS, Json
from tests.world.hooks import NO_DOWNSCALE, PREPARE_DOWNSCALE, Registration
from tests.world.manifests import SECRET
from tests.world.sets import PAUSED, is_ready
from tests.world.world import World

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

HOOKS: Final = (NO_DOWNSCALE, PREPARE_DOWNSCALE)
RECONCILE_EVERY: Final = timedelta(milliseconds=200)


async def test_dep99_a_switch_in_mid_rollout_and_back_restarts_no_pod_twice(world: World) -> None:
    """DEP-99, DEP-17, DEP-18: one new pod a place; Secret and `caBundle` stay untouched."""
    await world.grant_webhooks()
    data = legacy()
    await put_secret(world, secret_body(data))
    names = await world.create(*three_zones(replicas=2))
    first = await map_pods(world)
    # Nothing listens there: the script answers no webhook, and each operator has its own port.
    hooks = await world.register(
        Registration(port=1, hooks=HOOKS, ca_bundle=data["ca"], failure_policy="Ignore")
    )
    secret, configured = await world.get(SECRETS, SECRET), [await hooks.fetch(one) for one in HOOKS]

    # This operator stops before the last zone, however fast it is; the script knows no pause.
    await world.annotate(names[2], **{PAUSED: "true"})
    await world.set_image(names, "v2")
    await roll_out(world, names, deletes=1)

    operator = await world.operator(*TLS_FLAGS)
    served = await shake_hands(operator.tls_port, trusting(data["ca"]))
    assert served == ssl.PEM_cert_to_DER_cert(data["cert"].decode())
    await world.wait_adopted(names[:2])
    assert await operator.terminate() == 0
    ours = [one.name for one in await world.judge.deletes() if one.is_done]
    assert ours == ["ingester-zone-a-1", "ingester-zone-b-0", "ingester-zone-b-1"]

    await roll_out(world, names, deletes=2)
    await world.wait_rolled(names)

    await world.judge.settle()
    born = Counter(
        one.commit.name
        for one in world.judge.changes
        if one.commit.resource.plural == PODS.plural and one.before is None
    )
    assert born == dict.fromkeys(first, 2), "each was made twice: at first, and for the rollout"
    assert not first.items() & (await map_pods(world)).items()
    assert await world.get(SECRETS, SECRET) == secret
    assert [await hooks.fetch(one) for one in HOOKS] == configured
    await world.judge.assert_clean()


async def map_pods(world: World) -> dict[str, str]:
    """Return the UIDs of the pods by name."""
    pods: list[Json] = await world.api.items(PODS, world.namespace)
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


async def roll_out(world: World, names: list[str], *, deletes: int) -> None:
    """Do as grafana's operator does, until so many pods are deleted.

    Each reconcile: the first zone by name that has outdated pods, where every pod of all zones is
    ready; one of them, without preconditions.
    """
    done = 0
    while done < deletes:
        sets = {
            one["metadata"]["name"]: one
            for one in await world.api.items(STATEFULSETS, world.namespace)
        }
        pods = await world.api.items(PODS, world.namespace)
        wanted = sum(sets[name]["spec"]["replicas"] for name in names)
        if sum(map(is_ready, pods)) == wanted:
            outdated = [pod for name in names for pod in pods if is_outdated(pod, sets[name])]
            if outdated:
                await world.delete(PODS, outdated[0]["metadata"]["name"])
                done += 1
        await asyncio.sleep(RECONCILE_EVERY.total_seconds())


def is_outdated(pod: Json, sts: Json) -> bool:
    """Return whether a pod is the set's and not at its update revision."""
    meta = pod["metadata"]
    is_own = meta["name"].startswith(f"{sts['metadata']['name']}-")
    return is_own and bool(meta["labels"][REVISION_LABEL] != sts["status"]["updateRevision"])
