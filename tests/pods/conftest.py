"""Clients of pods: patient, hasty, or with a single turn."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.pods import HttpSender, PodClient
from rollout_operator.telemetry.metrics import Metrics

# No answer is late here, however slow the machine is.
LONG = timedelta(seconds=20)
SHORT = timedelta(milliseconds=200)


@asynccontextmanager
async def opened(
    limit: timedelta, metrics: Metrics, *, at_most: int = 64
) -> AsyncIterator[PodClient]:
    client = PodClient(
        HttpSender("prod"), timeout=limit, metrics=metrics, clock=LoopClock(), at_most=at_most
    )
    yield client
    await client.close()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def client(metrics: Metrics) -> AsyncIterator[PodClient]:
    async with opened(LONG, metrics) as client:
        yield client


@pytest.fixture
async def hasty(metrics: Metrics) -> AsyncIterator[PodClient]:
    async with opened(SHORT, metrics) as client:
        yield client


@pytest.fixture
async def narrow(metrics: Metrics) -> AsyncIterator[PodClient]:
    """Yield a client with a single turn."""
    async with opened(LONG, metrics, at_most=1) as client:
        yield client
