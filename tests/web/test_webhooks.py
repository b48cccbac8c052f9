"""The webhook server over TLS: requests, verdicts, deadlines, bugs, metrics and log lines."""

import asyncio
import json
from datetime import timedelta

import pytest
from opentelemetry.trace import format_trace_id

from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review, Scalable
from rollout_operator.web.middleware import ClusterRules
from tests.model.review_trees import review_tree, set_tree
from tests.recorded_spans import recorded
from tests.web.webhook_world import (
    ALLOWED,
    FINE,
    PATH,
    Setting,
    WebhookWorld,
    body_of,
    post,
    serving,
)

MILLISECOND = timedelta(milliseconds=1)
REFUSED = Verdict(
    is_allowed=False, reason=Reason(code=Code.NO_DOWNSCALE, text="it has <the> label")
)


class Endless:
    """A hook's review that never ends by itself."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def __call__(self, review: Review, until: timedelta) -> Verdict:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return FINE


async def test_a_review_is_answered(world: WebhookWorld) -> None:
    """ADM-06: byte by byte, and the hook got what was sent."""
    answer = await world.send_request(post(body_of()))

    assert (answer.status, answer.body) == (200, ALLOWED)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["server"] == "rollout-operator"
    (review,) = world.hook.reviewed
    assert isinstance(review.old, Scalable)
    assert isinstance(review.new, Scalable)
    assert (review.old.replicas, review.new.replicas, review.dry_run) == (3, 2, False)


async def test_dep71_the_duration_of_a_review_names_its_trace(world: WebhookWorld) -> None:
    """DEP-71: and that of the next request on the same connection does not."""
    with recorded() as traces:
        line = await world.connect()
        await line.send_request(post(body_of()))
        await line.send_request(post(b"{}", path="/other"))
        await line.close()
    context = traces.find("review").context
    assert context is not None
    text = b"".join(world.metrics.render_openmetrics()).decode()
    (example,) = [one for one in text.splitlines() if " # {" in one]
    assert 'route="admission_no_downscale"' in example
    assert f'trace_id="{format_trace_id(context.trace_id)}"' in example


async def test_a_v1beta1_review_gets_its_own_version(world: WebhookWorld) -> None:
    """DEP-15, ADM-05, T-12."""
    world.hook.verdict = REFUSED
    body = json.dumps(review_tree() | {"apiVersion": "admission.k8s.io/v1beta1"}).encode()

    assert (await world.send_request(post(body))).body == (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"uid":"u-1",'
        b'"allowed":false,"status":{"metadata":{},'
        b'"message":"it has \\u003cthe\\u003e label"}}}'
    )


async def test_one_connection_takes_many_reviews(world: WebhookWorld) -> None:
    line = await world.connect()
    for _ in range(3):
        assert (await line.send_request(post(body_of()))).body == ALLOWED

    assert (world.given, len(world.hook.reviewed)) == (1, 3)


NO_TYPE = (400, "wrong content type")
NO_PATH = (404, "no such path")
NO_METHOD = (405, "method not allowed")
EMPTY = post(b"{}")
TYPE = b"Content-Type: application/json"


def undecoded(why: str) -> tuple[int, str]:
    return 400, f"Request could not be decoded: {why}"


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        pytest.param(EMPTY.replace(b"application/json", b"text/plain"), NO_TYPE, id="ADM-03 T-12"),
        pytest.param(
            EMPTY.replace(TYPE, TYPE + b"; charset=utf-8"), NO_TYPE, id="ADM-03 T-12 with charset"
        ),
        pytest.param(EMPTY.replace(TYPE + b"\r\n", b""), NO_TYPE, id="SEC-08 none at all"),
        pytest.param(EMPTY, undecoded("kind: absent"), id="ADM-04 T-12"),
        pytest.param(
            post(json.dumps(set_tree(1)).encode()),
            (400, "Unsupported group version kind: apps/v1, Kind=StatefulSet"),
            id="ADM-04 another kind",
        ),
        pytest.param(post(b""), undecoded("input data was truncated"), id="ADM-07 no body"),
        pytest.param(
            post(b"\x1f\x8b\x08\x00" + bytes(60), "Content-Encoding: gzip"),
            undecoded("JSON is malformed: invalid character (byte 0)"),
            id="SEC-04 gzip is not unpacked",
        ),
        pytest.param(post(b"{}", path="/"), NO_PATH, id="DEP-14 the root"),
        pytest.param(post(b"{}", path=f"{PATH}/"), NO_PATH, id="SEC-08 slash behind"),
        pytest.param(post(b"{}", path=f"/{PATH}"), NO_PATH, id="SEC-08 //"),
        pytest.param(post(b"{}", path=PATH.replace("-", "%2d")), NO_PATH, id="SEC-08 %2d"),
        pytest.param(post(b"{}", path=PATH.upper()), NO_PATH, id="SEC-08 case"),
        pytest.param(post(b"{}", path=f"https://operator{PATH}"), NO_PATH, id="SEC-08 proxy"),
        pytest.param(EMPTY.replace(b"POST", b"GET"), NO_METHOD, id="ADM-02 SEC-08 GET"),
        pytest.param(EMPTY.replace(b"POST", b"PUT"), NO_METHOD, id="SEC-08 PUT"),
        pytest.param(post(b"").replace(b"POST", b"TRACE"), NO_METHOD, id="SEC-08 TRACE"),
    ],
)
async def test_what_is_no_review_gets_no_verdict(
    world: WebhookWorld, request_bytes: bytes, expected: tuple[int, str]
) -> None:
    status, text = expected
    line = await world.connect()
    answer = await line.send_request(request_bytes)

    assert (answer.status, answer.body.decode()) == (status, f"{text}\n")
    assert answer.headers.get("allow") == ("POST" if status == 405 else None)
    assert world.hook.reviewed == []
    assert (await line.send_request(post(body_of()))).status == 200, (
        "the connection is still of use"
    )


async def test_a_hook_that_breaks_refuses(world: WebhookWorld, lines: list[str]) -> None:
    """SI-13: fails closed, the stack is in the log, and the process answers the next."""

    async def break_down(review: Review, until: timedelta) -> Verdict:
        raise TimeoutError("my own")

    world.hook.act = break_down
    answer = await world.send_request(post(body_of()))

    assert answer.body == (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u-1",'
        b'"allowed":false,"status":{"metadata":{},'
        b'"message":"the review failed by a bug; see the operator\'s log","code":503}}}'
    )
    (reported,) = [line for line in lines if "level=error" in line]
    assert "break_down" in reported
    world.hook.act = None
    assert (await world.send_request(post(body_of()))).body == ALLOWED


@pytest.mark.parametrize(
    ("flag", "query"),
    [
        pytest.param(100, "", id="ADM-08 nine tenths of the flag"),
        pytest.param(10_000, "?timeout=100ms", id="the caller's own limit"),
        pytest.param(100, "?timeout=30s", id="the shorter one counts"),
    ],
)
async def test_a_late_hook_is_answered_for(flag: int, query: str) -> None:
    """DEP-16, ADM-08, SI-13: refused at the deadline, and the hook is cancelled."""
    endless = Endless()
    async with serving(Setting(request_timeout=flag * MILLISECOND)) as world:
        world.hook.act = endless
        begin = world.clock.elapsed()
        answer = await world.send_request(post(body_of(), path=PATH + query))
        response = json.loads(answer.body)["response"]

        assert (answer.status, response["allowed"]) == (200, False)
        assert response["status"]["code"] == 429
        assert response["status"]["message"] == "no answer within 90ms"
        assert endless.ended.is_set()
        assert world.hook.until[0] - begin < 200 * MILLISECOND


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("", 9.0),
        ("?timeout=5s", 4.5),
        ("?timeout=30s", 9.0),
        ("?timeout=0s", 9.0),
        ("?timeout=-1s", 9.0),
        ("?timeout=soon", 9.0),
        ("?timeout", 9.0),
        ("?a=1&timeout=1m40s", 9.0),
        ("?a=1&timeout=2s", 1.8),
        ("?" + "a=1&" * 100, 9.0),
    ],
)
async def test_deadlines(world: WebhookWorld, query: str, seconds: float) -> None:
    """ADM-08: nine tenths of the shorter of flag and query, from when the request came."""
    begin = world.clock.elapsed()
    await world.send_request(post(body_of(), path=PATH + query))

    span = (world.hook.until[0] - begin).total_seconds()
    assert seconds <= span < seconds + 1


async def test_the_hook_of_a_gone_caller_is_cancelled(world: WebhookWorld) -> None:
    """ADM-08: the API server has given up, nothing comes of this review."""
    endless = Endless()
    world.hook.act = endless
    line = await world.connect()
    line.writer.write(post(body_of()))
    await world.hook.begun.wait()
    await line.close()

    async with asyncio.timeout(10):
        await endless.ended.wait()
    world.hook.act = None
    assert (await world.send_request(post(body_of()))).body == ALLOWED
    (gone,) = [line for line in world.series("request_duration_seconds_count") if "499" in line]
    assert gone.endswith(" 1")


async def test_requests_are_measured(world: WebhookWorld) -> None:
    """METR-10 to METR-13, METR-51, METR-52: with the names that dashboards select."""
    body = body_of()
    for request in (
        post(body),
        post(b"{}"),
        post(b"", path="/x"),
        post(b"").replace(b"POST", b"PROPFIND"),
        post(body, "Connection: upgrade", "Upgrade: websocket"),
    ):
        await world.send_request(request)

    assert set(world.series("request_duration_seconds_count")) == {
        f'{{method="{method}",route="{route}",status_code="{status}",ws="{ws}"}} 1'
        for method, route, status, ws in [
            ("POST", "admission_no_downscale", 200, "false"),
            ("POST", "admission_no_downscale", 200, "true"),
            ("POST", "admission_no_downscale", 400, "false"),
            ("POST", "other", 404, "false"),
            ("other", "admission_no_downscale", 405, "false"),
        ]
    }
    ours = '{method="POST",route="admission_no_downscale"} '
    assert f"{ours}{2 * len(body) + 2}" in world.series("request_message_bytes_sum")
    sent = 2 * len(ALLOWED) + len("Request could not be decoded: kind: absent\n")
    assert f"{ours}{sent}" in world.series("response_message_bytes_sum")
    assert {line.rsplit(" ", 1)[1] for line in world.series("inflight_requests")} == {"0"}


@pytest.mark.parametrize(
    ("excluded", "status"),
    [
        pytest.param((), 200, id="CLUS-02 W-30 the API server never sends it"),
        pytest.param(("shop",), 511, id="CLUS-02 own exclusions replace the admission paths"),
    ],
)
async def test_cluster_validation(excluded: tuple[str, ...], status: int) -> None:
    """CLUS-01."""
    rules = ClusterRules(namespace="prod", enabled=True, excluded_paths=excluded)
    async with serving(Setting(cluster=rules)) as world:
        answer = await world.send_request(post(body_of()))

        assert answer.status == status
        assert (await world.send_request(post(body_of(), "X-Cluster: prod"))).status == 200
        if status == 511:
            assert json.loads(answer.body)["route"] == "admission_no_downscale"


async def test_verdicts_are_reported_and_counted(lines: list[str]) -> None:
    """Every decision is one line: what was reviewed, and why it was answered so."""
    counted: list[tuple[str, Code]] = []
    setting = Setting(
        on_verdict=lambda path, review, verdict: counted.append((path, verdict.reason.code))
    )
    async with serving(setting) as world:
        await world.send_request(post(body_of()))
        world.hook.verdict = REFUSED
        kate = {"username": "kate", "groups": ["system:authenticated"]}
        await world.send_request(post(body_of(subResource="scale", dryRun=True, userInfo=kate)))
        world.hook.verdict = Verdict(is_allowed=True, reason=FINE.reason, warnings=("odd",))
        await world.send_request(post(body_of(object=None)))

    reported = [line.split(" ", 2)[::2] for line in lines if "change" in line]
    begin = f"hook={PATH} operation=UPDATE"
    assert reported == [
        [
            "level=debug",
            f'msg="Allowing change" {begin} resource=statefulsets namespace=prod name=zone-a'
            ' replicas_from=3 replicas_to=2 dry_run=false user="" reason=not_a_downscale why=""\n',
        ],
        [
            "level=info",
            f'msg="Refusing change" {begin} resource=statefulsets/scale namespace=prod name=zone-a'
            " replicas_from=3 replicas_to=2 dry_run=true user=kate reason=no_downscale"
            ' why="it has <the> label"\n',
        ],
        [
            "level=info",
            f'msg="Allowing change" {begin} resource=statefulsets namespace=prod name=zone-a'
            ' replicas_from=3 replicas_to=null dry_run=false user="" reason=not_a_downscale'
            " why=odd\n",
        ],
    ]
    assert counted == [
        (PATH, Code.NOT_A_DOWNSCALE), (PATH, Code.NO_DOWNSCALE), (PATH, Code.NOT_A_DOWNSCALE),
    ]  # fmt: skip


@pytest.mark.parametrize("may_patch", [True, False])
async def test_only_mutating_paths_are_patched(may_patch: bool) -> None:
    """D-23: a validating webhook that answers a patch fails."""
    setting = Setting(may_patch=lambda path: may_patch and path == PATH)
    async with serving(setting) as world:
        world.hook.verdict = Verdict(is_allowed=True, reason=FINE.reason, annotations={"a": "b"})

        assert (b'"patchType"' in (await world.send_request(post(body_of()))).body) is may_patch


async def test_the_server_of_patches_is_read_only_where_there_is_one() -> None:
    """D-53: the answer reads all webhook configurations of the cluster."""
    requested: list[str] = []

    def may_patch(path: str) -> bool:
        requested.append(path)
        return True

    async with serving(Setting(may_patch=may_patch)) as world:
        await world.send_request(post(body_of()))
        assert requested == []
        world.hook.verdict = Verdict(is_allowed=True, reason=FINE.reason, annotations={"a": "b"})
        await world.send_request(post(body_of()))

    assert requested == [PATH]
