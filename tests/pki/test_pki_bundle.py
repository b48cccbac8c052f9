"""The CA in webhook configurations: what is written, what never (CA-01..07, SI-20, SEED-097)."""

import copy
from collections import deque
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from rollout_operator.kube.api import MUTATING_WEBHOOKS
from rollout_operator.model.names import (
    INJECT_CA_LABEL,
    NAMESPACE_LABEL,
    ApiError,
    Conflict,
    Denied,
    NotFound,
    Refused,
    Uid,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.objects import Unreadable
from rollout_operator.pki.bundle import is_ours, plan_patch
from tests.kube.informer_rig import after
from tests.pki.injection_bench import NAMES, OTHER_PEM, PEM, Cluster, apply, configuration, encoded
from tests.virtual_time import in_virtual_time

WANTED = encoded(PEM)

# The plan


def test_ca_03_only_hooks_that_differ_are_changed_under_tests() -> None:
    one = configuration("guard", PEM, OTHER_PEM, b"")
    assert plan_patch(one, WANTED, "ops", NAMES) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-guard"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "test", "path": "/webhooks/1/name", "value": "guard-1.ops"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": WANTED},
        {"op": "test", "path": "/webhooks/2/name", "value": "guard-2.ops"},
        {"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": WANTED},
    ]


def test_ca_03_where_nothing_differs_nothing_is_planned() -> None:
    assert plan_patch(configuration("guard", PEM, PEM), WANTED, "ops", NAMES) == []
    assert plan_patch(replace(configuration(), webhooks=()), WANTED, "ops", NAMES) == []


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({}, id="CA-02 none"),
        pytest.param({INJECT_CA_LABEL: "true"}, id="CA-02 no namespace"),
        pytest.param({NAMESPACE_LABEL: "ops"}, id="CA-02 not requested"),
        pytest.param({INJECT_CA_LABEL: "True", NAMESPACE_LABEL: "ops"}, id="CA-02 other spelling"),
        pytest.param({INJECT_CA_LABEL: "false", NAMESPACE_LABEL: "ops"}, id="CA-02 false"),
        pytest.param({INJECT_CA_LABEL: "true", NAMESPACE_LABEL: "ops2"}, id="SI-20 of another"),
        pytest.param({INJECT_CA_LABEL: "true", NAMESPACE_LABEL: ""}, id="SI-20 empty"),
    ],
)
def test_what_is_not_labelled_for_us_is_left_alone(labels: Mapping[str, str]) -> None:
    one = replace(configuration(), labels=labels)
    assert not is_ours(one, "ops")
    assert plan_patch(one, WANTED, "ops", NAMES) == []


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


@given(st.lists(st.sampled_from([b"", PEM, OTHER_PEM]), min_size=1, max_size=6))
def test_si_20_a_patch_changes_bundles_and_nothing_else(bundles: list[bytes]) -> None:
    one = configuration("guard", *bundles)
    before = copy.deepcopy(asdict(one))
    patched = apply(one, plan_patch(one, WANTED, "ops", NAMES))
    assert asdict(one) == before, "W-25: what is cached is never changed"
    assert {hook.ca_bundle for hook in patched.webhooks} == {WANTED}
    assert plan_patch(patched, WANTED, "ops", NAMES) == []
    blank = [replace(hook, ca_bundle="") for hook in one.webhooks]
    assert [replace(hook, ca_bundle="") for hook in patched.webhooks] == blank
    assert replace(patched, webhooks=one.webhooks) == one


# The shell


@in_virtual_time
async def test_seed_097_both_kinds_are_written_and_others_left_alone() -> None:
    cluster = Cluster(configuration("guard"))
    cluster.put(configuration("prepare", b"", OTHER_PEM, kind=MUTATING_WEBHOOKS.kind))
    cluster.put(replace(configuration("foreign"), labels={NAMESPACE_LABEL: "ops"}))
    async with cluster.running():
        await after(1)
    assert cluster.bundles("guard") == [WANTED]
    assert cluster.bundles("prepare") == [WANTED, WANTED]
    assert cluster.bundles("foreign") == [""]
    assert len(cluster.writes) == cluster.count("written") == 2


@in_virtual_time
async def test_ca_07_a_configuration_created_later_is_written() -> None:
    cluster = Cluster()
    async with cluster.running():
        await after(60)
        cluster.put(configuration("late"))
        await after(60.1)
        assert cluster.bundles("late") == [WANTED]


@in_virtual_time
async def test_ca_07_a_label_that_is_set_later_counts() -> None:
    cluster = Cluster(replace(configuration(), labels={}))
    async with cluster.running():
        await after(1)
        assert cluster.writes == []
        cluster.put(configuration())
        await after(1.1)
        assert cluster.bundles() == [WANTED]


@in_virtual_time
async def test_ca_06_a_bundle_that_a_client_takes_away_is_put_back() -> None:
    cluster = Cluster(configuration("guard", PEM))
    async with cluster.running():
        await after(1)
        cluster.put(configuration("guard", OTHER_PEM))
        await after(1.1)
        assert cluster.bundles() == [WANTED]


@in_virtual_time
async def test_a_new_bundle_is_written_when_woken_and_within_minutes_when_not() -> None:
    cluster = Cluster(configuration("guard", PEM))
    async with cluster.running():
        await after(1)
        cluster.bundle = OTHER_PEM + PEM
        assert not cluster.injector.holds(cluster.bundle)
        cluster.injector.wake()
        await after(1.1)
        assert cluster.injector.holds(cluster.bundle)
        assert not cluster.injector.holds(PEM), "exactly this bundle"
        cluster.bundle = OTHER_PEM
        await after(301)
        assert cluster.bundles() == [encoded(OTHER_PEM)]


@in_virtual_time
async def test_without_a_bundle_nothing_is_taken_away() -> None:
    cluster = Cluster(configuration("guard", PEM), bundle=b"")
    async with cluster.running():
        await after(400)
    assert cluster.writes == []


@in_virtual_time
async def test_li_11_at_rest_nothing_is_written() -> None:
    cluster = Cluster(configuration("guard", PEM))
    async with cluster.running():
        cluster.put(replace(configuration("guard", PEM), labels={**configuration().labels}))
        await after(3600)
    assert cluster.writes == []


async def test_what_holds_a_bundle_is_reported_by_the_caches() -> None:
    cluster = Cluster()
    assert cluster.injector.holds(PEM), "true where there is none"
    cluster.put(configuration("guard", PEM, PEM))
    cluster.put(replace(configuration("foreign"), labels={}))
    assert cluster.injector.holds(PEM)
    cluster.put(configuration("prepare", PEM, b"", kind=MUTATING_WEBHOOKS.kind))
    assert not cluster.injector.holds(PEM)
    cluster.drop("prepare")
    assert cluster.injector.holds(PEM)


# Failures


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(Unreachable("x"), "failed", id="FP-14 not there"),
        pytest.param(Conflict("x"), "conflict", id="CA-04 conflict"),
        pytest.param(UnknownOutcome("x"), "unknown", id="SI-18 no answer"),
        pytest.param(Refused("x"), "failed", id="refused"),
        pytest.param(NotFound("x"), "failed", id="gone, the cache does not know yet"),
        pytest.param(Denied("x"), "denied", id="RBAC-08 denied"),
    ],
)
@in_virtual_time
async def test_w_25_what_failed_is_tried_again(error: ApiError, outcome: str) -> None:
    cluster = Cluster(configuration())
    cluster.errors.append(error)
    async with cluster.running():
        await after(1)
        assert cluster.bundles() == [""]
        cluster.errors.clear()
        await after(70)
        assert cluster.bundles() == [WANTED]
    assert (cluster.count(outcome) or 0) >= 1
    assert cluster.count("written") == 1


@in_virtual_time
async def test_ca_04_a_cache_that_lags_is_never_written_over() -> None:
    """The version tests fail until the cache shows what is there."""
    cluster = Cluster(configuration())
    renamed = replace(configuration("guard", OTHER_PEM), uid=Uid("uid-new"))
    cluster.put(renamed, is_cached=False)
    async with cluster.running():
        await after(2)
        assert cluster.bundles() == [encoded(OTHER_PEM)]
        assert (cluster.count("conflict") or 0) >= 1
        cluster.put(renamed)
        await after(40)
        assert cluster.bundles() == [WANTED]


@in_virtual_time
async def test_si_19_what_a_newer_secret_made_another_replica_write_stays() -> None:
    """SI-19, FP-18: one that was frozen knows an old bundle; it reads before it writes."""
    cluster = Cluster(configuration("guard", OTHER_PEM), stored=OTHER_PEM)
    async with cluster.running():
        await after(60)
        assert cluster.writes == []
        cluster.put(configuration("guard", PEM))
        await after(120)
        assert cluster.bundles() == [encoded(OTHER_PEM)]


@in_virtual_time
async def test_si_19_nothing_is_written_before_the_secret_was_read(lines: list[str]) -> None:
    """SI-19, LI-11: nor what has changed meanwhile; the failure is reported, and tried again."""
    errors = deque[ApiError]([Unreachable("away", status=0)] * 2)
    cluster = Cluster(configuration("guard", OTHER_PEM), stored=OTHER_PEM, read_errors=errors)
    async with cluster.running():
        await after(60)
    assert cluster.writes == []
    assert cluster.count("failed") == 2
    assert sum("CA bundle not written" in line for line in lines) == 1


@in_virtual_time
async def test_what_is_written_is_not_written_again_before_the_cache_shows_it() -> None:
    cluster = Cluster(configuration(), is_cached=False)
    async with cluster.running():
        await after(60)
    assert len(cluster.writes) == 1


@in_virtual_time
async def test_w_06_one_that_fails_does_not_stop_another() -> None:
    cluster = Cluster(configuration("bad"))
    async with cluster.running():
        cluster.errors.append(Refused("x"))
        await after(0.1)
        cluster.errors.clear()
        del cluster.objects["validatingwebhookconfigurations", "bad"]  # unseen by its cache
        cluster.put(configuration("good"))
        await after(0.2)
        assert cluster.bundles("good") == [WANTED]


@in_virtual_time
async def test_fp_34_a_co_writer_that_wipes_each_time_costs_bounded_writes(
    lines: list[str],
) -> None:
    cluster = Cluster(configuration(), is_wiped=True)
    async with cluster.running():
        await after(660)
    first = [at for at in cluster.times if at <= 60]
    later = [at for at in cluster.times if at > 60]
    assert len(first) <= 10
    assert len(later) <= 20, "one each 30 s"
    reported = [line for line in lines if "level=warn" in line]
    assert len(reported) == 1
    assert "Another client keeps changing the CA bundle" in reported[0]
    assert "managedFields" in reported[0]


@in_virtual_time
async def test_fp_34_it_heals_as_soon_as_the_co_writer_stops() -> None:
    cluster = Cluster(configuration(), is_wiped=True)
    async with cluster.running():
        await after(300)
        cluster.is_wiped = False
        await after(331)
        assert cluster.bundles() == [WANTED]


@in_virtual_time
async def test_fp_34_a_wipe_each_minute_is_undone_at_once(lines: list[str]) -> None:
    cluster = Cluster(configuration())
    async with cluster.running():
        for minute in range(30):
            await after(60 * minute + 1)
            assert cluster.bundles() == [WANTED]
            cluster.put(configuration())
    assert sum("Another client" in line for line in lines) == 1


@in_virtual_time
async def test_rbac_08_a_missing_role_is_reported_once_and_is_not_fatal(lines: list[str]) -> None:
    text = 'cannot patch x: 403; grant verb patch on "validatingwebhookconfigurations"'
    cluster = Cluster(configuration())
    cluster.errors.append(Denied(text))
    async with cluster.running():
        await after(3600)
        assert len(cluster.writes) <= 121, "LI-11: one each 30 s"
        cluster.errors.clear()
        await after(3640)
        assert cluster.bundles() == [WANTED]
        cluster.put(configuration())
        cluster.errors.append(Denied(text))
        await after(3700)
    reported = [line for line in lines if "level=warn" in line]
    assert len(reported) == 2, "again only after it had worked"
    assert "grant verb patch on" in reported[0]


@in_virtual_time
async def test_li_11_a_server_that_is_down_is_reported_now_and_then(lines: list[str]) -> None:
    cluster = Cluster(configuration())
    cluster.errors.append(Unreachable("x"))
    async with cluster.running():
        await after(900)
    assert len(cluster.writes) <= 40
    assert sum("level=warn" in line for line in lines) <= 5


@in_virtual_time
async def test_cancelling_in_the_middle_of_a_write_leaves_nothing_behind() -> None:
    cluster = Cluster(configuration())
    async with cluster.running():
        await after(0.0005)
        assert len(cluster.writes) == 1
    assert cluster.bundles() == [""]


@in_virtual_time
async def test_what_is_gone_is_forgotten(lines: list[str]) -> None:
    """One that is created anew by every deployment is not fought over."""
    cluster = Cluster()
    async with cluster.running():
        for round in range(6):
            await after(400 * round + 1)
            cluster.put(configuration())
            await after(400 * round + 2)
            assert cluster.bundles() == [WANTED]
            cluster.drop("guard")
    assert all("level=warn" not in line for line in lines)
