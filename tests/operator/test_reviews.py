"""Which hooks answer whom: API servers, and replicas that pass reviews on."""

from rollout_operator.controllers.budgets import Budgets
from rollout_operator.model.lease import Lease
from rollout_operator.operator.reviews import (
    EVICTION_PATH,
    LED_PATHS,
    PREPARE_PATH,
    Configurations,
    Reviews,
)
from rollout_operator.web.dispatch import Forwarder, LeaderOnly, Peers
from tests.controllers.fed_context import FedContext
from tests.virtual_time import VirtualClock, in_virtual_time

LEADER = Lease(version="1", holder="other_1", address="10.0.0.2:8444")


def build() -> Reviews:
    """Return the reviews of a process that follows another."""
    clock = VirtualClock()
    context = FedContext(None, clock, None, "-server-tls.enabled")
    process, config = context.process, context.settings
    peers = Peers(find_leader=lambda: LEADER, trust=_fail, host="operator", namespace="test")
    forwarder = Forwarder(peers, clock, lambda path, outcome: None)
    return Reviews(config, context, Budgets(context), Configurations(process, ()), forwarder)


def _fail() -> None:
    """There is no certificate, and nothing is sent."""


@in_virtual_time
async def test_dep92_what_other_replicas_pass_on_goes_no_further() -> None:
    """DEP-92: and they are answered nothing else than what only the leader decides."""
    reviews = build()
    assert {*reviews.peer_reviewer.paths} == {PREPARE_PATH, EVICTION_PATH} == {*LED_PATHS}
    for path in LED_PATHS:
        requested, passed_on = reviews.reviewer.hooks[path], reviews.peer_reviewer.hooks[path]
        assert isinstance(requested, LeaderOnly)
        assert isinstance(passed_on, LeaderOnly)
        assert requested.forwarder is not None
        assert passed_on.forwarder is None
        assert passed_on.hook is requested.hook, "they share what is remembered"
        assert not reviews.peer_reviewer.keeps(path)
