"""The certificate of a process in step with its Secret: TLS-10..14, W-11, SEED-096, LI-13, D-31."""

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from msgspec.structs import replace

from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    Refused,
    TooManyRequests,
    Unreachable,
)
from tests.fakes_clock import EPOCH
from tests.goldens import Golden
from tests.pki.certificates import PKCS8, WANTED, YEAR, Legacy, load, verify
from tests.pki.controller_rig import MINUTE, Rig, background, started
from tests.pki.fake_secrets import MADE_BY_US, FakeSecrets
from tests.stories import Story, read_stories

HERE = Path(__file__).parent
DAY = timedelta(days=1)
Data = dict[str, bytes]


def assert_sound(rig: Rig) -> None:
    """What is served is what is stored, and verifies under the published bundle."""
    data = rig.secrets.data
    assert rig.served == load(data["cert"]).public_bytes(serialization.Encoding.DER)
    verify(data["cert"], rig.controller.ca_bundle, rig.clock.now())


async def test_a_missing_secret_is_made() -> None:
    """TLS-10: keys `ca`, `cert`, `key` for every version; ours also keeps the key of the CA.

    Its label says that it is ours, whatever becomes of its data.
    """
    rig = await started(FakeSecrets())
    assert rig.secrets.calls == ["get", "create", "get"]
    assert set(rig.secrets.data) == {"ca", "cert", "key", "ca-key"}
    assert rig.secrets.body is not None
    assert "type" not in rig.secrets.body
    assert rig.secrets.labels == MADE_BY_US
    assert rig.bundles == [rig.secrets.data["ca"]]
    assert rig.expiry == {"ca": EPOCH + 5 * YEAR, "leaf": EPOCH + YEAR}
    assert_sound(rig)
    verify(rig.secrets.data["cert"], rig.controller.ca_bundle, EPOCH, lax=False)


async def test_a_second_start_writes_nothing() -> None:
    """SEED-096: the certificate is reused."""
    first = Rig(FakeSecrets())
    await first.start()
    before = first.secrets.data
    second = await started(first.secrets)
    assert second.secrets.data == before
    assert second.secrets.writes == 1
    assert second.served == first.served


def without(name: str) -> Callable[[Data], Data]:
    return lambda data: {key: value for key, value in data.items() if key != name}


def but(**parts: bytes) -> Callable[[Data], Data]:
    return lambda data: {**data, **parts}


ENCRYPTED = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    serialization.Encoding.PEM, PKCS8, serialization.BestAvailableEncryption(b"secret")
)
OTHER = Legacy().data()
WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 (weak on purpose: TLS must refuse it)

FOREIGN = Legacy(issued_to="etcd.example").data()
KINDS: dict[str, Callable[[Data], Data]] = {
    "RSA in PKCS1": lambda data: data,
    "RSA in PKCS8": lambda _: Legacy(format=PKCS8).data(),
    "a wildcard": lambda _: Legacy(names=["*.prod.svc"]).data(),
    "EC in SEC1": lambda _: Legacy(key=ec.generate_private_key(ec.SECP384R1())).data(),
    "key missing": without("key"),
    "cert missing": without("cert"),
    "ca missing": without("ca"),
    "empty data": lambda _: {},
    "empty values": but(cert=b"", key=b""),
    "garbage instead of PEM": but(cert=b"garbage \xff\x00"),
    "key of another certificate": but(
        key=Legacy(key=ec.generate_private_key(ec.SECP256R1())).data()["key"]
    ),
    "leaf not signed by ca": but(ca=OTHER["ca"]),
    "truncated key": lambda data: {**data, "key": data["key"][:200]},
    "truncated cert": lambda data: {**data, "cert": data["cert"][:400]},
    "encrypted key": but(key=ENCRYPTED),
    "ca is no CA": lambda _: Legacy(is_ca=False).data(),
    "expired": lambda _: Legacy(start=EPOCH - YEAR).data(),
    "expired CA": lambda _: Legacy(start=EPOCH - DAY, ca_life=DAY).data(),
    "not valid yet": lambda _: Legacy(start=EPOCH + DAY).data(),
    "another name": lambda _: Legacy(names=["other.prod.svc"]).data(),
    "a key that TLS refuses": lambda _: Legacy(key=WEAK).data(),
    "for clients": lambda _: Legacy(usage=ExtendedKeyUsageOID.CLIENT_AUTH).data(),
    "etcd's under our keys": lambda _: {**FOREIGN, "password": b"hunter2"},
    "no certificate at all": lambda _: {"password": b"hunter2"},
    "as cert-manager does": lambda _: {"tls.crt": FOREIGN["cert"], "tls.key": FOREIGN["key"]},
    "garbage": lambda _: {"cert": b"garbage", "key": b"garbage"},
}


@pytest.mark.parametrize("story", read_stories(HERE / "kinds.txt"))
async def test_kind(story: Story, golden: Golden) -> None:
    [kind] = story.commands
    spoil = KINDS[kind]
    legacy = {"mine": b"kept", **spoil(Legacy().data())}
    labelled = FakeSecrets(legacy, labels={"a": "b", **MADE_BY_US})
    plain = FakeSecrets(legacy, labels={"a": "b"})
    said = {
        "labelled": await see_start(labelled),
        "not": await see_start(plain),
        "running": await see_overwritten(spoil, uid="u-1"),
        "another": await see_overwritten(spoil, uid="u-2"),
    }
    story.check("; ".join(f"{name}: {found}" for name, found in said.items()), golden)


async def see_start(secrets: FakeSecrets) -> str:
    """Return what becomes of a Secret when a replica starts."""
    before, labels = secrets.data, secrets.labels
    rig = Rig(secrets)
    start = asyncio.create_task(rig.start())
    await rig.clock.advance(MINUTE)
    assert secrets.data["mine"] == b"kept"
    if not start.done():
        start.cancel()
        assert (secrets.writes, secrets.data, secrets.labels) == (0, before, labels)
        assert rig.controller.ca_bundle == b""
        assert "prod/certificate: not ours" in str(rig.controller.last_error)
        return "left alone"
    await start
    assert_sound(rig)
    assert rig.bundles == [rig.controller.ca_bundle]
    if not secrets.writes:
        async with background(rig.controller):
            await rig.clock.advance(DAY / 24)
        assert (secrets.writes, secrets.data) == (0, before)
        assert rig.controller.ca_bundle == before["ca"]
        return "served"
    assert secrets.labels == {"a": "b", **MADE_BY_US}
    assert secrets.data["ca"] != before.get("ca")
    kept = " and its CA trusted" if "old-ca" in secrets.data else ""
    return f"replaced by {secrets.writes} write{kept}"


async def see_overwritten(spoil: Callable[[Data], Data], *, uid: str) -> str:
    """Return what becomes of a Secret that another client writes while a replica runs."""
    async with Rig(FakeSecrets()).running() as rig:
        before, served = rig.secrets.data, rig.served
        found = spoil(before)
        rig.secrets.put(found, uid=uid)
        await rig.clock.advance(MINUTE)
        if rig.served != served:
            assert rig.secrets.data == found
            assert rig.controller.ca_bundle == found["ca"]
            assert_sound(rig)
            return "taken over"
        assert rig.bundles == [before["ca"]]
        if rig.secrets.data == found != before:
            assert "not ours" in str(rig.controller.last_error)
            rig.secrets.body = None
            await rig.clock.advance(MINUTE)
            assert rig.served == served
            assert_sound(rig)
            return "left alone"
        others = {key: value for key, value in found.items() if key not in {"ca", "cert", "key"}}
        assert rig.secrets.data == {**before, **others}
        assert found == before or rig.secrets.labels == MADE_BY_US
        return "as it was" if found == before else "restored"


@pytest.mark.parametrize("data", [None, ["a"], {"cert": "%%%"}, {"cert": 7}, {"key": None}])
async def test_data_that_is_no_data_is_replaced(data: object) -> None:
    """LI-13: not base64, not an object, of the wrong type."""
    secrets = FakeSecrets()
    secrets.put_raw(data, labels=MADE_BY_US)
    rig = await started(secrets)
    assert_sound(rig)


async def test_a_deleted_secret_is_restored() -> None:
    async with Rig(FakeSecrets()).running() as rig:
        before = rig.secrets.data
        rig.secrets.body = None
        await rig.clock.advance(MINUTE)
        assert rig.secrets.data == before


async def test_si19_a_bundle_that_is_confirmed_is_that_of_the_secret() -> None:
    """SI-19: at once, not with the next read; nothing is learned where the Secret shows nothing."""
    rig = await started(FakeSecrets())
    await rig.controller.confirm()
    assert len(rig.bundles) == 1
    rig.secrets.put(OTHER)
    await rig.controller.confirm()
    assert rig.controller.ca_bundle == OTHER["ca"]
    rig.secrets.put({"password": b"hunter2"}, uid="u-2")
    await rig.controller.confirm()
    rig.secrets.fail = Denied("get secrets is forbidden", status=403)
    await rig.controller.confirm()
    assert rig.controller.ca_bundle == OTHER["ca"]
    rig.secrets.fail = Unreachable("away", status=0)
    with pytest.raises(Unreachable):
        await rig.controller.confirm()


async def test_another_name_under_our_ca_is_a_new_leaf_only() -> None:
    """W-11: after a change of the DNS name flag, callers trust what they trusted."""
    secrets = FakeSecrets()
    await Rig(secrets, wanted=replace(WANTED, names=("other.svc",))).start()
    before = secrets.data
    rig = await started(secrets)
    assert secrets.data["ca"] == before["ca"]
    assert secrets.data["cert"] != before["cert"]
    assert_sound(rig)


async def test_a_foreign_ca_stays_trusted_after_a_change_of_name() -> None:
    """SI-19: a replica that ends only now still serves under it."""
    secrets = FakeSecrets()
    foreign = Legacy(names=["other.prod.svc"]).data()
    secrets.put(foreign)
    rig = await started(secrets)
    verify(foreign["cert"], rig.controller.ca_bundle, EPOCH, host="other.prod.svc")
    assert_sound(rig)


@pytest.mark.parametrize("verb", ["create", "update"])
async def test_two_starters_serve_the_same(verb: str) -> None:
    """TLS-13, TLS-14: who loses the race for the Secret uses what the winner wrote."""
    secrets = FakeSecrets()
    if verb == "update":
        secrets.put({})
    meeting = asyncio.Barrier(2)

    async def meet(called: str) -> None:
        if called == verb and not meeting.broken:
            await meeting.wait()

    secrets.pause = meet
    one, two = Rig(secrets), Rig(secrets)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(one.start())
        tasks.create_task(two.start())
    assert secrets.calls.count(verb) == 2
    assert one.served == two.served
    assert one.controller.ca_bundle == two.controller.ca_bundle
    assert_sound(one)


async def test_a_write_without_answer_is_read_back() -> None:
    """SI-18: committed or not, nothing is made twice."""
    secrets = FakeSecrets()
    secrets.lose_answers = 1
    rig = await started(secrets)
    assert secrets.calls == ["get", "create", "get"]
    assert_sound(rig)


async def test_a_client_that_always_writes_first_is_an_error() -> None:
    secrets = FakeSecrets({})

    async def interfere(verb: str) -> None:
        if verb == "update":
            secrets.put({})

    secrets.pause = interfere
    with pytest.raises(Conflict, match="secret prod/certificate: another client keeps writing it"):
        await Rig(secrets).controller.reconcile()


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("connection refused"),
        Denied("cannot get secret", status=403),
        TooManyRequests("slow down"),
    ],
)
async def test_a_start_without_answers_ends_with_a_reason(error: ApiError) -> None:
    """TLS-11: other errors than not-found end the start, after a minute of trying."""
    rig = Rig(FakeSecrets())
    rig.secrets.fail = error
    async with asyncio.TaskGroup() as tasks:
        start = tasks.create_task(caught(rig))
        await rig.clock.advance(MINUTE)
    assert start.result() == f"secret prod/certificate: no certificate to serve: {error}"
    assert 3 < len(rig.secrets.calls) < 20


async def caught(rig: Rig) -> str:
    with pytest.raises(ApiError) as raised:
        await rig.start()
    return str(raised.value)


async def test_a_start_gets_over_a_short_failure() -> None:
    rig = Rig(FakeSecrets())
    rig.secrets.fail = Unreachable("connection refused")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rig.start())
        await rig.clock.advance(MINUTE / 10)
        rig.secrets.fail = None
        await rig.clock.advance(MINUTE / 3)
    assert_sound(rig)


async def test_a_good_secret_is_served_even_where_it_cannot_be_written(lines: list[str]) -> None:
    """A foreign Secret that is due, and a role without update: serve first, complain then."""
    secrets = FakeSecrets(Legacy(start=EPOCH - 300 * DAY).data())
    secrets.fail_writes = Denied("cannot update secret", status=403)
    rig = Rig(secrets)
    await rig.start()
    assert_sound(rig)
    assert any("cannot update secret" in line for line in lines)


async def test_failures_never_end_the_controller() -> None:
    """LI-13: the API is away for an hour, then the spoilt Secret is healed within a minute."""
    async with Rig(FakeSecrets()).running() as rig:
        before = rig.secrets.data
        rig.secrets.put({})
        for error in (Unreachable("no"), Refused("quota"), Denied("role"), Conflict("late")):
            rig.secrets.fail = error
            await rig.clock.advance(15 * MINUTE)
        rig.secrets.fail = None
        await rig.clock.advance(MINUTE)
        assert rig.secrets.data == before


async def test_a_decision_is_reported_once(lines: list[str]) -> None:
    """A Secret that cannot be repaired does not fill the log with the same reason."""
    async with Rig(FakeSecrets()).running() as rig:
        rig.secrets.fail_writes = Denied("role")
        rig.secrets.put({})
        await rig.clock.advance(60 * MINUTE)
    assert len([line for line in lines if 'reason="cert: missing"' in line]) == 1


async def test_no_key_is_ever_shown(lines: list[str]) -> None:
    """SEC-14: no log line, no text of any part, no error holds key material."""
    secrets = FakeSecrets()
    keys: set[bytes] = set()
    with suppress(ApiError):
        for spoil in ("ca", "cert", "key", "ca-key"):
            rig = Rig(secrets)
            await rig.start()
            keys |= {secrets.data["key"], secrets.data["ca-key"]}
            secrets.put({**secrets.data, spoil: secrets.data["key"]}, labels=MADE_BY_US)
            lines.append(f"{vars(rig.controller)} {vars(rig.serving)} {rig.controller!r}")
    text = "".join(lines)
    assert len(keys) > 4
    assert "PRIVATE" not in text
    for key in keys:
        body = key.splitlines()[1]
        assert body.decode() not in text
        assert base64.b64encode(key).decode()[40:80] not in text


async def test_a_secret_of_another_application_is_left_alone_until_a_person_helps(
    lines: list[str],
) -> None:
    """D-31: it says so, and reads again; a new start would not help."""
    secrets = FakeSecrets(FOREIGN)
    rig = Rig(secrets)
    start = asyncio.create_task(rig.start())
    await rig.clock.advance(10 * MINUTE)
    assert not start.done()
    reported = [line for line in lines if "level=error" in line]
    assert 1 < len(reported) < 5, "at once, and now and then"
    assert "-server-tls.self-signed-cert.secret-name" in reported[0]
    assert len(secrets.calls) < 40
    secrets.body = None
    await rig.clock.advance(MINUTE)
    await start
    assert_sound(rig)
    assert rig.controller.last_error is None


async def test_what_overwrote_ours_before_the_start_is_replaced_and_never_trusted() -> None:
    """D-31: by its label it is ours; no `old-ca` comes from what lies in it."""
    secrets = FakeSecrets(FOREIGN, labels=MADE_BY_US)
    rig = await started(secrets)
    assert "old-ca" not in secrets.data
    assert rig.bundles == [secrets.data["ca"]]
    assert secrets.data["ca"] != FOREIGN["ca"]
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
