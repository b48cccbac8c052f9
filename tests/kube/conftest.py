"""What most tests of the API client and its caches begin with."""

from collections.abc import AsyncIterator

import pytest

from tests.kube.client_bench import Bench, open_bench
from tests.kube.fake_api import FakeApi


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Yield a client's transport to a scripted HTTP server."""
    async with FakeApi() as server, open_bench(server) as bench:
        yield bench
