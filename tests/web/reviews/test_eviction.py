"""The hook pod-eviction: T-11, W-09, W-53, W-54, ZPDB-50..57, METR-31."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rollout_operator.guards.arbiter import REPEAT_LIMIT
from rollout_operator.guards.grants import read_record
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.names import ApiError, Denied, Unreachable
from rollout_operator.model.outcome import Code
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT
from rollout_operator.web.dispatch import SHARE
from tests.controllers.fake_client import Json
from tests.guards.arbiter_bench import SECOND, Hold, World, failing, name_of, part, rule, world
from tests.planning.disruptions import PATTERN
from tests.virtual_time import elapsed, in_virtual_time
from tests.web.eviction_world import court

OTHER = {"app": "another"}
NO_OWNER = "500 unable to find a StatefulSet pod owner"
NEWER = "429 ingester-zone-a-0, or its StatefulSet ingester-zone-a, is newer than what the operator"


# What is reviewed at all


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param(
            {"operation": "DELETE"},
            "400 request operation is not create, got: DELETE",
            id="T-11 #1, ZPDB-50",
        ),
        pytest.param(
            {"subResource": "foo"},
            "400 request SubResource is not eviction, got: foo",
            id="T-11 #2, ZPDB-51",
        ),
        pytest.param(
            {"name": "", "object": None},
            "400 request did not include both a namespace and a name",
            id="T-11 #3, ZPDB-52",
        ),
        pytest.param(
            {"namespace": ""},
            "400 request did not include both a namespace and a name",
            id="ZPDB-52 no namespace",
        ),
        pytest.param(
            {"namespace": "prod"},
            "400 namespace prod is not looked after by this operator",
            id="another namespace",
        ),
    ],
)
@in_virtual_time
async def test_zpdb50_to_52_what_is_no_eviction(changes: dict[str, Any], text: str) -> None:
    made = court()
    assert await made.send_request(**changes) == text
    assert made.calls == []
    assert made.counted == {("invalid-request", "400"): 1}


@pytest.mark.parametrize("review", ["v1", "v1beta1"])
@pytest.mark.parametrize("policy", ["policy/v1", "policy/v1beta1"])
@in_virtual_time
async def test_t11_11_the_first_may_go_and_is_recorded(review: str, policy: str) -> None:
    """T-11 row 11, T-12: an answer in the version of the question."""
    made = court()
    assert await made.send_request(review=review, policy=policy) == "allow"
    assert made.here.recorded() == ["a-0"]
    assert made.counted == {("allowed", "200"): 1}
    assert await made.send_request("a-2") == "429 1 pod not ready in ingester-zone-a"
    assert made.counted == {("allowed", "200"): 1, ("denied", "429"): 1}


@pytest.mark.parametrize("seconds", [4, 9, 27])
@in_virtual_time
async def test_si17_the_record_says_for_how_long_its_answer_may_be_acted_upon(seconds: int) -> None:
    """The API server's own time is longer than ours by a ninth, and it may have begun earlier."""
    made = court()
    await made.send_request(within=timedelta(seconds=seconds))
    record = read_record(made.here.live("a-0"))
    assert record is not None
    longest = timedelta(seconds=seconds) / SHARE + REPEAT_LIMIT
    assert longest < record.lasts < longest + SECOND


@in_virtual_time
async def test_the_name_may_stand_in_the_eviction_only() -> None:
    """As clients send it that post to the subresource; the API server fills it in, others not."""
    made = court()
    assert await made.send_request(name="") == "allow"
    assert made.here.recorded() == ["a-0"]


@in_virtual_time
async def test_t11_12_the_pods_that_are_down_are_named_with_their_reason() -> None:
    here = world()
    here.break_pod("a-2")
    answer = await court(here=here).response()
    assert answer["status"] == {
        "metadata": {},
        "message": "1 pod not ready in ingester-zone-a (ingester-zone-a-2: CrashLoopBackOff);"
        " budget ingester: max unavailable 1; the next eviction in line",
        "code": 429,
    }


# Pods that need no budget, and owners

REPLICA_SET: Json = {"kind": "ReplicaSet", "name": "web-1", "uid": "uid-web", "controller": True}
NO_CONTROLLER: Json = {"kind": "StatefulSet", "name": name_of("a"), "uid": "uid-ingester-zone-a"}
NEW_SET: Json = {**NO_CONTROLLER, "controller": True, "uid": "new"}
Change = Callable[[World], None]


def of_phase(phase: str) -> Change:
    """Return a change of `a-0` where another pod is down."""

    def change(here: World) -> None:
        _set_phase(here, "a-0", phase)
        here.break_pod("b-0")

    return change


def of_owners(*owners: Json) -> Change:
    return lambda here: here.change("a-0", ownerReferences=list(owners))


def remove(here: World) -> None:
    here.remove("a-0")


def terminate(here: World) -> None:
    here.terminate("a-0")


def break_two(here: World) -> None:
    here.break_pod("a-0")
    here.break_pod("a-1")


@pytest.mark.parametrize(
    ("rules", "change", "answer", "calls", "counted"),
    [
        # It answers 404, which a drain takes for success.
        pytest.param(
            [rule()], remove, 'allow pods "ingester-zone-a-0" not found', ["get"],
            ("pod-not-found", "200"), id="T-11 #4, W-53 it does not exist",
        ),
        # Also where another pod is down: nothing is disrupted. Its phase is read live.
        *(
            pytest.param(
                [rule()], of_phase(phase), "allow pod is not ready", ["get"],
                ("pod-not-ready", "200"), id=f"T-11 #5, ZPDB-54 {phase}",
            )
            for phase in ("Succeeded", "Failed", "Pending")
        ),
        pytest.param(
            [rule()], terminate, "allow pod is not ready", ["get"],
            ("pod-not-ready", "200"), id="ZPDB-54 it is terminating",
        ),
        pytest.param(
            [rule(selector=OTHER)], of_phase("Failed"), "allow pod is not ready", [],
            ("pod-not-ready", "200"), id="ZPDB-54 what has no budget costs no call",
        ),
        pytest.param(
            [rule()], break_two, "429 1 pod not ready in ingester-zone-a", None,
            ("denied", "429"), id="ZPDB-59 one that runs unready counts like any other",
        ),
        pytest.param(
            [rule(selector=OTHER)], lambda here: None, "allow", [],
            ("pod-not-in-scope", "200"), id="T-11 #7",
        ),
        *(
            pytest.param(
                [rule(selector=OTHER)], of_owners(*owners), "allow", [],
                ("pod-not-in-scope", "200"), id=f"ZPDB-56 {len(owners)} other owners",
            )
            for owners in ([], [REPLICA_SET])
        ),
        pytest.param([rule()], of_owners(), NO_OWNER, None, None, id="T-11 #6, ZPDB-57 none"),
        pytest.param(
            [rule()], of_owners(NO_CONTROLLER), NO_OWNER, None, None, id="ZPDB-57 none in charge"
        ),
        pytest.param(
            [rule()], of_owners(REPLICA_SET),
            "500 pod owner is not a StatefulSet - ingester-zone-a-0 has owner web-1", None, None,
            id="ZPDB-57 another kind",
        ),
        pytest.param([rule()], of_owners(NEW_SET), NEWER, None, None, id="ZPDB-57 W-54 a new one"),
        pytest.param(
            [rule(), rule(name="other")], of_owners(),
            "400 multiple zoned pod disruption budgets found for pod ingester-zone-a-0:"
            " ingester and other", None, ("cfg-not-found", "400"), id="ZPDB-55 before the owner",
        ),
    ],
)  # fmt: skip
@in_virtual_time
async def test_t11_pods_by_state_owner_and_budgets(
    rules: list[Budget],
    change: Change,
    answer: str,
    calls: list[str] | None,
    counted: tuple[str, str] | None,
) -> None:
    here = world(*rules)
    change(here)
    made = court(here=here)
    found = await made.send_request()
    assert found == answer or (answer is NEWER and found.startswith(NEWER))
    assert calls is None or made.calls == calls
    assert counted is None or made.counted == {counted: 1}
    assert here.recorded() == []


@in_virtual_time
async def test_w53_a_pod_that_has_just_gone_is_read_again() -> None:
    """The cache shows it running: what follows is that of any pod."""
    made = court()
    made.here.remove("a-0")
    assert (await made.send_request()).startswith(
        "429 ingester-zone-a-0 changed at this very moment"
    )
    assert made.calls == ["patch"]


@in_virtual_time
async def test_zpdb54_a_pod_that_began_to_run_a_moment_ago_is_not_exempt() -> None:
    """The cache says Pending, the store Running: what counts its zone is as old as that."""
    made = court()
    _set_phase(made.here, "a-0", "Pending")
    made.process.sync()
    _set_phase(made.here, "a-0", "Running")
    assert (await made.send_request()).startswith(NEWER)
    assert made.counted == {("err: sts-pod-status-not-determined", "429"): 1}
    made.process.sync()
    assert await made.send_request() == "allow"


@pytest.mark.parametrize("is_covered", [False, True], ids=["ZPDB-56", "W-54"])
@in_virtual_time
async def test_a_pod_that_the_cache_does_not_know_is_read(is_covered: bool) -> None:
    """W-54, ZPDB-56: under a budget it is reviewed again, once the cache shows it."""
    made = court(rule() if is_covered else rule(selector=OTHER))
    made.process.pods.replace_all([])
    if is_covered:
        assert (await made.send_request()).startswith(NEWER)
        made.process.sync()
        assert await made.send_request() == "allow"
    else:
        assert await made.send_request() == "allow"
        assert made.calls == ["get"]


@pytest.mark.parametrize("owners", [[], [REPLICA_SET]])
@in_virtual_time
async def test_w54_what_is_not_known_yet_ends_no_drain_of_such_pods(owners: list[Json]) -> None:
    """429, not 500: that no budget covers them shows in a moment."""
    here = world(rule(selector=OTHER))
    of_owners(*owners)(here)
    here.lacks[DisruptionSource.EVICTION] = "no answer yet"
    made = court(here=here)
    assert await made.send_request() == "429 the budgets are not known yet: no answer yet"
    here.lacks.clear()
    here.age = SNAPSHOT_LIMIT + SECOND
    assert (await made.send_request()).startswith("429 the newest proof that the cache is live")
    here.age = timedelta(0)
    assert await made.send_request() == "allow"


# Codes


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(Unreachable("refused"), "refused", id="unreachable"),
        pytest.param(Denied("forbidden", status=403), "forbidden", id="forbidden"),
    ],
)
@in_virtual_time
async def test_w54_what_cannot_be_read_is_called_again(error: ApiError, text: str) -> None:
    """Never allowed (FP-31), and never a code that ends a drain."""
    made = court()
    made.process.pods.replace_all([])
    made.here.client.before = failing("get", error)
    assert await made.send_request() == f"429 it is unknown whether {name_of('a-0')} may go: {text}"
    assert made.verdicts[-1].reason.code is Code.CANNOT_CHECK


@in_virtual_time
async def test_w54_a_pod_that_cannot_be_read_is_not_let_go() -> None:
    made = court()
    held = made.here.client.objects["pods", name_of("a-0")]
    made.process.pods.replace_all([])
    made.here.client.put("pods", {**held, "status": {"phase": 7}})
    assert (await made.send_request()).startswith(
        "429 it is unknown whether ingester-zone-a-0 may go"
    )


@in_virtual_time
async def test_w55_the_verdict_is_out_before_the_review_is_over() -> None:
    """A read that hangs, and a grant that does: 429 either way."""
    made = court()
    made.here.client.pause = Hold("get", "patch")
    assert (await made.send_request(within=2 * SECOND)).startswith(
        "429 no answer of the API server about"
    )
    assert elapsed() < 2 * SECOND
    begin = elapsed()
    made.process.pods.replace_all([])
    reply = await made.send_request("b-0", within=2 * SECOND)
    assert reply == "429 the API server did not answer in time what ingester-zone-b-0 is"
    assert elapsed() - begin < 2 * SECOND


@in_virtual_time
async def test_d42_a_hint_is_given_only_where_it_is_a_matter_of_a_moment() -> None:
    """Clients wait for it without a word to their user."""
    made = court()
    made.here.change("a-0")
    moment = await made.response()
    assert moment["status"]["details"] == {"retryAfterSeconds": 1}
    made.process.sync()
    assert "status" not in await made.response()
    used = await made.response("b-0")
    assert used["status"]["code"] == 429
    assert "details" not in used["status"]


@in_virtual_time
async def test_d42_no_hint_for_what_takes_minutes() -> None:
    made = court(rule(pattern=PATTERN, delay=timedelta(minutes=5)))
    answer = await made.response()
    assert answer["status"]["message"].startswith("2 pods not ready in partition 0")
    assert "details" not in answer["status"]


# Dry runs


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"dryRun": True}, id="of the request"),
        pytest.param({"options": {"dryRun": ["All"]}}, id="of the eviction itself"),
    ],
)
@in_virtual_time
async def test_w09_a_dry_run_leaves_no_trace(changes: dict[str, Any]) -> None:
    """SI-15: `kubectl drain --dry-run=server` says it in the eviction only."""
    made = court()
    assert await made.send_request(**changes) == "allow"
    assert made.calls == []
    assert made.here.recorded() == []
    assert await made.send_request("b-0") == "allow"
    assert await made.send_request(**changes) == "429 1 pod not ready in ingester-zone-b"


@in_virtual_time
async def test_si16_a_review_that_is_repeated_has_one_record() -> None:
    made = court()
    answers = await asyncio.gather(made.send_request(), made.send_request())
    assert set(answers) == {"allow"}
    assert await made.send_request() == "allow"
    assert made.calls == ["patch", "list"]


def _set_phase(here: World, pod: str, phase: str) -> None:
    held = here.client.objects["pods", name_of(pod)]
    here.client.put("pods", {**held, "status": {**part(held, "status"), "phase": phase}})
    here.change(pod)
