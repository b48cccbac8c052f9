"""A registry over TLS, and a client of it."""

from collections.abc import AsyncIterator

import pytest

from tests.oci.registries import FakeRegistry, Reader, open_reader


@pytest.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry() as registry:
        yield registry


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    reader = open_reader()
    yield reader
    await reader.exchange.close()
