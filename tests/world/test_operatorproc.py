"""An operator's process is started, watched, paused and ended, whatever program it is."""

import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.world.operatorproc import Launch, OperatorProcess

STAND_IN = """
import http.server, signal, sys

class Admin(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
port = next(word for word in sys.argv if word.startswith("-server.port=")).partition("=")[2]
print("flags", sys.argv[1:], file=sys.stderr, flush=True)
http.server.HTTPServer(("127.0.0.1", int(port)), Admin).serve_forever()
"""


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[OperatorProcess]:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    launch = Launch(
        folder=tmp_path,
        url="https://127.0.0.1:1",
        kubeconfig=tmp_path / "config",
        namespace="here",
        flags=("-log.level=debug",),
        command=(sys.executable, str(script)),
    )
    async with OperatorProcess(launch) as started:
        await started.wait_ready()
        yield started


async def test_it_gets_its_flags_and_shows_its_pages(process: OperatorProcess) -> None:
    assert await process.metrics() == "/metrics"
    flags = next(line for line in process.log_lines() if line.startswith("flags"))
    for flag in ("-kubernetes.namespace=here", f"-server.port={process.port}", "-log.level=debug"):
        assert flag in flags
    assert process.resident_kib() > 1000
    assert process.cpu_seconds() >= 0


async def test_it_ends_when_asked_and_starts_again(process: OperatorProcess) -> None:
    assert await process.terminate() == 3
    assert not process.is_running

    process.start()
    await process.wait_ready()


async def test_it_is_killed(process: OperatorProcess) -> None:
    process.kill()

    assert process.child.exit_code == -signal.SIGKILL
    assert not await process.is_ready()


async def test_a_paused_process_does_not_end_until_it_goes_on(process: OperatorProcess) -> None:
    process.pause()
    process.child.send(signal.SIGTERM)
    assert process.is_running

    process.resume()
    assert await process.wait_end() == 3


async def test_an_early_end_is_told_with_its_last_words(tmp_path: Path) -> None:
    launch = Launch(
        folder=tmp_path,
        url="",
        kubeconfig=tmp_path / "config",
        namespace="here",
        command=(sys.executable, "-c", "raise SystemExit('no such flag')"),
    )
    async with OperatorProcess(launch) as started:
        with pytest.raises(RuntimeError, match=r"(?s)ended with 1.*no such flag"):
            await started.wait_ready()


async def test_it_gets_a_port_for_webhooks_where_it_serves_them(tmp_path: Path) -> None:
    def launch(*flags: str) -> OperatorProcess:
        script = tmp_path / "stand_in.py"
        script.write_text(STAND_IN)
        return OperatorProcess(
            Launch(
                folder=tmp_path,
                url="https://127.0.0.1:1",
                kubeconfig=tmp_path / "config",
                namespace="here",
                flags=flags,
                command=(sys.executable, str(script)),
            )
        )

    async with launch("-server-tls.enabled=true") as serving:
        await serving.wait_ready()
        assert serving.tls_port != serving.port
        assert f"'-server-tls.port={serving.tls_port}'" in serving.log_lines()[0]

    async with launch() as bare:
        await bare.wait_ready()
        assert "server-tls" not in bare.log_lines()[0]
        with pytest.raises(RuntimeError, match=r"without -server-tls\.enabled"):
            _ = bare.tls_port
