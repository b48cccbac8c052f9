"""Both servers, each on a free port, for the tests that change nothing about them."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.web.served import ServedAdmin, ServedWebhooks, serving, serving_admin


@pytest.fixture
async def admin() -> AsyncIterator[ServedAdmin]:
    async with serving_admin() as admin:
        yield admin


@pytest.fixture
def no_stack_trace(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """See that no stack trace was logged beside our own lines."""
    yield
    assert [one for one in caplog.get_records("call") if one.levelname == "ERROR"] == []


@pytest.fixture
async def webhooks() -> AsyncIterator[ServedWebhooks]:
    async with serving() as webhooks:
        yield webhooks
