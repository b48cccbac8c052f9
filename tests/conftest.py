"""What holds for every test. Warnings are errors: see `filterwarnings` in pyproject.toml."""

import gc
from collections.abc import Generator, Iterator
from importlib.util import find_spec

import msgspec
import pytest
from hypothesis import settings

from rollout_operator.telemetry import logs

# An example may take any time: what else the machine does is not to fail a test.
settings.register_profile("gate", deadline=None, max_examples=50)
# Ten times as many as a test says.
settings.register_profile("prove", deadline=None, max_examples=1000)
# Half of the examples in the gate, and a fifth here: see `tests.examples`.
settings.register_profile("fast", deadline=None, max_examples=20)
settings.load_profile("gate")

# `pytester` runs small test files of its own, to prove the guards. The control plane's fixtures
# are there for every test that requests them, and start nothing before.
pytest_plugins = [
    "pytester",
    "tests.steady_loop",
    "tests.watchdogs",
    "tests.goldens",
    "tests.named",
    "tests.groups",
    "tests.proven",
    "tests.second_try",
]
if find_spec("tests.world.fixtures") is not None:
    pytest_plugins.append("tests.world.fixtures")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: all that is made stays, a fifth of the time goes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keep the tests themselves out of the garbage collector: it would walk over all of them,
    a quarter of a second each time. And look for garbage seldom: what a simulation makes stays in
    its history, and a tenth of its time went into finding none.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Name the fields in which two values of a kind differ; pytest knows those of dataclasses."""
    if op != "==" or type(left) is not type(right) or not isinstance(left, msgspec.Struct):
        return None
    pairs = {name: (getattr(left, name), getattr(right, name)) for name in left.__struct_fields__}
    differing = [
        f"{name}: {mine!r} != {its!r}" for name, (mine, its) in pairs.items() if mine != its
    ]
    return [f"{type(left).__name__} differs in", *differing]


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Commands make the log quiet, for the whole process; the next test has it as it was."""
    yield
    logs.configure()


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Yield the lines of the log, debug included, as they come."""
    caught: list[str] = []
    logs.configure(write=lambda line: caught.append(line.decode()))
    yield caught
    logs.configure()
