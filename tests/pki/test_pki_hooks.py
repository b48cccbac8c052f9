"""Which hooks of a labelled configuration get our CA: those that call us (D-31, SI-20)."""

import pytest
from msgspec.structs import replace

from rollout_operator.model.objects import WebhookConfiguration
from rollout_operator.pki.bundle import plan_patch
from tests.kube.informer_rig import after, captured_log
from tests.kube.scripted_watch import virtual
from tests.pki.injection_bench import (
    HOST,
    NAMES,
    OTHER_PEM,
    PEM,
    Cluster,
    apply,
    configuration,
    encoded,
)

WANTED = encoded(PEM)


def called(*hosts: str) -> WebhookConfiguration:
    """Return a labelled configuration with a hook for each host, and the CA of another server."""
    one = configuration("guard", *[OTHER_PEM] * len(hosts))
    hooks = (replace(hook, host=host) for hook, host in zip(one.webhooks, hosts, strict=True))
    return replace(one, webhooks=tuple(hooks))


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        pytest.param(HOST, True, id="our Service"),
        pytest.param(f"{HOST}.cluster.local", True, id="the long name, in a URL"),
        pytest.param("other.ops.svc", False, id="another Service"),
        pytest.param("rollout-operator.prod.svc", False, id="of another namespace"),
        pytest.param(f"x.{HOST}", False, id="below ours"),
        pytest.param("10.0.0.1", False, id="an address"),
        pytest.param("", False, id="none that can be told"),
    ],
)
def test_d31_only_hooks_that_call_us_are_written(host: str, is_ours: bool) -> None:
    """D-31, SI-20: the CA of another server in a labelled configuration is left alone."""
    one = called(host, HOST)
    patched = apply(one, plan_patch(one, WANTED, "ops", NAMES))
    expected = [WANTED if is_ours else encoded(OTHER_PEM), WANTED]
    assert [hook.ca_bundle for hook in patched.webhooks] == expected
    assert patched.webhooks[0].host == host


@virtual
async def test_d31_what_calls_another_server_is_told_once_and_waited_for_never() -> None:
    """D-31, SI-19: a rotation does not wait for a hook that is never written."""
    cluster = Cluster(called("other.ops.svc"))
    with captured_log() as lines:
        async with cluster.running():
            await after(3600)
            assert cluster.writes == []
            assert cluster.injector.holds(PEM)
    told = [line for line in lines if "Leaving the CA bundle of other servers alone" in line]
    assert len(told) == 1
    assert "hosts=other.ops.svc" in told[0]
