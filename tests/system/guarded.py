"""A namespace whose replicas are guarded: zones, pods that answer, an operator with webhooks."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from tests.second_try import BrokenPromise
from tests.system.hooked import hook_up
from tests.system.waits import read_metric
from tests.world.api import PODS, Json
from tests.world.clients import Workload
from tests.world.hooks import Hooks
from tests.world.operatorproc import OperatorProcess
from tests.world.sets import Missing, Snapshot
from tests.world.webpods import PodCall, WebPods
from tests.world.world import World

NO_DOWNSCALE: Final = "grafana.com/no-downscale"
PREPARE: Final = "grafana.com/prepare-downscale"
LAST_DOWNSCALE: Final = "grafana.com/last-downscale"
MIN_TIME: Final = "grafana.com/min-time-between-zones-downscale"
DOWNSCALE_RECORD: Final = "grafana.com/rollout-operator-downscale"
PATH: Final = "ingester/prepare-shutdown"
WAIT_LIMIT: Final = timedelta(seconds=60)


class Guarded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a test of downscales plays with."""

    world: World
    pods: WebPods
    operator: OperatorProcess
    hooks: Hooks

    def workload(self, name: str, label: str = "") -> Workload:
        """Return a StatefulSet as its clients see it."""
        return Workload(api=self.world.api, namespace=self.world.namespace, name=name, label=label)

    def refusal(self, name: str, counts: tuple[int, int], why: str) -> str:
        """Return how the API server words a refusal by prepare-downscale; `why` may be a start."""
        return (
            f'admission webhook "{self.hooks.name("prepare-downscale")}.grafana.com" denied the'
            f" request: downscale of statefulsets/{name} in {self.world.namespace} from"
            f" {counts[0]} to {counts[1]} replicas is not allowed because {why}"
        )

    async def count_rounds(self) -> int:
        """Return how often the operator has said that pods are prepared."""
        name = "rollout_operator_reviews_total"
        return int(await read_metric(self.operator, name, reason="pods_prepared") or 0)

    async def wait_recorded(self, *names: str) -> None:
        """Wait until each set carries the time of a downscale of this minute."""

        def check(now: Snapshot) -> Missing:
            late = [name for name in names if not is_of_now(_read_record(now.sets.get(name)))]
            return f"no {LAST_DOWNSCALE} of now on {late}" if late else ""

        await self.world.wait_until(check)

    async def wait_unrecorded(self, *names: str, limit: timedelta = WAIT_LIMIT) -> None:
        """Wait until all pods of these sets are there, and no living one carries a record."""

        def check(now: Snapshot) -> Missing:
            for name in names:
                if name not in now.sets or len(now.pods_of(name)) < _count_wanted(now, name):
                    return f"pods of {name} are missing"
            recorded = [
                pod["metadata"]["name"]
                for name in names
                for pod in now.pods_of(name)
                if has_downscale_record(pod) and "deletionTimestamp" not in pod["metadata"]
            ]
            return f"records on {recorded}" if recorded else ""

        await self.world.wait_until(check, limit)

    async def list_recorded(self) -> list[str]:
        """Return the names of the pods that carry a record."""
        pods = await self.world.api.items(PODS, self.world.namespace)
        return [pod["metadata"]["name"] for pod in pods if has_downscale_record(pod)]

    async def wait_called(self, *pods: str, limit: timedelta = WAIT_LIMIT) -> None:
        """Wait until each of these pods knows that it stays: un-prepared after all its calls."""
        await self.pods.wait_until(
            f"told that they stay: {pods}",
            lambda: all(is_called(self.pods.calls_to(pod)) for pod in pods),
            limit,
        )

    async def assert_judged(self) -> None:
        """Raise BrokenPromise for what SI-01 to 08, 10 or 11 have against it all."""
        judge = self.world.judge
        if found := await judge.downscale_violations(self.pods.calls):
            lines = [f"{each.invariant}: {each.text}" for each in found]
            raise BrokenPromise("\n".join([*lines, self.pods.describe()]))
        await judge.assert_clean()


def has_downscale_record(pod: Json) -> bool:
    """Say whether a pod carries the record of a downscale."""
    return DOWNSCALE_RECORD in pod["metadata"].get("annotations", {})


def is_called(calls: Sequence[PodCall]) -> bool:
    """Say whether a pod, after all these calls, has confirmed last that it stays."""
    return bool(calls) and calls[-1].method == "DELETE" and calls[-1].is_success


def is_of_now(stamp: str) -> bool:
    """Say whether a text is a time of this minute, RFC 3339 in UTC with whole seconds."""
    try:
        at = datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return False
    return abs(datetime.now(UTC) - at) < timedelta(minutes=1)


def _count_wanted(now: Snapshot, name: str) -> int:
    return int(now.sets[name]["spec"]["replicas"])


def _read_record(found: Json | None) -> str:
    if found is None:
        return ""
    return str(found["metadata"].get("annotations", {}).get(LAST_DOWNSCALE, ""))


def prepared_zone(pods: WebPods, zone: ZoneSpec, *, wait: str = "") -> ZoneSpec:
    """Return the zone with all that makes its pods be prepared before a downscale."""
    labels = {PREPARE: "true", **({MIN_TIME: wait} if wait else {})}
    annotations = {f"{PREPARE}-http-path": PATH, f"{PREPARE}-http-port": f"{pods.port}"}
    return replace(
        zone,
        labels={**(zone.labels or {}), **labels},
        annotations={**(zone.annotations or {}), **annotations},
    )


async def guard(
    world: World,
    *zones: ZoneSpec,
    pods: WebPods | None = None,
    flags: tuple[str, ...] = (),
    is_through_proxy: bool = False,
    registration: Mapping[str, object] | None = None,
) -> Guarded:
    """Create zones, start an operator, and return once the API server calls its webhooks."""
    pods = pods or await world.serve_pods()
    hooked = await hook_up(
        world, *zones, flags=flags, is_through_proxy=is_through_proxy, registration=registration
    )
    return Guarded(world=world, pods=pods, operator=hooked.operator, hooks=hooked.hooks)
