"""A Secret that is not ours is neither written nor used: D-31, LI-13."""

import asyncio
from datetime import timedelta

import pytest

from tests.pki.certificates import Legacy
from tests.pki.controller_rig import MINUTE, Rig, background, started
from tests.pki.fake_secrets import MADE_BY_US, FakeSecrets
from tests.pki.test_pki_controller import assert_sound

FOREIGN = Legacy(issued_to="etcd.example").data()
Data = dict[str, bytes]
SECRETS = [
    pytest.param({**FOREIGN, "password": b"hunter2"}, id="etcd's certificates under our keys"),
    pytest.param({"password": b"hunter2"}, id="no certificate at all"),
    pytest.param(
        {"tls.crt": FOREIGN["cert"], "tls.key": FOREIGN["key"]}, id="as cert-manager does"
    ),
    pytest.param({"cert": b"garbage", "key": b"garbage"}, id="no certificate"),
]


@pytest.mark.parametrize("data", SECRETS)
async def test_a_secret_of_another_application_is_left_alone_until_a_person_helps(
    lines: list[str],
    data: Data,
) -> None:
    """D-31: nothing is written, served or published; it says so, and reads again."""
    secrets = FakeSecrets(data)
    rig = Rig(secrets)
    start = asyncio.create_task(rig.start())
    await rig.clock.advance(10 * MINUTE)
    assert not start.done(), "a new start would not help"
    assert (secrets.writes, secrets.data) == (0, data)
    assert rig.controller.ca_bundle == b""
    assert "prod/certificate: not ours" in str(rig.controller.last_error)
    reported = [line for line in lines if "level=error" in line]
    assert 1 < len(reported) < 5, "at once, and now and then"
    assert "-server-tls.self-signed-cert.secret-name" in reported[0]
    assert len(secrets.calls) < 40
    secrets.body = None
    await rig.clock.advance(MINUTE)
    await start
    assert_sound(rig)
    assert rig.controller.last_error is None


@pytest.mark.parametrize("data", SECRETS)
async def test_what_overwrites_ours_is_replaced_and_never_trusted(data: Data) -> None:
    """LI-13, D-31: the very object that is served from, its label gone: restored from memory."""
    async with Rig(FakeSecrets()).running() as rig:
        before, served = rig.secrets.data, rig.served
        rig.secrets.put(data)
        await rig.clock.advance(MINUTE)
        assert rig.secrets.data == {**before, **_others(data)}
        assert rig.secrets.labels == MADE_BY_US
        assert rig.served == served
        assert rig.bundles == [before["ca"]]


async def test_what_overwrote_ours_before_the_start_is_replaced_and_never_trusted() -> None:
    """D-31: by its label it is ours; no `old-ca` comes from what lies in it."""
    secrets = FakeSecrets(FOREIGN, labels=MADE_BY_US)
    rig = await started(secrets)
    assert "old-ca" not in secrets.data
    assert rig.bundles == [secrets.data["ca"]]
    assert secrets.data["ca"] != FOREIGN["ca"]
    assert_sound(rig)


@pytest.mark.parametrize("data", SECRETS)
async def test_another_secret_in_the_place_of_ours_is_left_alone(data: Data) -> None:
    """D-31: ours was deleted, and that is another object; what is served goes on."""
    async with Rig(FakeSecrets()).running() as rig:
        served, bundle = rig.served, rig.controller.ca_bundle
        rig.secrets.put(data, uid="u-2")
        await rig.clock.advance(5 * MINUTE)
        assert rig.secrets.data == data
        assert (rig.served, rig.controller.ca_bundle) == (served, bundle)
        assert "not ours" in str(rig.controller.last_error)
        rig.secrets.body = None
        await rig.clock.advance(MINUTE)
        assert rig.served == served
        assert_sound(rig)


async def test_an_immutable_secret_is_served_and_its_end_is_reported() -> None:
    """LI-13: no write that the API server must refuse."""
    secrets = FakeSecrets(Legacy().data())
    assert secrets.body is not None
    secrets.body["immutable"] = True
    rig = await started(secrets)
    rig.clock.jump(timedelta(days=300))
    async with background(rig.controller):
        await rig.clock.advance(5 * MINUTE)
    assert secrets.writes == 0
    assert_sound(rig)
    assert "prod/certificate: immutable, and has to be written" in str(rig.controller.last_error)


def _others(data: Data) -> Data:
    return {key: value for key, value in data.items() if key not in {"ca", "cert", "key"}}
