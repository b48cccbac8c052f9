"""Traces of releases: the first, gates, a failed bake, retry, rollback, and a night.

As in `scenarios_releases`, with the controller of alerts as another HealthCheck.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace
from rollout_lab.model.fields import text
from rollout_lab.releases import foreign_check, gate, patch, schedule

from rollout_operator.kube.api import HEALTH_CHECKS, JsonObject
from rollout_operator.model.units import format_rfc3339
from tests.simulation.scenarios import Size
from tests.simulation.scenarios_releases import (
    APP,
    FIRST,
    RELEASING,
    announce,
    create,
    create_release,
    get_newest,
    list_applied_zones,
    open_gate,
    pin,
    request,
)
from tests.simulation.traces import Director, GoldenScenario

BAKE: Final[Mapping[str, object]] = {"bakeTime": "1m", "deployTimeout": "10m"}
MINUTE: Final = 60
EVENING: Final = datetime(2026, 1, 2, 22, 25, tzinfo=UTC)
Play = Callable[[Director], Awaitable[None]]
NIGHT: Final[JsonObject] = {
    "name": "night",
    "timeRange": {"start": "23:30", "end": "00:30"},
    "daysOfWeek": ["Friday"],
}


async def set_health(director: Director, status: str, message: str) -> None:
    """Write what the controller of alerts finds."""
    now = format_rfc3339(director.sandbox.api.now())
    found: JsonObject = {"status": status, "message": message, "lastChangeTime": now}
    if status == "Unhealthy":
        found["lastErrorTime"] = now
    sandbox = director.sandbox
    request = patch(HEALTH_CHECKS, "alerts", sandbox.namespace, {"status": found})
    await sandbox.call(replace(request, subresource="status"))


async def deploy(director: Director, tag: str) -> None:
    """Release a version that is good, to its end."""
    await announce(director.people, tag)
    await until_status(director, f"{tag} Deploying")
    await set_health(director, "Healthy", "no alert fires")
    await until_status(director, f"{tag} Succeeded")


async def until_status(director: Director, shown: str) -> None:
    """Wait until the newest entry of the history is such as `1.0.0 Succeeded`."""
    await director.until(lambda: show_newest(director) == shown, shown)


def show_newest(director: Director) -> str:
    """Return version and bake of the newest entry."""
    entry = get_newest(director.sandbox)
    return f"{text(entry, 'version', 'tag')} {text(entry, 'bakeStatus')}"


async def _deploy_first(director: Director) -> None:
    await deploy(director, "1.0.0")


async def _wait_for_gate(director: Director) -> None:
    await deploy(director, "1.0.0")
    await create(director.people, gate("freeze", APP, is_passing=False))
    await announce(director.people, "1.1.0")
    await asyncio.sleep(60)
    await announce(director.people, "1.2.0")
    await asyncio.sleep(60)
    await open_gate(director.people, "freeze", is_open=True)
    await until_status(director, "1.2.0 Deploying")
    await set_health(director, "Healthy", "no alert fires")
    await until_status(director, "1.2.0 Succeeded")


async def _fail(director: Director) -> None:
    """Release a version by which an alert fires while it bakes."""
    await deploy(director, "1.0.0")
    await announce(director.people, "1.1.0")
    await until_status(director, "1.1.0 Deploying")
    await set_health(director, "Healthy", "no alert fires")
    await until_status(director, "1.1.0 InProgress")
    await asyncio.sleep(20)
    await set_health(director, "Unhealthy", "5% of requests fail")
    await until_status(director, "1.1.0 Failed")


async def _fail_bake(director: Director) -> None:
    await _fail(director)
    await announce(director.people, "1.2.0")
    await asyncio.sleep(60)
    await set_health(director, "Healthy", "no alert fires")
    await request(director.people, "lets the next version go on", unblock_failed="true")
    await until_status(director, "1.2.0 Deploying")
    await set_health(director, "Healthy", "no alert fires")
    await until_status(director, "1.2.0 Succeeded")


async def _retry(director: Director) -> None:
    await _fail(director)
    await asyncio.sleep(60)
    await request(director.people, "tries 1.1.0 again", retry="true")
    await until_status(director, "1.1.0 Deploying")
    await set_health(director, "Healthy", "no alert fires")
    await until_status(director, "1.1.0 Succeeded")


async def _roll_back(director: Director) -> None:
    await _fail(director)
    await asyncio.sleep(60)
    await pin(director.people, "1.0.0")
    await until_status(director, "1.0.0 Deploying")
    await set_health(director, "Healthy", "no alert fires")
    await until_status(director, "1.0.0 Succeeded")
    await asyncio.sleep(60)
    await pin(director.people, None)
    await asyncio.sleep(60)
    await deploy(director, "1.2.0")


async def _wait_for_morning(director: Director) -> None:
    await deploy(director, "1.0.0")
    await create(director.people, schedule("nights", [NIGHT], timezone="Europe/Berlin"))
    await asyncio.sleep(15 * MINUTE)
    await announce(director.people, "1.1.0")
    await asyncio.sleep(45 * MINUTE)
    await until_status(director, "1.1.0 Deploying")
    await set_health(director, "Healthy", "no alert fires")
    await until_status(director, "1.1.0 Succeeded")


def _scenario(name: str, title: str, about: str, play: Play, **more: Any) -> GoldenScenario:
    return GoldenScenario(
        name=name,
        title=title,
        about=about,
        zones=list_applied_zones(Size(3, 1), f"app:{FIRST}"),
        play=play,
        prepare=lambda people: create_release(people, BAKE, foreign_check("alerts", APP)),
        args=RELEASING,
        **more,
    )


TRACES: Final = (
    _scenario(
        "first-release",
        "The first release of a Rollout",
        "It waits for no gate. Flux fetches and applies it, the zones have it already, and it bakes"
        " for a minute once the zones and the controller of alerts are content.",
        _deploy_first,
    ),
    _scenario(
        "gated-release",
        "A release behind a closed gate",
        "While a gate is closed two versions are announced. Once it is open the newest of them is"
        " deployed, zone after zone, and the other one never.",
        _wait_for_gate,
    ),
    _scenario(
        "failed-bake",
        "A release that fails while it bakes",
        "An alert fires. Nothing more is deployed by itself, until a person lets the next version"
        " go on.",
        _fail_bake,
    ),
    _scenario(
        "retried-release",
        "A release that is tried again",
        "An alert fires for a reason outside. A person has the same version prove itself anew: no"
        " pod goes for that.",
        _retry,
    ),
    _scenario(
        "rolled-back-release",
        "A rollback by wantedVersion, and its end",
        "After a failure a person wants the version before. Without that wish later, the version"
        " that failed is not deployed again, but the one after it.",
        _roll_back,
    ),
    _scenario(
        "release-after-the-night",
        "A schedule over midnight",
        "On Fridays nothing is deployed from 23:30 to 00:30 in Berlin. The story begins at 23:25"
        " there. What is announced before midnight waits until half an hour into Saturday.",
        _wait_for_morning,
        epoch=EVENING,
    ),
)
