"""The library is imported without its generated modules: memory and start-up time are budgeted."""

import subprocess
import sys
import textwrap

import pytest

_PREFIX = """
import asyncio, sys
import aiohttp, msgspec

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024
"""


def run(program: str) -> list[str]:
    code = _PREFIX + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_client_costs_few_modules_and_little_memory() -> None:
    """Whole: 859 modules of the library and 66 MiB; here 5 and half a MiB."""
    modules, others, grown = run("""
        from rollout_operator.kube import connection, lean
        before = resident()

        async def main():
            await lean.new_connector(lean.Configuration()).close()

        asyncio.run(main())
        ours = [name for name in sys.modules if name.startswith("kubernetes_asyncio")]
        print(len(ours))
        print({"dateutil", "multiprocessing", "urllib3", "yaml"} & sys.modules.keys())
        print(resident() - before)
    """)
    assert int(modules) < 8
    assert others == "set()"
    assert float(grown) < 3


def test_a_generated_name_fails_and_says_why() -> None:
    [reported] = run("""
        from rollout_operator.kube import lean
        lean.config_exception()
        import kubernetes_asyncio.client
        try:
            kubernetes_asyncio.client.CoreV1Api
        except AttributeError as error:
            print(error)
    """)
    assert reported.startswith("kubernetes_asyncio.client.CoreV1Api: ")
    assert "without its generated names by rollout_operator.kube.lean" in reported


@pytest.mark.slow
def test_a_library_that_is_there_already_is_used_as_it_is() -> None:
    kind, same = run("""
        import kubernetes_asyncio.client
        from rollout_operator.kube import lean
        rest = kubernetes_asyncio.client.rest

        async def main():
            await lean.new_connector(lean.Configuration()).close()
            return sys.modules["kubernetes_asyncio.client.rest"] is rest

        print(type(kubernetes_asyncio.client.CoreV1Api).__name__)
        print(asyncio.run(main()))
    """)
    assert (kind, same) == ("type", "True")


def test_the_configuration_of_a_cluster_is_loaded_without_the_rest() -> None:
    [others] = run("""
        from pathlib import Path
        from rollout_operator.kube import lean
        try:
            lean.load_incluster(lean.Configuration(), Path("/no/token"), Path("/no/ca"), {})
        except lean.config_exception():
            print({"urllib3", "kubernetes_asyncio.client.models"} & sys.modules.keys())
    """)
    assert others == "set()"
