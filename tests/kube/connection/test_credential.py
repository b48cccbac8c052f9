"""Credentials that change while we run (DEP-11, SEC-14)."""

from datetime import timedelta
from pathlib import Path

import pytest

from rollout_operator.kube.kubeconfig import RELOAD_GAP, REREAD_EVERY, Credential, token_file
from rollout_operator.kube.lean import LibraryConfiguration, new_configuration
from rollout_operator.model.names import ConfigError
from tests.fakes_clock import FakeClock


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


async def shown(credential: Credential, configuration: LibraryConfiguration) -> str:
    await credential.show_current(configuration)
    return configuration.api_key["BearerToken"]


async def test_dep_11_a_rotated_file_is_used_within_a_minute(file: Path) -> None:
    clock, configuration = FakeClock(), new_configuration()
    credential = token_file(file, clock)
    assert await shown(credential, configuration) == "Bearer first"
    file.write_text("second")  # noqa: ASYNC240 - a test may block
    clock.jump(REREAD_EVERY - timedelta(seconds=1))
    assert await shown(credential, configuration) == "Bearer first"
    clock.jump(timedelta(seconds=1))
    assert await shown(credential, configuration) == "Bearer second"
    assert timedelta(minutes=1) > REREAD_EVERY


async def test_dep_11_a_refused_token_is_read_again_at_once(file: Path) -> None:
    credential = token_file(file, FakeClock())
    file.write_text("second")  # noqa: ASYNC240 - a test may block
    await credential.replace_refused("Bearer first")
    assert credential.value == "Bearer second"
    file.write_text("third")  # noqa: ASYNC240 - a test may block
    await credential.replace_refused("Bearer first")
    assert credential.value == "Bearer second", "another call had renewed it"


@pytest.mark.parametrize("broken", ["", " \n", "a b", "a\nb: c", "zürich", "\x00"])
async def test_sec_14_a_broken_file_leaves_the_old_token(file: Path, broken: str) -> None:
    clock = FakeClock()
    credential = token_file(file, clock)
    file.write_text(broken)  # noqa: ASYNC240 - a test may block
    clock.jump(REREAD_EVERY)
    assert await shown(credential, new_configuration()) == "Bearer first"
    with pytest.raises(ConfigError) as caught:
        token_file(file, clock)
    assert str(caught.value).startswith(f"token file {file}: it holds no token")
    assert not broken.strip() or broken.strip() not in str(caught.value)


async def test_a_file_that_vanishes_leaves_the_old_token(file: Path) -> None:
    credential = token_file(file, FakeClock())
    file.unlink()  # noqa: ASYNC240 - a test may block
    await credential.replace_refused("Bearer first")
    assert credential.value == "Bearer first"
    with pytest.raises(ConfigError, match=f"token file {file}: No such file"):
        token_file(file, FakeClock())


async def test_a_program_is_not_run_for_each_refused_call() -> None:
    clock = FakeClock()
    runs = 0

    async def load() -> str:
        nonlocal runs
        runs += 1
        return "Bearer same"

    credential = Credential("Bearer same", load, clock)
    for _ in range(5):
        await credential.replace_refused("Bearer same")
    assert runs == 0, "it has just been run at the start"
    clock.jump(RELOAD_GAP)
    for _ in range(5):
        await credential.replace_refused("Bearer same")
    assert runs == 1
    clock.jump(timedelta(days=1))
    await credential.show_current(new_configuration())
    assert runs == 1, "a program is run after a refusal only"


async def test_a_program_that_fails_leaves_the_old_token() -> None:
    clock = FakeClock()

    async def load() -> str:
        raise ConfigError("no")

    credential = Credential("Bearer first", load, clock)
    clock.jump(RELOAD_GAP)
    await credential.replace_refused("Bearer first")
    assert credential.value == "Bearer first"
