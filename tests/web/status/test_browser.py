"""The page in a real browser: nothing complains, it fits, and it changes by itself."""

import pytest

from rollout_operator.model.description import Phase, PodState
from rollout_operator.model.outcome import Code
from tests.browser import browsing, find_browser
from tests.web.status.descriptions import HOSTILE, budget, describe, group, operator, waiting, zone
from tests.web.status.served import showing

BROWSER = find_browser()
WIDTHS = (1280, 400)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here; on Debian the package is `chromium`")
async def test_the_page_lives_in_a_browser() -> None:
    """One browser for all: it takes seconds to begin."""
    assert BROWSER is not None
    states = (*PodState, *(PodState.READY,) * 40)
    zones = tuple(zone(f"ingester-zone-{one}", states=states) for one in "abc")
    hostile = group("x", headline=HOSTILE, waits=(waiting(HOSTILE, remedy=HOSTILE),))
    before = describe(
        group(zones=zones, waits=(waiting(),)),
        hostile,
        operator=operator(parts=("pods watch: proved live 1 s ago",)),
        budgets=(budget(),),
    )
    after = describe(
        hostile, group(zones=zones, phase=Phase.HELD, headline="now paused", code=Code.PAUSED)
    )
    async with showing() as shown, browsing(BROWSER) as page:
        url = f"http://127.0.0.1:{shown.admin.server.port}/status"
        for width in WIDTHS:
            shown.now = before
            await page.open(url, width=width)
            await page.wait("document.getElementById('link').className === 'link live'")
            await page.wait("document.title === '2 waiting - prod'")
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide == width, "nothing sticks out"
            await page.evaluate("window.stays = document.getElementById('g-x')")
            words = "document.querySelector('#g-ingester .headline').textContent"
            assert "zone-b has 2 of 3 pods ready" in await page.evaluate(words)

            shown.now = after
            await page.wait(f"{words}.startsWith('now paused')")
            assert await page.evaluate("document.title") == "1 held, 1 waiting - prod"
            order = "[...document.getElementById('live').children].map((one) => one.id)"
            assert await page.evaluate(order) == ["summary", "g-ingester", "g-x"]
            assert await page.evaluate("window.stays.isConnected"), "what is the same stays"
        await shown.admin.server.stop()
        await page.wait("document.getElementById('link').className === 'link lost'")

    lost = [one for one in page.complaints if "status/events" not in one]
    assert lost == []
