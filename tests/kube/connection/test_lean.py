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
    """Whole: 859 modules of the library and 66 MiB; here 8 and 3 MiB."""
    modules, models, yaml, grown = run("""
        before = resident()
        from rollout_operator.kube import lean

        async def main():
            await lean.new_api_client(lean.new_configuration()).close()

        asyncio.run(main())
        ours = [name for name in sys.modules if name.startswith("kubernetes_asyncio")]
        print(len(ours))
        print(any("models." in name or ".client.api." in name for name in ours))
        print("yaml" in sys.modules)
        print(resident() - before)
    """)
    assert int(modules) < 15
    assert (models, yaml) == ("False", "False")
    assert float(grown) < 12


def test_a_generated_name_fails_and_says_why() -> None:
    [reported] = run("""
        from rollout_operator.kube import lean
        lean.new_configuration()
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
        print(type(kubernetes_asyncio.client.CoreV1Api).__name__)
        print(isinstance(lean.new_configuration(), kubernetes_asyncio.client.Configuration))
    """)
    assert (kind, same) == ("type", "True")


def test_the_configuration_of_a_cluster_is_loaded_without_the_rest() -> None:
    [models] = run("""
        from pathlib import Path
        from rollout_operator.kube import lean
        try:
            lean.load_incluster(lean.new_configuration(), Path("/no/token"), Path("/no/ca"), {})
        except lean.config_exception():
            pass
        print(any("models." in name for name in sys.modules))
    """)
    assert models == "False"


def test_an_import_that_fails_leaves_no_empty_packages() -> None:
    """The next caller would get a package without the names that the config modules take."""
    left, loaded = run("""
        from pathlib import Path
        from rollout_operator.kube import lean
        sys.modules["kubernetes_asyncio.client.api_client"] = None
        try:
            lean.new_configuration()
        except ImportError:
            sys.modules.pop("kubernetes_asyncio.client.api_client", None)
        print([name for name in sys.modules if name.startswith("kubernetes_asyncio")])
        try:
            lean.load_incluster(lean.new_configuration(), Path("/no/token"), Path("/no/ca"), {})
        except lean.config_exception() as error:
            print(type(error).__name__)
    """)
    assert (left, loaded) == ("[]", "ConfigException")
