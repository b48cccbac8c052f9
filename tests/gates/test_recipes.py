"""The recipes of docs/health-checks.md, asked of Prometheus itself while it scrapes pods.

Ranges of minutes become some seconds; nothing else of them is changed.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio
import yaml
from msgspec.structs import replace

from rollout_operator.config.checks import read_config
from rollout_operator.gates.model import (
    BASELINE,
    CURRENT,
    RANGE,
    TARGET_MATCHERS,
    Answer,
    Check,
    HealthCheck,
    NoData,
    Number,
    QueryError,
    format_number,
    parse_spec,
)
from rollout_operator.gates.prometheus import LIMIT, AllowedUrls, Asker
from rollout_operator.outbound import Outbound
from tests.code_rules import ROOT
from tests.world.prometheus import scraping, serving_metrics

pytestmark = [pytest.mark.controlplane, pytest.mark.asyncio(loop_scope="module")]

PAGE: Final = (ROOT / "docs" / "health-checks.md").read_text()
SPAN: Final = "3s"


def read_examples() -> dict[str, HealthCheck]:
    blocks = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
    return {
        block["metadata"]["name"]: parse_spec(msgspec.json.encode(block))
        for block in blocks
        if block["kind"] == "RolloutHealthCheck"
    }


def render(seconds: float, *, errors: float, slow: bool, queue: int) -> str:
    """Return the metrics of a pod that has answered 100 requests a second, or none in no time."""
    total = 100 * seconds
    fast = 0.0 if slow else total
    return "".join(
        f"{line}\n"
        for line in (
            f'http_requests_total{{code="200"}} {total * (1 - errors)}',
            *([f'http_requests_total{{code="500"}} {total * errors}'] if errors else []),
            f"errors_total {total * errors}",
            f'http_request_duration_seconds_bucket{{le="0.1"}} {fast}',
            f'http_request_duration_seconds_bucket{{le="1"}} {total}',
            f'http_request_duration_seconds_bucket{{le="+Inf"}} {total}',
            f"queue_length {queue}",
        )
    )


PODS: Final[Mapping[str, Callable[[float], str]]] = {
    "old-0": lambda seconds: render(seconds, errors=0.001, slow=False, queue=10),
    "well-0": lambda seconds: render(seconds, errors=0, slow=False, queue=12),
    "ill-0": lambda seconds: render(seconds, errors=0.2, slow=True, queue=1000),
    "idle-0": lambda seconds: render(0, errors=0, slow=False, queue=0),
    **{
        f"like-{number}": lambda seconds: render(seconds, errors=0.001, slow=False, queue=10)
        for number in range(4)
    },
}


class Scraped:
    """Prometheus with some seconds of all pods."""

    def __init__(self, url: str, asker: Asker) -> None:
        self.url, self._asker = url, asker

    async def ask(self, query: str) -> Answer:
        check = replace(read_examples()["error-ratio"], prometheus_url=self.url)
        return await self._asker.ask(check, query, datetime.now(UTC))

    async def look(self, query: str, pod: str) -> Answer:
        matchers = f'namespace="prod",pod=~"{pod}"'
        return await self.ask(query.replace(TARGET_MATCHERS, matchers).replace(RANGE, SPAN))

    async def evaluate(self, check: Check, pod: str) -> Answer:
        """Return what a check says of a pod beside the old one."""
        found = [await self.look(check.query, one) for one in (pod, "old-0")]
        query = check.success_query
        for name, answer in zip((CURRENT, BASELINE), found, strict=True):
            if not isinstance(answer, Number):
                return answer
            query = query.replace(name, format_number(answer.value))
        return await self.ask(query)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prometheus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scraped]:
    loop = asyncio.get_running_loop()
    start = loop.time()
    folder: Path = tmp_path_factory.mktemp("prometheus")
    config = read_config(["-kubernetes.namespace=prod", "-health-checks.allowed-urls=*"])
    outbound = Outbound(LIMIT)

    async def no_secret(namespace: str, name: str) -> bytes:
        raise AssertionError

    async def show(pod: str) -> str:
        return PODS[pod](loop.time() - start)

    async with serving_metrics(show) as place, scraping(folder, place, "prod", PODS) as url:
        scraped = Scraped(url, Asker(outbound, no_secret, AllowedUrls(config)))
        # Rates need samples of the whole range.
        async with asyncio.timeout(60):
            query = f"min(count_over_time(queue_length[{SPAN}]))"
            # Another process fills it.
            while getattr(await scraped.ask(query), "value", 0) < 12:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        yield scraped
    await outbound.close()


PASS, FAIL, NONE = Number(1.0), Number(0.0), NoData()


@pytest.mark.parametrize(
    ("name", "pod", "found"),
    [
        ("ingester-health", "well-0", PASS),
        ("ingester-health", "ill-0", FAIL),
        pytest.param("ingester-health", "like-.", PASS, id="more pods, each like the old one"),
        ("error-ratio", "well-0", PASS),
        ("error-ratio", "ill-0", FAIL),
        pytest.param("error-ratio", "idle-0", NONE, id="a ratio without traffic is NaN"),
        ("error-ratio", "gone-0", NONE),
        ("latency", "well-0", PASS),
        ("latency", "ill-0", FAIL),
        ("latency", "idle-0", NONE),
        ("queue-length", "well-0", PASS),
        ("queue-length", "ill-0", FAIL),
        ("queue-length", "idle-0", PASS),
        ("queue-length", "gone-0", NONE),
    ],
)
async def test_a_recipe_tells_pods_that_are_well_from_others(
    name: str, pod: str, found: Answer, prometheus: Scraped
) -> None:
    [check] = read_examples()[name].checks

    assert await prometheus.evaluate(check, pod) == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("2 < bool 1", FAIL),
        ("vector(1)", PASS),
        pytest.param(
            "(0.5 < bool 1) + (0.5 < bool (2 * 0.1)) > bool 0", PASS, id="an example of the draft"
        ),
        # Another one: `or` is for vectors only.
        ("(0.5 < bool 1) or (0.5 < bool 2)", "HTTP status 400: bad_data: invalid parameter"),
        pytest.param("scalar(gone)", NONE, id="scalar() of nothing is NaN"),
        ("gone", NONE),
        ("1 / 0", Number(float("inf"))),
        ("queue_length", "its vector has 8 samples, not one"),
        ('"text"', "its answer is a string, not a scalar or a vector"),
        ("up[1m]", "its answer is a matrix, not a scalar or a vector"),
        ("sum(", "HTTP status 400: bad_data: invalid parameter"),
        ("1 == 1", "HTTP status 400: bad_data: invalid parameter"),
        ("queue_length * on (namespace) queue_length", "HTTP status 422: execution: "),
    ],
)
async def test_what_prometheus_answers(query: str, found: Any, prometheus: Scraped) -> None:
    answer = await prometheus.ask(query)

    if isinstance(found, str):
        assert isinstance(answer, QueryError)
        assert answer.text.startswith(found)
    else:
        assert answer == found
