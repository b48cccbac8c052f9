"""The hook pod-eviction before a real arbiter, called with the bodies that an API server sends."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from rollout_operator.model.budget import Budget
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.outcome import Verdict
from rollout_operator.web.dispatch import render_answer
from rollout_operator.web.eviction import PodEviction
from rollout_operator.web.no_downscale import UnconfirmedReads, UnknownPods
from tests.guards.arbiter_bench import Process, World, name_of, world
from tests.model.review_trees import review_tree

LIMIT: Final = timedelta(seconds=9)


@dataclass(kw_only=True)
class Court:
    """One process and its hook."""

    here: World
    process: Process
    hook: PodEviction
    verdicts: list[Verdict] = field(default_factory=list)

    async def send_request(
        self, pod: str = "a-0", *, within: timedelta = LIMIT, **changes: object
    ) -> str:
        """Return `allow`, or status and text up to the names; `changes` are of the request."""
        answer = await self.response(pod, within=within, **changes)
        status = answer.get("status", {})
        text = str(status.get("message", "")).split(" (")[0].split(";")[0]
        if answer["allowed"]:
            return f"allow {answer.get('warnings', [''])[0] or text}".strip()
        return f"{status['code']} {text}"

    async def response(
        self, pod: str = "a-0", *, within: timedelta = LIMIT, **changes: object
    ) -> dict[str, Any]:
        """Return what the API server reads."""
        review = decode_review(json.dumps(eviction_review(pod, **changes)).encode())
        verdict = await self.hook.review(review, self.process.clock.elapsed() + within)
        self.verdicts.append(verdict)
        tree = json.loads(render_answer(review, verdict))
        assert tree["apiVersion"] == review.version
        assert tree["response"]["uid"] == "u-1"
        response: dict[str, Any] = tree["response"]
        return response

    @property
    def calls(self) -> list[str]:
        """Return the verbs of all calls to the API server."""
        return self.here.client.verbs()


def court(*rules: Budget, here: World | None = None, qps: float = 0, name: str = "x") -> Court:
    """Return a hook before whole zones under budgets."""
    here = here or world(*rules)
    process = here.start(name)
    hook = PodEviction(
        arbiter=process.gate,
        pods=process.pods,
        sets=process.sets,
        unknown=UnknownPods(here.client, "test", UnconfirmedReads(qps)),
        metrics=process.metrics.disruptions,
        clock=process.clock,
        namespace="test",
    )
    return Court(here=here, process=process, hook=hook)


def eviction_review(pod: str, **changes: object) -> dict[str, Any]:
    """Return a review of an eviction; `review`: the version of the review itself."""
    version, policy = changes.pop("review", "v1"), changes.pop("policy", "policy/v1")
    eviction = {
        "apiVersion": policy,
        "kind": "Eviction",
        "metadata": {"name": name_of(pod), "namespace": "test"},
        "deleteOptions": changes.pop("options", {}),
    }
    fields = {
        "operation": "CREATE",
        "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "eviction",
        "namespace": "test",
        "name": name_of(pod),
        "object": eviction,
        "oldObject": None,
    }
    return review_tree(f"admission.k8s.io/{version}", **{**fields, **changes})
