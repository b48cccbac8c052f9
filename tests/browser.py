"""A real browser without a window: Chromium, driven by its DevTools protocol.

For tests and pictures. Where the machine has none, `find_browser` says so; on Debian the package
is called `chromium`.
"""

import asyncio
import base64
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "headless_shell")
LIMIT_S: Final = 60.0
_FLAGS: Final = (
    "--headless=new",
    "--remote-debugging-port=0",
    # Root in a container has no other way; what is loaded is our own page.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "about:blank",
)
_PORT_FILE: Final = "DevToolsActivePort"


def find_browser() -> str | None:
    """Return the program, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self.complaints: list[str] = []
        """What the console shows: errors, warnings, and what the page's policy has refused."""

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the answer to one command. Raises RuntimeError."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(LIMIT_S):
            while True:
                message = await self._socket.receive_json(loads=msgspec.json.decode)
                if message.get("id") != number:
                    self._take(message)
                elif "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                else:
                    return dict(message["result"])

    async def evaluate(self, script: str) -> Any:
        answer = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def wait(self, script: str) -> Any:
        """Wait until an expression is true, and return its value."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                if value := await self.evaluate(script):
                    return value
                await asyncio.sleep(0.05)

    async def open(self, url: str, *, width: int, height: int = 900) -> None:
        """Load a page in a window of this size."""
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            await self.call(f"{domain}.enable")
        await self.resize(width, height)
        await self.call("Page.navigate", url=url)
        await self.wait(f"document.readyState === 'complete' && location.href === {url!r}")

    async def resize(self, width: int, height: int) -> None:
        """Have a window of this size, on a screen of usual sharpness."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def run_scripts(self, *, is_on: bool) -> None:
        """Let pages that are opened from now on run scripts, or not."""
        await self.call("Emulation.setScriptExecutionDisabled", value=not is_on)

    async def draw(self) -> bytes:
        """Return what the window shows as a PNG."""
        answer = await self.call("Page.captureScreenshot")
        return base64.b64decode(answer["data"])

    def _take(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in {"error", "warning"}:
                self.complaints.append(str(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in {"error", "warning"}:
                self.complaints.append(str(parameters["entry"]))
            case "Audits.issueAdded":
                self.complaints.append(str(parameters["issue"]))


@asynccontextmanager
async def browsing(program: str) -> AsyncIterator[Page]:
    """Start a browser with one tab, and end it."""
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # No proxy of the machine between us and the loopback address, no files of the user.
        environ = {"PATH": os.environ["PATH"], "HOME": name}
        process = await asyncio.create_subprocess_exec(
            program,
            f"--user-data-dir={folder}",
            *_FLAGS,
            env=environ,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            port = await _read_port(folder / _PORT_FILE, process)
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(await _name_tab(session, port), max_msg_size=1 << 27) as socket,
            ):
                yield Page(socket)
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _read_port(file: Path, process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(LIMIT_S):
        while True:
            # Its second line comes last.
            if len(lines := _read_lines(file)) > 1:
                return int(lines[0])
            if process.returncode is not None:
                raise RuntimeError(f"the browser has ended with {process.returncode}")
            await asyncio.sleep(0.05)


def _read_lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def _name_tab(session: aiohttp.ClientSession, port: int) -> str:
    async with asyncio.timeout(LIMIT_S):
        while True:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = await answer.json(loads=msgspec.json.decode, content_type=None)
            for tab in tabs:
                if tab["type"] == "page":
                    return str(tab["webSocketDebuggerUrl"])
            await asyncio.sleep(0.05)
