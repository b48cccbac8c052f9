"""What fails is put off, by name; what an error means is the same for all kinds (LI-11)."""

from datetime import timedelta

import pytest

from rollout_operator.controllers.reconciles import RECHECK, Reconciles
from rollout_operator.controllers.retries import Attempts
from rollout_operator.model.errors import (
    Conflict,
    DecodeError,
    NotFound,
    OperatorError,
    Refused,
    TooManyRequests,
)
from tests.fakes_clock import FakeClock

FIRST = timedelta(milliseconds=100)
BUSY = timedelta(seconds=7)


class Bench:
    """Reconciles that end as the test wants."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.error: OperatorError | None = None
        self.tried: list[str] = []
        self.warned: list[str] = []
        self._reconciles = Reconciles(
            kind="Thing",
            attempts=Attempts(self.clock, longest=timedelta(seconds=5)),
            once=self._once,
            name_keys=lambda name: {"thing": name},
            on_failure=lambda name, error: self.warned.append(f"{name}: {error}"),
        )

    async def _once(self, name: str) -> timedelta | None:
        self.tried.append(name)
        if self.error is not None:
            raise self.error
        return None

    async def step(self, name: str = "a") -> timedelta | None:
        return (await self._reconciles.reconcile(name)).again


@pytest.mark.parametrize(
    ("error", "again", "warned"),
    [
        pytest.param(None, None, [], id="no error"),
        pytest.param(NotFound("gone"), RECHECK, [], id="gone: until the cache shows it"),
        pytest.param(Conflict("newer"), FIRST, [], id="a conflict is no news"),
        pytest.param(Refused("no"), FIRST, ["a: no"], id="refused"),
        pytest.param(DecodeError("odd"), FIRST, ["a: odd"], id="an answer that cannot be read"),
        pytest.param(
            TooManyRequests("busy", retry_after=BUSY), BUSY, ["a: busy"], id="as the server says"
        ),
    ],
)
async def test_what_an_error_means(
    error: OperatorError | None, again: timedelta | None, warned: list[str]
) -> None:
    bench = Bench()
    bench.error = error
    assert await bench.step() == again
    assert bench.warned == warned


async def test_what_failed_is_not_tried_before_its_time() -> None:
    """LI-11: nor does it hold up another object."""
    bench = Bench()
    bench.error = Refused("no")
    assert [await bench.step(), await bench.step(), await bench.step("b")] == [FIRST] * 3
    assert bench.tried == ["a", "b"]
    bench.clock.jump(FIRST)
    assert await bench.step() == 2 * FIRST
    assert bench.tried == ["a", "b", "a"]


async def test_a_success_forgets_the_failures() -> None:
    bench = Bench()
    bench.error = Refused("no")
    await bench.step()
    bench.clock.jump(FIRST)
    bench.error = None
    assert await bench.step() is None
    bench.error = Refused("no")
    assert await bench.step() == FIRST
