"""The page in a real browser: nothing complains, it fits, and it changes by itself.

One browser for all: it takes seconds to begin.
"""

from collections.abc import AsyncIterator

import msgspec
import pytest

from rollout_operator.model.description import (
    Description,
    GroupDescription,
    PartReport,
    Phase,
    PodState,
)
from rollout_operator.model.outcome import Code
from tests.browser import Page, browsing, find_browser
from tests.web.served import ServedAdmin, showing
from tests.web.status.descriptions import HOSTILE, budget, describe, group, operator, waiting, zone
from tests.web.status.streams import behind_prefix

BROWSER = find_browser()
WIDTHS = (1280, 400)
PREFIX = "/api/v1/namespaces/prod/services/rollout-operator:8001/proxy"
HEADLINE = "document.querySelector('#g-ingester .headline')?.textContent"
LINK = "document.getElementById('link').className"
ORDER = "[...document.getElementById('live').children].map((one) => one.id)"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium; on Debian the package is `chromium`"),
]


class OpenedPage(msgspec.Struct):
    """A browser, and what it is shown."""

    page: Page
    shown: ServedAdmin

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.shown.server.port}"


@pytest.fixture
async def opened() -> AsyncIterator[OpenedPage]:
    """Yield a browser beside a server."""
    assert BROWSER is not None
    async with showing() as shown, browsing(BROWSER) as page:
        yield OpenedPage(page, shown)


def wait_for_pod() -> Description:
    """Return a namespace with much in it, some of it hostile."""
    states = (*PodState, *(PodState.READY,) * 40)
    zones = tuple(zone(f"ingester-zone-{one}", states=states) for one in "abc")
    return describe(
        group(zones=zones, waits=(waiting(),)),
        _hostile(),
        operator=operator(reports=(PartReport(name="pods watch", text="proved live 1 s ago"),)),
        budgets=(budget(),),
    )


def hold() -> Description:
    """Return the same a moment later: another headline, another order, some parts gone."""
    held = group(phase=Phase.HELD, headline="now paused", code=Code.PAUSED)
    return describe(_hostile(), held)


def _hostile() -> GroupDescription:
    return group("x", headline=HOSTILE, waits=(waiting(HOSTILE, remedy=HOSTILE),))


async def test_the_page_lives_in_a_browser(opened: OpenedPage) -> None:
    """Also behind a path, where all links must be relative, and without scripts."""
    page, shown = opened.page, opened.shown
    for width in WIDTHS:
        await _see_it_change(opened, f"{opened.address}/status", width)
    async with behind_prefix(shown.server.port, PREFIX) as port:
        for path in ("/", "/status"):
            await _see_it_change(opened, f"http://127.0.0.1:{port}{PREFIX}{path}", 1280)
        await page.open(f"http://127.0.0.1:{port}{PREFIX}/reasons#paused", width=400)
    assert await page.evaluate("document.querySelector(':target').textContent") == "paused"
    assert await page.evaluate("document.documentElement.scrollWidth") == 400

    await page.open(f"{opened.address}/status", width=1280)
    await page.wait(f"{LINK} === 'link live'")
    assert page.complaints == []
    await shown.server.stop()
    await page.wait(f"{LINK} === 'link lost'")
    await shown.server.start()


async def test_the_page_reloads_itself_without_scripts(opened: OpenedPage) -> None:
    opened.shown.now = wait_for_pod()
    await opened.page.run_scripts(is_on=False)
    await opened.page.open(f"{opened.address}/status", width=1280)
    assert "zone-b has 2 of 3" in await opened.page.evaluate(HEADLINE)
    opened.shown.now = hold()
    await opened.page.wait(f"{HEADLINE}?.startsWith('now paused')")

    assert opened.page.complaints == []
    await opened.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<i style=\"top:0\">')"
    )
    await opened.page.wait("true")
    assert "style" in str(opened.page.complaints), "what the policy refuses would have been seen"


async def _see_it_change(opened: OpenedPage, url: str, width: int) -> None:
    page = opened.page
    opened.shown.now = wait_for_pod()
    await page.open(url, width=width)
    await page.wait(f"{LINK} === 'link live' && document.title === '2 waiting - prod'")
    assert await page.evaluate("document.documentElement.scrollWidth") == width
    assert "zone-b has 2 of 3" in await page.evaluate(HEADLINE)
    await page.evaluate("window.stays = document.getElementById('g-x'); true")

    opened.shown.now = hold()
    await page.wait(f"{HEADLINE}?.startsWith('now paused')")
    assert await page.evaluate("document.title") == "1 held, 1 waiting - prod"
    assert await page.evaluate(ORDER) == ["summary", "g-ingester", "g-x"]
    assert await page.evaluate("window.stays.isConnected"), "what is the same stays as it is"
