"""The certificate of the webhooks over its life, its CA in their configurations, and clients'.

What becomes of a Secret that is broken or of others, and of a bundle that others change:
`tests/pki` and `tests/planning/test_certificate.py`.
"""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.pages import example_of
from tests.pki.fake_secrets import MADE_BY_US
from tests.system.certs import legacy
from tests.system.hooked import (
    PROBE,
    TLS_FLAGS,
    fetch_secret,
    hook_up,
    put_secret,
    secret_body,
    shake_hands,
    trusting,
)
from tests.system.starts import running
from tests.system.waits import wait_true
from tests.world.api import CLUSTER_ROLES, LEASES, SECRETS, ApiError
from tests.world.assets import locate_assets
from tests.world.clients import Route, Workload
from tests.world.hooks import INJECT_LABEL, NAMESPACE_LABEL, Hooks, Registration
from tests.world.judge import HOOKS
from tests.world.manifests import ACCOUNT, LEASE, SECRET, webhook_rights
from tests.world.operatorproc import TLS_FLAG
from tests.world.pki import make_pki
from tests.world.plane import ControlPlane
from tests.world.world import World

pytestmark = pytest.mark.controlplane


async def test_dep17_a_secret_of_the_version_before_is_used_as_it_is(world: World) -> None:
    """DEP-17, DEP-18, D-06, TLS-04: RSA, PKCS#1, no key of the CA: same certificate and caBundle.

    Also with the shipped empty one applied over it.
    """
    await world.grant_webhooks()
    data = legacy()
    await put_secret(world, secret_body(data))
    await world.grant_webhooks()
    before = await world.get(SECRETS, SECRET)
    hooked = await hook_up(world)
    for bundle in await hooked.hooks.wait_injected():
        assert bundle == data["ca"]
        leaf = await shake_hands(hooked.operator.tls_port, trusting(bundle))
        assert leaf == ssl.PEM_cert_to_DER_cert(data["cert"].decode())
    assert await world.get(SECRETS, SECRET) == before


async def test_rbac07_the_shipped_secret_is_filled_and_stays_so(world: World) -> None:
    """RBAC-07, DEP-82: by the shipped rights, which create none; applied again nothing changes."""
    await world.grant_webhooks()
    operator = await world.operator(*TLS_FLAGS)
    before = await world.get(SECRETS, SECRET)
    assert set(before["data"]) >= {"ca", "cert", "key"}
    assert before["metadata"]["labels"].items() >= MADE_BY_US.items()
    (shipped,) = (one for one in webhook_rights(world.namespace) if one["kind"] == "Secret")
    # As `kubectl apply --server-side` does, and without it where nothing else had changed.
    for kind in ("apply", "merge"):
        await world.patch(SECRETS, SECRET, shipped, kind=kind)
        after = await world.get(SECRETS, SECRET)
        assert after["data"] == before["data"], kind
        assert after["metadata"]["labels"] == before["metadata"]["labels"], kind
    assert await _is_healthy(world, operator.tls_port)
    assert not [
        call
        for call in await world.judge.calls()
        if (call.verb, call.resource) == ("create", "secrets")
    ]


async def test_dep19_files_are_served_and_read_again(world: World, tmp_path: Path) -> None:
    """DEP-19, SEED-095, SEED-098, W-25: no Secret and no bundle is touched.

    DEP-92: no reviews are passed on by such a certificate; reported once, with why.
    """
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    one, two = (make_pki(folder) for folder in folders)
    flags = (
        "-server-tls.enabled=true",
        "-server-tls.self-signed-cert.enabled=false",
        "-webhooks.update-ca-bundle=false",
        f"-server-tls.cert-file={one.cert}",
        f"-server-tls.key-file={one.key}",
    )
    await world.grant_webhooks()
    hooks = await world.register(Registration(port=1))
    async with running(world.launch(*flags)) as operator:
        await shake_hands(operator.tls_port, trusting(one.ca.read_bytes()))
        one.cert.write_bytes(two.cert.read_bytes())
        one.key.write_bytes(two.key.read_bytes())

        async def is_exchanged() -> bool:
            try:
                await shake_hands(operator.tls_port, trusting(two.ca.read_bytes()))
            except ssl.SSLError:
                return False
            return True

        await wait_true("exchanged", is_exchanged, timedelta(seconds=30))
        assert "PRIVATE" not in operator.log.read_text()
        (line,) = [line for line in operator.log_lines() if "No reviews are passed on" in line]
        assert "not of a CA of ours: -server-tls.self-signed-cert.enabled is false" in line
        lease = await world.get(LEASES, LEASE)
        assert "annotations" not in lease["metadata"], "nothing is to be reached there"
        config = (await hooks.fetch("no-downscale"))["webhooks"][0]["clientConfig"]
        assert "caBundle" not in config
    calls = [call for call in await world.judge.calls() if call.resource != "leases"]
    assert not [call for call in calls if call.resource == "secrets" or call.verb == "patch"]


async def _wipe(world: World, hooks: Hooks) -> None:
    """Take the bundle out of the first webhook of each configuration, as an old manifest would."""
    for hook in hooks.wanted.hooks:
        patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        with suppress(ApiError):  # it is not there
            await world.api.patch(hooks.resource(hook), "", hooks.name(hook), patch, kind="json")


async def _bundle_writes(world: World) -> int:
    calls = await world.judge.calls()
    return sum(call.verb == "patch" and call.resource in HOOKS for call in calls)


async def test_si20_bundles_come_back_and_nothing_else_is_touched(world: World) -> None:
    """T-13 row 3, SEED-097, SEED-099, SI-20, CA-02, CA-06: before, after, wiped; foreign ones."""
    await world.grant_webhooks()
    before = await world.register(Registration(port=1))
    foreign = await world.register(
        Registration(port=1, hooks=("foreign",), labels={NAMESPACE_LABEL: world.namespace})
    )
    other = await world.register(
        Registration(
            port=1,
            hooks=("other",),
            labels={INJECT_LABEL: "true", NAMESPACE_LABEL: f"{world.namespace}-other"},
        )
    )
    kept = [await each.fetch(each.wanted.hooks[0]) for each in (foreign, other)]
    async with running(world.launch(*TLS_FLAGS)):
        first = await before.wait_injected()
        after = await world.register(Registration(port=1, hooks=("later",)))
        assert await after.wait_injected() == first[:1]
        assert first == [(await fetch_secret(world))["ca"]] * 2
        for hooks in (before, after):
            await _wipe(world, hooks)
            assert (await hooks.wait_injected())[0] == first[0]
        assert [await each.fetch(each.wanted.hooks[0]) for each in (foreign, other)] == kept
    assert await _bundle_writes(world) <= 6


async def _limit_rights(world: World, names: Sequence[str]) -> None:
    """Limit the operator's rights on configurations to some names."""
    role = await world.api.get(CLUSTER_ROLES, "", f"{ACCOUNT}-{world.namespace}-webhooks")
    for rule in role["rules"]:
        rule["resourceNames"] = list(names)
    await world.api.replace(CLUSTER_ROLES, "", role["metadata"]["name"], role)


async def test_seed102_named_configurations_need_rights_to_no_others(world: World) -> None:
    """CA-01, SEED-102, SEC-18: list and watch of one name each; with such rights and no others."""
    await world.grant_webhooks()
    names = [f"{hook}-{world.namespace}" for hook in ("no-downscale", "prepare-downscale")]
    flag = f"-webhooks.ca-bundle-names={','.join(names)}"
    await _limit_rights(world, names)
    async with running(world.launch(*TLS_FLAGS, flag)) as operator:
        named = await world.register(Registration(port=1))
        unnamed = await world.register(Registration(port=1, hooks=("unnamed",)))
        await named.wait_injected()
        await _wipe(world, named)
        await named.wait_injected()
        assert (await unnamed.fetch("unnamed"))["webhooks"][0]["clientConfig"].keys() == {"url"}
        assert "is forbidden" not in operator.log.read_text()
    calls = [call for call in await world.judge.calls() if call.resource in HOOKS]
    assert {call.code for call in calls} <= {0, 200}
    assert all(call.name in names for call in calls), calls


async def _is_healthy(world: World, port: int) -> bool:
    """Say whether the Secret is whole, and what is served verifies by it and is in it."""
    data = await fetch_secret(world)
    if not {"ca", "cert", "key"} <= data.keys():
        return False
    try:
        leaf = await shake_hands(port, trusting(data["ca"]))
        stored = ssl.PEM_cert_to_DER_cert(data["cert"].decode())
    except (ssl.SSLError, ValueError):
        return False
    return leaf == stored


PAGE: Final = "webhooks.md"
FOLDER: Final = "/etc/kubernetes/webhooks"
SERVICE: Final = "rollout-operator"
SOON: Final = timedelta(seconds=30)


@pytest_asyncio.fixture
async def configured(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    """Yield a control plane that reads, when it starts, what certificates to show to whom."""
    text = example_of(PAGE, "kind: AdmissionConfiguration").replace(FOLDER, str(tmp_path))
    config = tmp_path / "admission.yaml"
    config.write_text(text)
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    flags = {"admission-control-config-file": str(config)}
    plane = ControlPlane(locate_assets(lambda line: None), flags=flags)
    try:
        await plane.start()
        yield plane
    finally:
        await plane.stop()


async def test_sec03_the_api_server_shows_the_certificate_that_it_has_to(
    configured: ControlPlane, tmp_path: Path
) -> None:
    """SEC-03: without one it is cut off as any client, and what the webhooks guard is refused."""
    pki = make_pki(tmp_path)
    pki.cert.rename(tmp_path / "client.crt")
    pki.key.rename(tmp_path / "client.key")
    only = (f"-server-tls.client-ca-file={pki.ca}", "-server-tls.client-name=test world")
    async with World(configured, tmp_path) as world:
        await world.grant_webhooks()
        await world.create(PROBE)
        operator = await world.operator(TLS_FLAG, *only)
        wanted = Registration(port=operator.tls_port, hooks=("no-downscale",), service=SERVICE)
        hooks = await world.register(wanted)
        await hooks.wait_injected()
        workload = Workload(api=world.api, namespace=world.namespace, name=PROBE.name)

        async def is_cut_off() -> bool:
            answer = await workload.scale(0, Route.MERGE, is_dry_run=True)
            is_failed = answer.status == 500 and "failed calling webhook" in answer.message
            return is_failed and "x509" not in answer.message  # it trusts the operator already

        await wait_true("cut off", is_cut_off, SOON)
        # A port other than 443 is a part of the name; there is no network for Services here.
        host = f"{SERVICE}.{world.namespace}.svc:{operator.tls_port}"
        shown = example_of(PAGE, "client-certificate:").replace(FOLDER, str(tmp_path))
        users = shown.replace(f"{SERVICE}.NAMESPACE.svc", host)
        (tmp_path / "kubeconfig").write_text(users)
        await configured.restart_apiserver()
        await hooks.wait_called(PROBE.name)
