"""What the operator shows of itself, and waits for it by name."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import aiohttp

from tests.world.api import Json, Resource
from tests.world.manifests import LEASE
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

# Not what anything takes, but what a machine may take on which much else runs.
WAIT_LIMIT: Final = timedelta(seconds=120)
POLL: Final = timedelta(milliseconds=30)
# Of the wait so far. A question costs the operator and the API server some milliseconds each.
POLL_SHARE: Final = 0.1
LONGEST_POLL: Final = timedelta(milliseconds=300)


async def wait_true(
    what: str | Callable[[], str],
    holds: Callable[[], bool | Awaitable[bool]],
    limit: timedelta = WAIT_LIMIT,
) -> None:
    """Try until something holds, ever more rarely. Raises TimeoutError that names it."""
    begin = time.monotonic()
    try:
        async with asyncio.timeout(limit.total_seconds()):
            while True:
                answer = holds()
                if await answer if isinstance(answer, Awaitable) else answer:
                    return
                pause = (time.monotonic() - begin) * POLL_SHARE
                await asyncio.sleep(
                    min(max(pause, POLL.total_seconds()), LONGEST_POLL.total_seconds())
                )
    except TimeoutError as late:
        text = what if isinstance(what, str) else what()
        raise TimeoutError(f"after {limit}: not {text}") from late


async def wait_line(operator: OperatorProcess, *parts: str) -> str:
    """Wait for a line of the log with all these parts and return it. Raises TimeoutError."""

    def find() -> str:
        lines = operator.log_lines()
        return next((line for line in lines if all(part in line for part in parts)), "")

    await wait_true(lambda: f"{parts} in\n{operator.child.tail()}", lambda: bool(find()))
    return find()


async def wait_reason(operator: OperatorProcess, group: str, what: str) -> None:
    """Wait until the operator gives a reason of the group that has `what` in code or sentence.

    The log is read: it holds every reason that was ever given, also one that has passed.
    """
    await wait_line(operator, f"group={group} ", what)


async def wait_page(
    operator: OperatorProcess, path: str, status: int, what: str, *, lacking: str = ""
) -> str:
    """Wait until a page has this status and `what` in it, and not `lacking`; return its text."""
    seen = (0, "no answer")

    async def is_there() -> bool:
        nonlocal seen
        try:
            seen = await operator.fetch(path)
        except (aiohttp.ClientError, TimeoutError) as error:
            seen = (0, str(error))
        code, text = seen
        return code == status and what in text and not (lacking and lacking in text)

    wanted = f"{path}: {status} with {what!r} without {lacking!r}"
    await wait_true(lambda: f"{wanted}, but {seen}", is_there)
    return seen[1]


async def read_metric(operator: OperatorProcess, name: str, /, **labels: str) -> float | None:
    """Return the value of the first series with these labels, None where there is none."""
    for line in (await operator.metrics()).splitlines():
        series, _, value = line.rpartition(" ")
        if series.partition("{")[0] == name and all(
            f'{key}="{wanted}"' in series for key, wanted in labels.items()
        ):
            return float(value)
    return None


async def acts(operator: OperatorProcess) -> bool:
    name = "rollout_operator_leader_election_master_status"
    return await read_metric(operator, name, name=LEASE) == 1


async def show_columns(world: World, resource: Resource) -> Json:
    """Return the only row that `kubectl get` prints, by column and without its age."""
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    url = f"{world.plane.url}{resource.path(world.namespace)}"
    async with world.api.session.get(url, headers=accept) as response:
        table = await response.json()
    (row,) = table["rows"]
    shown = zip(table["columnDefinitions"], row["cells"], strict=True)
    return {
        column["name"]: cell
        for column, cell in shown
        if column["priority"] == 0 and column["name"] != "Age"
    }
