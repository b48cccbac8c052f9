"""HealthChecks of other namespaces cost nothing until a Rollout needs them."""

import asyncio

import pytest

from rollout_operator.controllers.releases.caches import build_wide_checks
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.model.errors import Denied, Unreachable
from rollout_operator.telemetry.metrics import Metrics
from tests.controllers.releases.bench import ReleaseBench
from tests.kube.scripted_watch import ScriptedApi
from tests.virtual_time import VirtualClock, in_virtual_time

FORBIDDEN = Denied("list: forbidden", status=403)


@in_virtual_time
async def test_they_are_followed_from_the_first_question_on() -> None:
    api = ScriptedApi([[FORBIDDEN], [FORBIDDEN]])
    clock = VirtualClock()
    wide = build_wide_checks(api, lambda of: Informer(api, of, Metrics(), clock, lambda: 0.5))
    news: list[str] = []
    wide.on_change(lambda old, new: news.append("check"), lambda: news.append("all"))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(wide.run(clock), name="wide checks")
        await asyncio.sleep(3600)
        assert api.calls == []
        with pytest.raises(Unreachable, match="HealthCheck: no answer yet"):
            wide.find_problem()
        await asyncio.sleep(1)
        assert wide.find_problem() == (
            "HealthChecks of other namespaces: HealthCheck: list: forbidden"
        )
        assert news == ["all", "all"]
        running.cancel()


@in_virtual_time
async def test_labels_of_a_namespace_that_change_are_news_for_all() -> None:
    """REL-54: which namespaces are selected depends on them."""
    bench = ReleaseBench()
    news: list[str] = []
    bench.wide.on_change(lambda old, new: news.append("check"), lambda: news.append("all"))
    bench.namespaces._notify(None, None)
    assert news == ["all"]
