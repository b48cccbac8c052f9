"""The story of a release: its objects, what happens before it begins, and what it waits for.

How it is played is decided in `scenarios`.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from rollout_lab.demo.flags import DemoSettings
from rollout_lab.demo.objects import FIRST, GROUP, NAMESPACE, PERSON
from rollout_lab.demo.snapshot import DemoReason
from rollout_lab.demo.stage import DemoRun
from rollout_lab.flux import label_owner
from rollout_lab.model.fields import children, condition_of, text
from rollout_lab.model.request import ApiRequest
from rollout_lab.releases import gate, group_check, list_release, patch
from rollout_lab.world import Sandbox
from rollout_operator.kube.api import ROLLOUT_GATES, ROLLOUTS, JsonObject
from rollout_operator.model.units import format_duration

RELEASING: Final = ("-releases.enabled", "-releases.metadata=none")
GATE: Final = "freeze"
# In a cluster these are minutes.
BAKE: Final = timedelta(seconds=3)
APPLIED: Final = label_owner(GROUP, NAMESPACE)
"""Labels of the zones: Flux applies them."""
_ACTIVE: Final = ("Deploying", "InProgress")


def list_objects(settings: DemoSettings) -> list[ApiRequest]:
    """Return the requests that create a Rollout with all it stands on, but for its gate."""
    bake = {"bakeTime": format_duration(settings.scale(BAKE))}
    check = group_check("zones", GROUP, GROUP)
    return [obj.create(NAMESPACE, PERSON) for obj in [*list_release(GROUP, bake), check]]


async def deploy_first(stage: DemoRun) -> None:
    """Have the version that the zones have already be the first release, then close the gate."""
    stage.sandbox.start_flux()
    await stage.publish(GROUP, FIRST)
    await stage.until("the first release", lambda now: is_deployed(stage.sandbox, FIRST))
    await stage.sandbox.call(gate(GATE, GROUP, is_passing=False).create(NAMESPACE, PERSON))


def open_gate() -> ApiRequest:
    """Return the request that opens the gate."""
    return patch(ROLLOUT_GATES, GATE, NAMESPACE, {"spec": {"passing": True}}, PERSON)


def is_held(sandbox: Sandbox) -> bool:
    """Return whether a gate holds the release."""
    return text(condition_of(_get_rollout(sandbox), "GatesPassing"), "status") == "False"


def is_deployed(sandbox: Sandbox, version: str) -> bool:
    """Return whether a version is deployed, and has proven itself."""
    entry = _get_entry(sandbox)
    deployed = (text(entry, "version", "tag"), text(entry, "bakeStatus"))
    return deployed == (version, "Succeeded")


def list_waits(sandbox: Sandbox) -> Iterator[DemoReason]:
    """Yield what the release waits for: health or time once it is deployed, and gates before."""
    entry = _get_entry(sandbox)
    status = text(entry, "bakeStatus")
    if status in _ACTIVE:
        yield DemoReason(zone="", code=status, text=text(entry, "bakeStatusMessage"))
    elif is_held(sandbox):
        gates = condition_of(_get_rollout(sandbox), "GatesPassing")
        yield DemoReason(zone="", code=text(gates, "reason"), text=text(gates, "message"))


def _get_entry(sandbox: Sandbox) -> JsonObject:
    return next(iter(children(_get_rollout(sandbox), "status", "history")), {})


def _get_rollout(sandbox: Sandbox) -> JsonObject:
    return sandbox.api.get(ROLLOUTS, NAMESPACE, GROUP) or {}
