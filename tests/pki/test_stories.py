"""Certificates, their Secret and their files: texts of commands, and kinds of Secrets."""

import asyncio
import copy
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL, Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.pki.bundle import is_ours, plan_patch
from rollout_operator.pki.manager import CHECK_EVERY
from rollout_operator.planning.certificate import OVERLAP
from tests.pki.bundle_stage import ENCODED, NAMES, BundleStage, apply, configuration
from tests.pki.certificates import Legacy, load, verify
from tests.pki.pem_stage import FileStage, PemStage
from tests.pki.rotation_stage import MEMORY, RotationStage
from tests.pki.stage import (
    DAY,
    KINDS,
    MADE_BY_US,
    MINUTE,
    NAME,
    Data,
    Rig,
    SecretClient,
    SecretStage,
    background,
)
from tests.stories import check_stories, check_tables
from tests.virtual_time import in_virtual_time

FIRST = next(text for text, name in ENCODED.items() if name == "first")


test_story = check_stories(__file__, secrets=SecretStage)


test_rotations = pytest.mark.slow(
    pytest.mark.thorough(check_stories(__file__, rotations=RotationStage))
)


def test_the_overlap_covers_a_replica_that_learns_of_it_late() -> None:
    """SI-19: its last bundle without the next CA comes a look after the first with it."""
    assert OVERLAP > MEMORY + CHECK_EVERY


async def show_kind(kind: str) -> str:
    spoil = KINDS[kind]
    legacy = {"mine": b"kept", **spoil(Legacy().data())}
    labelled = SecretClient(legacy, labels={"a": "b", **MADE_BY_US})
    plain = SecretClient(legacy, labels={"a": "b"})
    said = {
        "labelled": await see_start(labelled),
        "not": await see_start(plain),
        "running": await see_overwritten(spoil, uid=f"u-{NAME}"),
        "another": await see_overwritten(spoil, uid="u-2"),
    }
    return "; ".join(f"{name}: {found}" for name, found in said.items())


test_kind = check_tables(__file__, kinds=show_kind)


def assert_sound(rig: Rig) -> None:
    """What is served is what is stored, and verifies under the published bundle."""
    data = rig.secrets.data
    assert rig.served == load(data["cert"]).public_bytes(serialization.Encoding.DER)
    verify(data["cert"], rig.controller.ca_bundle, rig.clock.now())


async def see_start(secrets: SecretClient) -> str:
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
    rig = Rig(SecretClient())
    await rig.start()
    async with background(rig.controller):
        before, served = rig.secrets.data, rig.served
        found = spoil(before)
        rig.secrets.store(found, uid=uid)
        await rig.clock.advance(MINUTE)
        if rig.served != served:
            assert rig.secrets.data == found
            assert rig.controller.ca_bundle == found["ca"]
            assert_sound(rig)
            return "taken over"
        assert rig.bundles == [before["ca"]]
        if rig.secrets.data == found != before:
            assert "not ours" in str(rig.controller.last_error)
            rig.secrets.drop()
            await rig.clock.advance(MINUTE)
            assert rig.served == served
            assert_sound(rig)
            return "left alone"
        others = {key: value for key, value in found.items() if key not in {"ca", "cert", "key"}}
        assert rig.secrets.data == {**before, **others}
        assert found == before or rig.secrets.labels == MADE_BY_US
        return "as it was" if found == before else "restored"


test_texts = pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")(
    check_stories(__file__, pems=PemStage, files=FileStage)
)


test_bundles = in_virtual_time(check_stories(__file__, bundles=BundleStage))


@given(st.lists(st.sampled_from(["none", "first", "other"]), min_size=1, max_size=6))
def test_si_20_a_patch_changes_bundles_and_nothing_else(bundles: list[str]) -> None:
    one = configuration("guard", *bundles)
    before = copy.deepcopy(asdict(one))
    patched = apply(one, plan_patch(one, FIRST, "ops", NAMES))
    assert asdict(one) == before, "W-25: what is cached is never changed"
    assert {hook.ca_bundle for hook in patched.webhooks} == {FIRST}
    assert plan_patch(patched, FIRST, "ops", NAMES) == []
    assert replace(patched, webhooks=one.webhooks) == one


def test_what_cannot_be_read_is_nobodys() -> None:
    lost = Unreadable(
        kind="ValidatingWebhookConfiguration",
        namespace="",
        name="x",
        uid=Uid("x"),
        resource_version="1",
        labels={INJECT_CA_LABEL: "true", NAMESPACE_LABEL: "ops"},
        error="no",
    )
    assert not is_ours(lost, "ops")


@in_virtual_time
async def test_cancelling_in_the_middle_of_a_write_leaves_nothing_behind() -> None:
    stage = BundleStage([])
    [*_, before] = await stage.play(["put guard", "run", "0.0005s"])
    await asyncio.sleep(1)
    assert (before, stage.look()) == ("guard at 0.0", [])
