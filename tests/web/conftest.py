"""Both servers, each on a free port, for the tests that change nothing about them."""

from collections.abc import AsyncIterator

import pytest

from tests.web import admin_world, webhook_world


@pytest.fixture
async def admin() -> AsyncIterator[admin_world.World]:
    """Yield an admin server."""
    async with admin_world.serving() as admin:
        yield admin


@pytest.fixture
async def world() -> AsyncIterator[webhook_world.WebhookWorld]:
    """Yield a webhook server."""
    async with webhook_world.serving() as world:
        yield world
