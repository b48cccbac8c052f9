"""Downscales and their reviews: histories that break a promise, and that nearly do."""

from typing import Any, Final

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, VALIDATING_WEBHOOKS
from rollout_operator.model.names import DOWNSCALE_RECORD, LAST_DOWNSCALE, NO_DOWNSCALE
from tests.judge.builder import OPERATOR, PATHS, PERSON, PREPARED, WAIT, HistoryBuilder, s
from tests.judge.downscales import FORGED
from tests.judge.histories import Events, as_events, cases, list_broken

PATH_KEY = "grafana.com/prepare-downscale-http-path"


def judge(events: Events, **zones: Any) -> list[str]:
    """Return what events in a guarded group break."""
    history = HistoryBuilder().hooks(0, "prepare-downscale", "no-downscale")
    history.zones(**{"labels": PREPARED, "annotations": PATHS, **zones})
    events(history)
    return list(list_broken(history))


def unprepared(t: HistoryBuilder) -> HistoryBuilder:
    return t.live_read(18.5).review(19.5, "a").persist(20)


@as_events
def ready_at(t: HistoryBuilder, ready: float | None) -> None:
    """Add a pod that is ready from a time on, and remove it at 20 s, on a read at 19."""
    t.zone(1, "a", replicas=4).pod(2, "a-3", ready=False).live_read(18.5)
    if ready is not None:
        t.pod(ready, "a-3")
    t.review(19.5, "a").persist(20, "a", 3)


PREPARATIONS = cases(
    {
        "prepared, requested and written": lambda t: t.scale(20),
        "not called -> SI-10": unprepared,
        "it acted, but did not confirm -> SI-10": lambda t: unprepared(
            t.prepare(18.9, "a-2", status=0)
        ),
        "an older pod of that name -> SI-21 SI-10": lambda t: unprepared(
            t.prepare(18.9, "a-2", uid="older")
        ),
        "and told that it stays -> SI-10 SI-12": lambda t: t.scale(20).prepare(
            21, "a-2", method="DELETE"
        ),
        "told so before it, on a slow way -> SI-10": lambda t: (
            t.scale(20).fault(19, "pod_slow", "DELETE zone-a-2").prepare(21, "a-2", method="DELETE")
        ),
        "the webhook has gone": lambda t: t.write(10, VALIDATING_WEBHOOKS, "ours", None).persist(
            20
        ),
        "told that it stays, then prepared": lambda t: t.prepare(17, "a-2", method="DELETE").scale(
            20
        ),
        "ready before the hook read -> SI-10": ready_at(18.9),
        "D-26 ready since the hook read": ready_at(19.1),
        "told that it stays while it was prepared, which ends later": lambda t: (
            t.live_read(18.5)
            .prepare(18.9, "a-2", method="DELETE")
            .prepare(19.2, "a-2", begun=s(18.6))
            .review(19.5, "a")
            .persist(20)
        ),
        "told that it stays on its way out": lambda t: (
            t.scale(20).terminate(21, "a-2", PERSON).prepare(22, "a-2", method="DELETE")
        ),
        "told that it stays once it is wanted again": lambda t: (
            t.scale(20).zone(25, "a", replicas=3).prepare(30, "a-2", method="DELETE")
        ),
        "and told while another zone is wanted -> SI-10 SI-12": lambda t: (
            t.scale(20).zone(25, "b", replicas=4).prepare(30, "a-2", method="DELETE")
        ),
    }
)
"""SI-10, SI-12: a removed pod has confirmed, for this request, and was not un-prepared."""


@pytest.mark.parametrize(("policy", "broken"), [("Fail", ["SI-13"]), ("Ignore", [])])
def test_only_what_is_guarded_is_judged(policy: str, broken: list[str]) -> None:
    """SI-10, SI-13: a webhook that may be left out promises nothing, nor does one for others."""
    t = HistoryBuilder().hooks(0, "prepare-downscale", policy=policy)
    t.zones(labels=PREPARED, annotations=PATHS).prepare(19, "a-2")
    assert list_broken(t.zone(20, "a", replicas=2, call=1).send_request(20)) == broken


def wait(name: str, at: float = 1) -> Events:
    return lambda t: t.zone(at, name, labels={WAIT: "2m"})


@as_events
def both_scaled(t: HistoryBuilder, gap: float, *before: Events) -> None:
    """Scale two zones, so many seconds apart."""
    for each in before:
        each(t)
    t.scale(20).scale(20 + gap, "b")


def one_scaled_twice(t: HistoryBuilder) -> None:
    t.zone(1, "a", labels={WAIT: "2m"}).scale(20).zone(30, "a", replicas=3).scale(40)


WAITS = cases(
    {
        "119 s, the earlier one waits -> SI-11": both_scaled(119, wait("a")),
        "119 s, a third one waits -> SI-11": both_scaled(119, wait("c")),
        "121 s": both_scaled(121, wait("b")),
        "one zone need not wait for itself": one_scaled_twice,
    }
)
"""SI-11: where the group waits two minutes, whichever zone requests it."""


def granted(t: HistoryBuilder) -> HistoryBuilder:
    return t.live_read(18).prepare(18.5, "a-2").review(19, "a")


def under_way(t: HistoryBuilder) -> None:
    """The request holds only for the number of replicas that was read, and has no answer yet."""
    path = "/spec/replicas"
    steps = [{"op": op, "path": path, "value": wanted} for op, wanted in (("test", 3), ("add", 2))]
    granted(t).prepare(20, "a-2", method="DELETE", acted=False, status=500)
    t.send_request(25, begun=18, status=500, body=steps)


def refused_later(t: HistoryBuilder) -> None:
    granted(t).review(20.5, "a", begun=s(19.5), allowed=False, status=400)
    t.prepare(20, "a-2", method="DELETE").fault(18, "reset_after").send_request(
        25, begun=18, status=400
    )


def refused_and_written(t: HistoryBuilder) -> None:
    t.live_read(18.5).prepare(19, "a-2").review(19.5, "a", allowed=False, status=400).persist(20)


def allowed_on_a_failed_read(t: HistoryBuilder) -> None:
    t.call(18.5, "list", STATEFULSETS, status=500).prepare(19, "a-2")
    t.review(19.5, "a").persist(20)


@as_events
def beside_a_short_zone(t: HistoryBuilder, since: float, until: float | None = None) -> None:
    """Scale zone-a while another is short."""
    t.pod(since, "b-1", ready=False)
    if until is not None:
        t.pod(until, "b-1")
    t.scale(20)


VERDICTS = cases(
    {
        "SI-12 the request is still under way -> SI-12": under_way,
        "SI-12 it is for a set of another name": lambda t: (
            t.live_read(18)
            .prepare(18.5, "a-2")
            .review(19, "d")
            .send_request(25, "d", begun=18, status=404)
            .prepare(20, "a-2", method="DELETE")
        ),
        "SI-12 it is for a set that has gone": lambda t: (
            granted(t.write(17, STATEFULSETS, "a", None))
            .prepare(20, "a-2", method="DELETE")
            .send_request(25, begun=18, status=404)
        ),
        "SI-12 a later review has refused it": refused_later,
        "SI-13 refused, and written -> SI-13": refused_and_written,
        "SI-13 allowed on a read that failed -> SI-13": allowed_on_a_failed_read,
        "SI-02 PREP-19 another zone has been short for long -> SI-02": beside_a_short_zone(4),
        "SI-02 for 4 s when requested": beside_a_short_zone(14),
        "SI-12 an earlier review had refused it -> SI-12": lambda t: (
            granted(
                t.call(17.9, "list", STATEFULSETS).review(18.2, "a", 4, allowed=False, status=400)
            )
            .prepare(20, "a-2", method="DELETE")
            .send_request(25, begun=18, status=500)
        ),
        "SI-13 by no request that is known -> SI-10 SI-13": lambda t: t.zone(20, "a", replicas=2),
    }
)
"""SI-02, SI-12, SI-13: on errors nothing is allowed, and what may still be written counts."""


KEPT_NO_MORE: Final = {NO_DOWNSCALE: "false"}


def get_set(at: float, status: int, actor: str = OPERATOR) -> Events:
    return lambda t: t.call(at, "get", STATEFULSETS, "a", status=status, actor=actor)


def struck(kind: str, at: float = 19.2) -> Events:
    return lambda t: t.fault(at, kind, "call 9: get statefulsets/zone-a: internal")


@as_events
def keep(t: HistoryBuilder, before: Events, subresource: str = "scale") -> None:
    """Have a set lose pods that is labelled to keep them; the label goes in the same write."""
    t.zone(1, "a", labels={NO_DOWNSCALE: "true", **dict.fromkeys(PREPARED, "false")})
    t.review(19, "b", 99, path="/admission/no-downscale", begun=s(18.5))
    before(t)
    t.review(19.5, "a", path="/admission/no-downscale", begun=s(19.1))
    t.zone(20, "a", replicas=2, labels=KEPT_NO_MORE, call=t.number + 1)
    t.send_request(20, subresource=subresource)


KEPT = cases(
    {
        "the object -> SI-14": keep(get_set(19.2, 500), ""),
        "its scale -> SI-14": keep(get_set(19.2, 200)),
        "D-20 its scale: allowed on error": keep(get_set(19.2, 500)),
        "D-20 an error before -> SI-14": keep(get_set(18, 500)),
        "D-20 an error after -> SI-14": keep(get_set(19.6, 500)),
        "D-20 an error of another -> SI-14": keep(get_set(19.2, 500, "operator-2")),
        "D-20 too many requests -> SI-14": keep(get_set(19.2, 429)),
        "D-20 a fault": keep(struck("server_error")),
        "D-20 a fault in another review -> SI-14": keep(struck("server_error", 18.7)),
        "D-20 throttled by itself -> SI-14": keep(struck("throttled")),
        "unlabelled in an earlier write": keep(lambda t: t.zone(10, "a", labels=KEPT_NO_MORE)),
    }
)
"""SI-14: by each route. Nothing is to be prepared."""


@as_events
def let_go(t: HistoryBuilder, method: str, after: float) -> None:
    """Have the set be deleted without its pods, and one of these be called some time later."""
    t.write(1, STATEFULSETS, "a", None).pod(1, "a-2", owner="").prepare(
        1 + after, "a-2", method=method
    )


@as_events
def adopted(t: HistoryBuilder, method: str) -> None:
    """Have another set take the pod, that has it called elsewhere."""
    t.write(1, STATEFULSETS, "a", None).pod(1, "a-2", owner="")
    t.zone(200, "a", uid="new-a", annotations={PATH_KEY: "x"}).pod(200, "a-2", owner="new-a")
    t.prepare(210, "a-2", method=method)


def path_changed(later: float) -> Events:
    return lambda t: t.zone(20, "a", annotations={PATH_KEY: "x"}).prepare(20 + later, "a-2")


TARGETS = cases(
    {
        "as the set says": lambda t: t.prepare(10, "a-2"),
        "another path -> SI-21": lambda t: t.prepare(10, "a-2", path="/ingester/shutdown"),
        "another method -> SI-21": lambda t: t.prepare(10, "a-2", method="GET"),
        "another pod -> SI-21": lambda t: t.prepare(10, "a-2", uid="foreign"),
        "another set": lambda t: t.prepare(10, "a-2", actor="prometheus", method="GET"),
        "the former path, after a minute": path_changed(60),
        "the former path, after two -> SI-21": path_changed(121),
        "a pod that was let go lately": let_go("POST", 9),
        "a pod that was let go long before -> SI-21": let_go("POST", 122),
        "a pod that was let go long before, to say that it stays": let_go("DELETE", 122),
        "a pod of another set by now, to say that it stays": adopted("DELETE"),
        "a pod of another set by now -> SI-21": adopted("POST"),
        "a pod that no statefulset owns -> SI-21": lambda t: t.pod(
            1, "stray-0", owner="another-set"
        ).prepare(10, "stray-0"),
    }
)
"""SI-21: calls go to pods of sets of the namespace, by the path that the set names."""


def record(t: HistoryBuilder, at: float) -> HistoryBuilder:
    body = {"metadata": {"annotations": {DOWNSCALE_RECORD: "{}"}}}
    return t.call(at, "patch", PODS, "a-2", body=body)


def dry(t: HistoryBuilder) -> HistoryBuilder:
    return t.review(19.5, "a", dry_run=True).send_request(20, query={"dryRun": "All"})


def requested_twice(
    t: HistoryBuilder, status: int = 429, first: bool = True, between: Events = lambda t: t
) -> None:
    t.live_read(18).review(19, "a", allowed=first)
    between(t)
    t.review(19.6, "a", t.number + 1, begun=s(19.1), allowed=False, status=status)
    t.send_request(20, status=400)


def called_twice(t: HistoryBuilder, **between: Any) -> None:
    t.live_read(18).prepare(18.8, "a-2")
    if between:
        t.prepare(19.1, "a-2", **between)
    t.prepare(19.3, "a-2").review(19.6, "a", begun=s(18.5)).send_request(20, status=400)


REVIEWS = cases(
    {
        "SI-15 a pod was called for a dry run -> SI-15": lambda t: dry(t.prepare(19.2, "a-2")),
        "SI-15 a record was written for it -> SI-15": lambda t: dry(record(t, 19.2)),
        "SI-15 a pod was read meanwhile": lambda t: dry(t.call(19.2, "get", PODS, "a-2")),
        "SI-15 for a real one at the same time": lambda t: dry(
            t.review(19.4, "a", 99).prepare(19.2, "a-2")
        ),
        "SI-15 it was written -> SI-15": lambda t: t.zone(
            20, "a", limit="2", call=t.number + 1
        ).send_request(20, query={"dryRun": "All"}),
        "SI-16 allowed, then refused -> SI-16": requested_twice,
        "SI-16 allowed, then no answer": lambda t: requested_twice(t, status=-1),
        "SI-16 refused twice": lambda t: requested_twice(t, first=False),
        "SI-16 a person changed a set in between": lambda t: requested_twice(
            t, between=lambda t: t.zone(19.05, "b", limit="2", actor=PERSON)
        ),
        "SI-16 the operator did -> SI-16": lambda t: requested_twice(
            t, between=lambda t: t.zone(19.05, "b", limit="2", actor=OPERATOR)
        ),
        "SI-16 called twice for one write -> SI-16": called_twice,
        "SI-16 beside a request for another zone -> SI-16": lambda t: called_twice(
            t.review(18.9, "b", 98, begun=s(18.6))
        ),
        "SI-16 beside another request for the zone": lambda t: called_twice(
            t.review(18.9, "a", 98, begun=s(18.6))
        ),
        "SI-16 and another process had trouble -> SI-16": lambda t: called_twice(
            t.fault(19, "slow", "call 8: list pods: 0:00:01", "operator-2")
        ),
        "SI-15 beside a real one for another zone -> SI-15": lambda t: dry(
            t.review(19.4, "b", 99).prepare(19.2, "a-2")
        ),
        "SI-15 SEC-09 for a forged one just before": lambda t: dry(
            t.fault(10, FORGED, "at /admission/prepare-downscale").prepare(19.2, "a-2")
        ),
        "SI-16 told in between that it stays": lambda t: called_twice(t, method="DELETE"),
        "SI-16 by two processes, one after the other": lambda t: called_twice(
            t.lived(19.05, "crashed").lived(19.1, "started")
        ),
    }
)
"""SI-15: a dry run calls no pod and writes nothing. SI-16: the same question, one effect."""


def stamp(t: HistoryBuilder, at: float, second: int, actor: str = OPERATOR) -> HistoryBuilder:
    """Record a downscale at a second after the world began."""
    text = f"2026-01-02T03:04:{5 + second:02}Z"
    return t.zone(at, "a", annotations={LAST_DOWNSCALE: text}, actor=actor)


@as_events
def recorded(t: HistoryBuilder, *seconds: int) -> None:
    """Scale down at 20 s, and record these times for it, one second after the other."""
    t.scale(20)
    for place, second in enumerate(seconds):
        stamp(t, 21 + place, second)


def stamped(t: HistoryBuilder, second: int = 20) -> HistoryBuilder:
    """Scale down at 20 s; the answer itself records a time."""
    text = f"2026-01-02T03:04:{5 + second:02}Z"
    return t.scale(20, annotations={LAST_DOWNSCALE: text})


def behind(at: float) -> Events:
    """Have an event held back at a time, and the downscale that follows be seen late."""
    text = "event 2 of statefulsets: MODIFIED zone-a"
    return lambda t: stamp(stamped(t.fault(at, "delay_event", text), 21), 21.5, 22)


STAMPS = cases(
    {
        "once": recorded(20),
        "another time -> SI-16": recorded(20, 21),
        "SI-11 a later one: it was written later than the answer says": recorded(15, 21),
        "D-23 what the answer has recorded -> SI-16": lambda t: stamp(stamped(t), 21, 21),
        "D-23 changed by a person": lambda t: stamp(stamped(t), 21, 59, PERSON),
        "seen late by a second": lambda t: stamp(
            stamped(t, 21).fault(20.1, "delay_event", "event 3 of statefulsets: MODIFIED zone-a"),
            22,
            22,
        ),
        "seen late behind one of long ago -> SI-16": behind(2),
        "of a second downscale": lambda t: stamp(
            stamp(t.scale(20), 21, 20).zone(30, "a", replicas=3, actor=PERSON).scale(40), 41, 40
        ),
        "D-23 what a person has made unreadable": lambda t: stamp(
            stamped(t).zone(30, "a", annotations={LAST_DOWNSCALE: "x"}, actor=PERSON), 31, 21
        ),
    }
)
"""SI-16: one downscale, one record, but for one correction to a later time."""


@pytest.mark.parametrize(
    ("events", "broken"), [*PREPARATIONS, *WAITS, *VERDICTS, *KEPT, *TARGETS, *REVIEWS, *STAMPS]
)
def test_downscales_and_reviews_are_judged(events: Events, broken: list[str]) -> None:
    """Each history breaks what its name says; of which promises it is, stands below its table."""
    assert judge(events) == broken
