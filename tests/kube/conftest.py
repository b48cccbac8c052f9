"""What most tests of the API client and its caches begin with."""

import os
from collections.abc import AsyncIterator

import pytest

from tests.kube.fake_api import FakeApi


@pytest.fixture(autouse=True)
def _no_system_cas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust nothing by default: reading the system's CAs took half of the time of these tests."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Yield a scripted HTTP server."""
    async with FakeApi() as api:
        yield api
