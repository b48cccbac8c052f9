"""The certificate that the API server shows; the one of the webhooks is in `certificates.txt`."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.pages import example_of
from tests.system.hooked import PROBE
from tests.system.waits import wait_true
from tests.world.assets import locate_assets
from tests.world.clients import Route, Workload
from tests.world.hooks import Registration
from tests.world.operatorproc import TLS_FLAG
from tests.world.pki import make_pki
from tests.world.plane import ControlPlane
from tests.world.world import World

pytestmark = pytest.mark.controlplane


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
    async with ControlPlane(locate_assets(lambda line: None), flags=flags).running() as plane:
        yield plane


async def test_sec03_the_api_server_shows_the_certificate_that_it_has_to(
    configured: ControlPlane, tmp_path: Path
) -> None:
    """SEC-03: without one it is cut off as any client, and what the webhooks guard is refused."""
    pki = make_pki(tmp_path)
    pki.cert.rename(tmp_path / "client.crt")
    pki.key.rename(tmp_path / "client.key")
    only = (f"-server-tls.client-ca-file={pki.ca}", "-server-tls.client-name=test world")
    async with World(configured, tmp_path) as world:
        await world.grant("webhooks")
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
