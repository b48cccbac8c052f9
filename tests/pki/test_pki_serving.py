"""TLS as it is served: TLS-22, SEC-01, SEC-14, DEP-24, D-30."""

import asyncio
import os
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from msgspec.structs import replace

from rollout_operator.model.names import InvalidInput, OperatorError
from rollout_operator.pki import certificates, manager
from rollout_operator.pki.certificates import answer, carry_out, issue_ca
from rollout_operator.pki.manager import NoAnswer, ask_child
from rollout_operator.pki.material import Issue, KeyMaterial, Pair, Question
from rollout_operator.pki.serving import ServingCertificate, server_context
from rollout_operator.planning.certificate import BrokenCertificate, CertificateStep, Decision
from tests.pki.certificates import HOST, WANTED, Legacy, client_context, load
from tests.pki.stage import Rig, SecretClient

FRESH = Decision(step=CertificateStep.START_OVER, reason="there is no secret")


def fresh() -> KeyMaterial:
    """Return material that is valid on this machine now: TLS knows no other clock."""
    return carry_out(FRESH, KeyMaterial(), WANTED, datetime.now(UTC))


def test_no_tickets_no_compression_no_renegotiation() -> None:
    context = server_context(fresh().served)
    wanted = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    assert context.options & wanted == wanted
    assert context.num_tickets == 0


def test_keys_touch_no_path_and_no_descriptor_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """DEP-24: an anonymous file in memory, closed when the key is loaded; LI-13 without one."""
    before = set(os.listdir("/proc/self/fd"))
    contexts = [server_context(fresh().served) for _ in range(3)]
    with pytest.raises(InvalidInput):
        server_context(Pair(cert=b"x", key=b"y"))
    assert (set(os.listdir("/proc/self/fd")), len(contexts)) == (before, 3)
    monkeypatch.setattr(os, "memfd_create", lambda *_: os.open("/none", 0))
    with pytest.raises(OperatorError, match="cannot be loaded: No such file"):
        server_context(fresh().served)


@pytest.mark.parametrize("part", [fresh(), fresh().served, issue_ca(WANTED, datetime.now(UTC))])
def test_no_text_of_material_shows_a_key(part: KeyMaterial | Pair) -> None:
    """SEC-14: repr, str and f-string alike, also inside of containers and errors."""
    texts = [repr(part), str(part), f"{part}", f"{[part]}", repr(ValueError(part))]
    assert "PRIVATE" not in "".join(texts)
    assert part.key.splitlines()[1].decode() not in "".join(texts)
    assert all(len(text) < 100 for text in texts)


async def test_a_swap_counts_from_the_next_connection_on() -> None:
    """W-11, over real sockets: an open connection goes on, a new one gets the new leaf."""
    serving = ServingCertificate()
    old, new = fresh(), fresh()
    serving.swap(answer(Question(material=old)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(serving.current)
        while line := await reader.readline():
            writer.write(line)
        writer.close()
        await writer.wait_closed()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener:
        first = await connect(port, old.ca)
        serving.swap(answer(Question(material=new)))
        second = await connect(port, new.ca)
        assert await echo(first) == b"hello\n"
        assert await echo(second) == b"hello\n"
        assert peer(first) == load(old.cert).serial_number
        assert peer(second) == load(new.cert).serial_number
        for _, writer in (first, second):
            writer.close()
            await writer.wait_closed()


ISSUE = Issue(decision=FRESH, wanted=WANTED, now=datetime.now(UTC))


@pytest.mark.parametrize("material", [fresh(), KeyMaterial(), KeyMaterial(cert=b"x", key=b"y")])
async def test_another_process_answers_as_this_one_would(material: KeyMaterial) -> None:
    """D-51: cryptography is not loaded into the operator."""
    assert await ask_child(Question(material=material)) == answer(Question(material=material))
    issued = await ask_child(Question(material=material, issue=ISSUE))
    assert answer(Question(material=issued.material)) == issued


async def test_another_process_refuses_as_this_one_would() -> None:
    decision = Decision(step=CertificateStep.ISSUE_LEAF, reason="")
    question = Question(material=KeyMaterial(), issue=replace(ISSUE, decision=decision))
    with pytest.raises(InvalidInput, match="ca-key: not the key of a ca certificate"):
        await ask_child(question)


def test_a_secret_full_of_certificates_is_read_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """LI-13: else no answer would come, and nobody would replace it."""
    calls = 0
    compare = certificates._is_issued_by

    def count(cert: x509.Certificate, issuer: x509.Certificate) -> bool:
        nonlocal calls
        calls += 1
        return compare(cert, issuer)

    monkeypatch.setattr(certificates, "_is_issued_by", count)
    one, other = Legacy().data(), Legacy().data()
    full = KeyMaterial(cert=one["cert"] + 99 * one["ca"], key=one["key"], ca=100 * other["ca"])
    facts = certificates.read_material(full)
    assert facts == BrokenCertificate(problem="cert: not signed by the certificate in ca")
    assert calls < 2000


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "ended with status 3"),
        ("kill -KILL $$", "ended by a kill signal, as where memory runs out"),
        ("kill -ABRT $$", "ended by signal 6"),
        ("exit 0", "gave an answer that cannot be read"),
        ("exec sleep 60", "did not answer within 100ms"),
        ("", "cannot be started: Permission denied"),
    ],
)
async def test_what_is_not_known_of_a_certificate_changes_no_secret(
    script: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TLS-10: an answer that does not come is no broken certificate, which would be replaced."""
    secrets = SecretClient(Legacy().data())
    rig = Rig(secrets, ask=ask_child)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755 if script else 0o644)
    monkeypatch.setattr(sys, "executable", str(python))
    if "within" in why:
        monkeypatch.setattr(manager, "_ANSWER_LIMIT", timedelta(milliseconds=100))
    with pytest.raises(NoAnswer) as caught:
        await rig.controller.reconcile()
    assert str(caught.value) == f"cannot read certificates: their process {why}"
    assert secrets.calls == ["get secrets/certificate"]


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(port: int, ca: bytes) -> Stream:
    context = client_context(ca)
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=HOST)


async def echo(stream: Stream) -> bytes:
    reader, writer = stream
    writer.write(b"hello\n")
    return await reader.readline()


def peer(stream: Stream) -> int:
    shown = stream[1].get_extra_info("peercert")["serialNumber"]
    return int(shown, 16)
