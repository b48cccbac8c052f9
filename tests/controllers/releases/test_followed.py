"""What is known between writes and watches: kept gates, schedules that were read, wide checks."""

import asyncio
from datetime import timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace
from rollout_lab.model.request import ApiRequest

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube import api as kinds
from rollout_operator.kube.informer import Informer
from rollout_operator.model.budget import EventKind, EventRecord, Regarding
from rollout_operator.model.names import Denied, Uid, Unreachable
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.outcome import Severity
from rollout_operator.operator.releases import build_caches
from rollout_operator.releases.model.plan import ReleaseEvent
from rollout_operator.releases.model.releases import (
    OURS,
    CreateGate,
    DeleteGate,
    GateOrigin,
    MinuteRange,
    ReleaseSchedule,
    ScheduleRule,
    WantedGate,
)
from rollout_operator.releases.schedules import (
    OWN_WRITES_LAST,
    KeptGates,
    ScheduleReader,
    report_schedule,
)
from rollout_operator.releases.sources import build_wide_checks
from rollout_operator.telemetry.metrics import Metrics
from tests.controllers.fed_context import FedContext
from tests.controllers.trouble import Trouble
from tests.kube.cache.stage import Script
from tests.planning.releases.builders import START, gate
from tests.planning.releases.schedules.schedule_builders import schedule
from tests.simulated import open_api, open_client, put
from tests.virtual_time import VirtualClock, in_virtual_time

WANTED: Final = WantedGate(
    namespace="prod", name="nights-app", rollout="app", is_passing=False, origin=GateOrigin()
)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)


@in_virtual_time
async def test_gates_as_a_schedule_knows_them_while_the_cache_lags() -> None:
    """REL-99, RELB-31 (l)."""
    trouble, clock = Trouble(), VirtualClock()
    api = open_api("prod")
    client = open_client(api, trouble)
    cached = build_caches(
        FedContext(client, clock, None, "-kubernetes.namespace=prod"), client
    ).gates
    gates = KeptGates(client, cached, clock)
    async with TaskStack() as tasks:
        tasks.start("gates", cached.run(clock))
        await clock.sleep(SECOND)
        trouble.lags["rolloutgates"] = timedelta(minutes=2)

        # It counts from its creation on, though no cache shows it, and for half a minute at most.
        await gates.carry_out(CreateGate(wanted=WANTED))
        (own,) = gates.list_all()
        assert own.head.name == "nights-app"
        await clock.sleep(OWN_WRITES_LAST * 1.1)
        assert [*gates.list_all()] == []

        # What this process deleted is gone at once, though the cache shows it.
        await clock.sleep(timedelta(minutes=2))
        (own,) = gates.list_all()
        await gates.carry_out(DeleteGate(head=own.head))
        assert [*gates.list_all()] == []
        assert api.get(kinds.ROLLOUT_GATES, "prod", "nights-app") is None

        # And what another client deleted once the cache shows that, not half a minute later.
        await clock.sleep(timedelta(minutes=3))
        trouble.lags.clear()
        await gates.carry_out(CreateGate(wanted=WANTED))
        await clock.sleep(SECOND)
        assert len(gates.list_all()) == 1
        api.call_now(
            ApiRequest(
                verb="delete", resource=kinds.ROLLOUT_GATES, namespace="prod", name="nights-app"
            )
        )
        await clock.sleep(SECOND)
        assert [*gates.list_all()] == []


def test_each_version_of_a_schedule_is_read_once_a_minute() -> None:
    """LI-09, RELB-42: however many Rollouts it selects."""
    loaded: list[str] = []

    def load(name: str) -> ZoneInfo:
        loaded.append(name)
        return ZoneInfo(name)

    reader = ScheduleReader(OURS, load)
    first = schedule(time_zone="Atlantis")
    for _ in range(500):
        assert "Atlantis" in reader.read(first, START + 59 * SECOND).problem
    assert len(loaded) == 1
    reader.read(replace(first), START + 59 * SECOND)
    assert len(loaded) == 2, "another version, of the same UID"
    reader.read(first, START + 60 * SECOND)
    assert len(loaded) == 3


def test_a_window_ends_with_its_minute() -> None:
    minute = START.hour * 60 + START.minute
    rule = ScheduleRule(times=MinuteRange(minute, minute + 1))
    closed = replace(schedule(), schedule=ReleaseSchedule(rules=(rule,)))
    reader, begin = ScheduleReader(OURS), START.replace(second=0)
    times = (begin, begin + 59 * SECOND, begin + 60 * SECOND, begin - SECOND)
    assert [reader.read(closed, now).is_open for now in times] == [False, False, True, True]


@pytest.mark.parametrize(
    ("namespace", "kind"), [("prod", EventKind.SCHEDULE), ("", EventKind.CLUSTER_SCHEDULE)]
)
def test_events_name_the_schedule(namespace: str, kind: EventKind) -> None:
    """RELB-31: one of the cluster has no namespace."""
    watched = WatchedObject(
        name="nights", namespace=namespace, uid=Uid("1"), resource_version="7", decoded=gate()
    )
    records: list[EventRecord] = []
    event = ReleaseEvent(reason="WindowOpened", note="it is open", severity=Severity.WARN)
    report_schedule(records.append, watched, [event])
    (one,) = records
    assert one.regarding == Regarding(kind, namespace, "nights", Uid("1"))
    assert (one.reason, one.note, one.severity) == ("WindowOpened", "it is open", Severity.WARN)


@in_virtual_time
async def test_checks_of_other_namespaces_are_followed_from_the_first_question_on() -> None:
    forbidden = Denied("list: forbidden", status=403)
    calls: list[str] = []
    api, clock = Script(calls.append), VirtualClock()
    api.probes.append(forbidden)
    wide = build_wide_checks(api, lambda api, of: Informer(api, of, Metrics(), clock, lambda: 0.5))
    news: list[str] = []
    wide.on_change(lambda old, new: news.append("check"), lambda: news.append("all"))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(wide.run(clock), name="wide checks")
        await asyncio.sleep(3600)
        assert calls == []
        with pytest.raises(Unreachable, match="HealthCheck: no answer yet"):
            wide.find_problem()
        await asyncio.sleep(1)
        problem = "HealthChecks of other namespaces: HealthCheck: list: forbidden"
        assert wide.find_problem() == problem
        assert news == ["all", "all"]
        running.cancel()


@in_virtual_time
async def test_labels_of_a_namespace_that_change_are_news_for_all() -> None:
    """REL-54: which namespaces are selected depends on them."""
    clock, news = VirtualClock(), list[str]()
    api = open_api("prod")
    wide = build_wide_checks(
        open_client(api), lambda client, of: Informer(client, of, Metrics(), clock, lambda: 0.5)
    )
    wide.find_lack()
    async with TaskStack() as tasks:
        tasks.start("wide checks", wide.run(clock))
        await clock.sleep(MINUTE)
        wide.on_change(lambda old, new: news.append("check"), lambda: news.append("all"))
        put(api, kinds.NAMESPACES, "others")
        await clock.sleep(SECOND)
    assert news == ["all"]
