"""What the operator shows of itself, waited for by name."""

import asyncio
from datetime import timedelta
from typing import Final

import aiohttp

from tests.world.operatorproc import OperatorProcess

REASON_LIMIT: Final = timedelta(seconds=30)
POLL: Final = timedelta(milliseconds=20)


async def wait_reason(
    operator: OperatorProcess, group: str, what: str, limit: timedelta = REASON_LIMIT
) -> None:
    """Wait until the operator gives a reason of the group that has `what` in code or sentence.

    The log is asked: it holds every reason that was ever given, also one that has passed.
    """

    def is_told() -> bool:
        return any(f"group={group} " in line and what in line for line in operator.log_lines())

    try:
        async with asyncio.timeout(limit.total_seconds()):
            while True:
                if is_told():
                    return
                await asyncio.sleep(POLL.total_seconds())
    except TimeoutError as late:
        tail = "\n".join(operator.log_lines()[-15:])
        raise TimeoutError(f"after {limit}: nothing about {what!r} in\n{tail}") from late


async def read_metric(operator: OperatorProcess, name: str, **labels: str) -> float | None:
    """Return the value of the first series with these labels, None where there is none."""
    for line in (await operator.metrics()).splitlines():
        series, _, value = line.rpartition(" ")
        if series.partition("{")[0] == name and all(
            f'{key}="{wanted}"' in series for key, wanted in labels.items()
        ):
            return float(value)
    return None


async def wait_page(
    operator: OperatorProcess, path: str, status: int, what: str, *, lacking: str = ""
) -> str:
    """Wait until a page has this status and `what` in it, and not `lacking`; return its text."""
    seen = "no answer"
    try:
        async with asyncio.timeout(REASON_LIMIT.total_seconds()):
            while True:
                try:
                    code, text = await operator.fetch(path)
                except (aiohttp.ClientError, TimeoutError) as error:
                    seen = str(error)
                else:
                    is_lacking = not lacking or lacking not in text
                    if code == status and what in text and is_lacking:
                        return text
                    seen = f"{code}: {text}"
                await asyncio.sleep(POLL.total_seconds())
    except TimeoutError as late:
        raise TimeoutError(
            f"{path}: wanted {status} with {what!r} without {lacking!r}, got {seen}"
        ) from late
