"""The picture of the status page, served by its own server to a real browser."""

from typing import Final

from rollout_lab.demo.command import make_admin

from tests.browser import Page, browsing, find_browser
from tests.pictures.stage import NAMESPACE, busy_operator

WIDTH: Final = 1280
# What one sees without scrolling on a usual screen.
HEIGHT: Final = 1040


async def draw_status_page() -> bytes:
    """Return the picture. Raises RuntimeError where there is no browser."""
    program = find_browser()
    if program is None:
        raise RuntimeError("no Chromium here; on Debian the package is `chromium`")
    async with busy_operator() as process, browsing(program) as page:
        admin = make_admin(0, NAMESPACE, process.telemetry)
        admin.show(process.describe)
        await admin.start("127.0.0.1")
        try:
            return await _draw(page, f"http://127.0.0.1:{admin.port}/status")
        finally:
            await admin.stop()


async def _draw(page: Page, url: str) -> bytes:
    await page.open(url, width=WIDTH, height=HEIGHT)
    await page.wait("document.getElementById('link').className === 'link live'")
    return await page.draw()
