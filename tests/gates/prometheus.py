"""A scripted Prometheus of a simulated cluster: the error ratio of pods by their image then.

A range is seen as it was: of a pod replaced within it some samples are of the image before.
"""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rollout_lab.model.history import Commit
from rollout_lab.nodes.behaviour import image_of
from rollout_lab.world import Sandbox

from rollout_operator.kube.api import PODS
from rollout_operator.model.units import parse_prometheus_duration
from rollout_operator.outbound import HttpAnswer, NoAnswer, Outbound, Request
from tests.gates.trees import health_check_tree

QUERY: Final = "scalar(sum(rate(errors{${targetMatchers}}[${range}])))"
SUCCESS: Final = "${current} <= bool (1.5 * ${baseline})"
NAME: Final = "ingester-health"
WAYS: Final = ("true", "pass", "fail", "flapping", "nodata", "error", "slow", "dead")
_PODS: Final = re.compile(r'pod=~"([^"]*)".*\[(\w+)\]')
_SAMPLES: Final = 20
_NUMBER: Final = re.compile(r"[\d.]+(?:e-?\d+)?")


class ScriptedPrometheus(Outbound):
    """Answers as `how` says: by its numbers, or `pass`, `fail`, `dead` and so on."""

    def __init__(self) -> None:
        super().__init__(timedelta(seconds=10))
        self.how = "true"
        self.pods = ""
        """Of which pods it is so, by the beginning of their names."""
        self.queries: list[str] = []
        self.ratios: dict[str, float] = defaultdict(lambda: 0.1)
        """By image."""
        self._sandbox: Sandbox | None = None
        self._images: dict[str, list[tuple[datetime, str]]] = defaultdict(list)

    def watch(self, sandbox: Sandbox) -> None:
        """Begin anew with a cluster."""
        self.how, self.pods = "true", ""
        self._images.clear()
        self._sandbox = sandbox
        sandbox.api.on_commit(self._on_commit)

    async def send(self, request: Request) -> HttpAnswer:
        if request.form is None:
            self.queries.append(f"{request.url}")
            return HttpAnswer(status=503 if self.how == "fail" else 200, body=b"")
        query = request.form["query"]
        self.queries.append(query)
        match self.how if f'pod=~"{self.pods}' in query or not self.pods else "true":
            case "broken":
                raise ZeroDivisionError("a bug")
            case "dead":
                raise NoAnswer("no connection: connection refused")
            case "slow":
                await asyncio.sleep(10)
                raise NoAnswer("no answer within 10s")
            case "error":
                return _render(422, {"status": "error", "errorType": "execution", "error": "x"})
            case "nodata":
                return _render(200, _vector([]))
        at = datetime.fromtimestamp(float(request.form["time"]), UTC)
        return _render(200, _vector([self._answer(query, at)]))

    def _answer(self, query: str, at: datetime) -> float:
        if (named := _PODS.search(query)) is None:
            numbers = [float(text) for text in _NUMBER.findall(query)]
            return float(self._judge(numbers))
        span = parse_prometheus_duration(named[2])
        times = [at - span * place / _SAMPLES for place in range(_SAMPLES)]
        ratios = [
            self.ratios[image]
            for name in named[1].split("|")
            for time in times
            if (image := self._find_image(name, time))
        ]
        return sum(ratios) / len(ratios) if ratios else 0.0

    def _judge(self, numbers: Sequence[float]) -> bool:
        match self.how:
            case "pass":
                return True
            case "fail":
                return False
            case "flapping":
                return len(self.queries) % 2 == 0
        current, factor, baseline = numbers
        return current <= factor * baseline

    def _find_image(self, name: str, time: datetime) -> str:
        return next((image for since, image in reversed(self._images[name]) if since <= time), "")

    def _on_commit(self, commit: Commit) -> None:
        assert self._sandbox is not None, "it watches"
        if commit.resource == PODS:
            image = image_of(commit.after) if commit.after else ""
            self._images[commit.name].append((self._sandbox.api.now(), image))


def render_check(namespace: str, **spec: Any) -> dict[str, Any]:
    """Return a health check of group `ingester` that looks back for ten seconds."""
    check = {
        "name": "errors",
        "query": QUERY,
        "successQuery": SUCCESS,
        "currentRange": "10s",
        "failurePolicy": {"reevaluationInterval": "10s", "consecutiveFailures": 2},
    }
    tree = health_check_tree(NAME, checks=[check], **spec)
    tree["spec"]["prometheusURL"] = f"http://prometheus.{namespace}.svc:9090"
    tree["metadata"] = {"name": NAME}
    return tree


def _render(status: int, tree: Mapping[str, object]) -> HttpAnswer:
    return HttpAnswer(status=status, body=json.dumps(tree).encode())


def _vector(values: Sequence[float]) -> Mapping[str, object]:
    samples = [{"metric": {}, "value": [0, f"{value}"]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": samples}}
