"""The commands of what comes to be reported as Events: two sets and a pod, of zone a.

After each command stands what was written since, with the note where somebody is refused.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers import context
from rollout_operator.controllers.unobeyed import UnobeyedPolicies
from rollout_operator.kube.api import Page, Resource
from rollout_operator.model.budget import EventRecord, FlawedBudget
from rollout_operator.model.names import ApiError, Denied, GroupName, NotFound, Uid, Unreachable
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Plan, Reason, Severity, Verdict
from rollout_operator.model.scaling import Review, Scalable, Unusable, Version
from rollout_operator.planning.events import render_refused_downscale
from rollout_operator.telemetry.metrics import Subject
from tests.builders import pod, sts
from tests.controllers.fed_context import FedContext
from tests.kube.test_events import StoredEvents
from tests.stories import Steps
from tests.virtual_time import VirtualClock

REFUSED: Final = Verdict(
    is_allowed=False, reason=Reason(Code.NO_DOWNSCALE, "not allowed", Severity.WARN)
)
_LINE: Final = re.compile(r'.*level=(\w+).*?msg="([^"]*)"(?: policies=(\S+) reason=(\S+))?.*')
BAD: Final = FlawedBudget(
    namespace="test", name="zpdb", uid=Uid("z"), resource_version="1", problem="no"
)


ANSWERS: Final[dict[str, ApiError]] = {
    "absent": NotFound("no kind"), "down": Unreachable("down"), "denied": Denied("forbidden"),
}  # fmt: skip


class Api(StoredEvents):
    """Knows of policies, too, or answers in their place."""

    def __init__(self) -> None:
        super().__init__()
        self.policies: list[str] = []
        self.answer: ApiError | None = None
        self.lists = 0

    async def fetch_page(self, resource: Resource, namespace: str, **query: Any) -> Page:
        self.lists += 1
        if self.answer is not None:
            raise self.answer
        # At version 0 the API server ignores the limit.
        is_cached = query.get("resource_version") == "0"
        bodies = [
            {"metadata": {"name": n, "namespace": namespace, "uid": n, "resourceVersion": "1"}}
            for n in self.policies[: None if is_cached else query["limit"]]
        ]
        items = [msgspec.Raw(msgspec.json.encode(body)) for body in bodies]
        return Page(items=items, resource_version="1")


class EventStage(Steps):
    """The Events of an operator; each text of a refusal is counted."""

    def __init__(self, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines = lines
        self.api, self.shown, self.worded = Api(), 0, 0

        def render(sts: StatefulSet, verdict: Verdict, user: str) -> EventRecord:
            self.worded += 1
            return render_refused_downscale(sts, verdict, user)

        monkeypatch.setattr(context, "render_refused_downscale", render)

    async def play(self, commands: Sequence[str]) -> list[str]:
        is_writing = commands[0] != "unwritten"
        self.context = FedContext(self.api, VirtualClock(), writes_events=is_writing)
        self.context.has_begun = True
        self.context.sets.replace_all([sts("a"), sts("b")])
        self.context.pods.replace_all([pod("a", 0)])
        self.states, self.events = self.context.group_states, self.context.events
        async with TaskStack() as self.tasks:
            self.events.start(self.tasks)
            return await super().play(commands)

    def look(self) -> list[str]:
        found = [*self.api.events.values()][self.shown :]
        self.shown += len(found)
        notes = (f": {one['note']}" * ("not allowed" in one["note"]) for one in found)
        shown = [
            f"{one['regarding']['name']} {one['reason']}{note}"
            for one, note in zip(found, notes, strict=True)
        ]
        return shown if len(shown) < 9 else [shown[0], f"and {len(shown) - 1} more"]

    async def do_post(self, code: str, zone: str = "", *words: str) -> None:
        """Post what a group waits for: of its rollout, or of its `scaling`."""
        waits = (Reason(Code[code.upper()], f"{zone} waits", zone=f"zone-{zone}" if zone else ""),)
        subject = [Subject.SCALING] if "scaling" in words else []
        self.states.post(Plan(group=GroupName("ingester"), waits=waits), *subject)

    async def do_groups(self, count: str) -> str:
        """Post waits of so many groups; show how many are kept."""
        for number in range(int(count)):
            waits = (Reason(Code.PAUSED, "waits", zone="zone-a"),)
            self.states.post(Plan(group=GroupName(f"group-{number}"), waits=waits))
        return await self.do_kept()

    async def do_kept(self) -> str:
        return f"{len(self.events.reported)} kept"

    async def do_idle(self) -> None:
        """Have another process act."""
        self.context.has_begun = False

    async def do_refuse(self, name: str, *words: str) -> None:
        """Refuse a review: of `scale`, `eviction`, another `resource=`, `dry`, or `broken`."""
        given = dict(word.split("=") for word in words if "=" in word)
        subresource = next((word for word in words if word in ("scale", "eviction")), "")
        plural = "pods" if subresource == "eviction" else "statefulsets"
        old: Any = Scalable(kind="StatefulSet", uid=Uid("uid-a"), replicas=3)
        review = Review(
            version=Version.V1, uid="u", resource=given.get("resource", plural),
            subresource=subresource, namespace="test", name=name, user="alice",
            old=Unusable("broken") if "broken" in words else old,
            new=Unusable("it does not matter"), dry_run="dry" in words,
        )  # fmt: skip
        for _ in range(int(given.get("times", 1))):
            self.events.on_refusal(review, REFUSED)

    async def do_budget(self) -> None:
        """Have a watch show a budget that is invalid."""
        self.events.on_budget(None, BAD)

    async def do_begin(self) -> None:
        """Have the process act that has seen it."""
        self.events.report_budgets([BAD])

    async def do_flush(self) -> None:
        await self.events.flush()

    async def do_unwritten(self) -> None:
        """Begin without a sender."""

    # Policies

    async def do_unobeyed(self) -> None:
        """Look for policies, as an operator does that obeys none."""
        UnobeyedPolicies(self.context, None).start(self.tasks)

    async def do_policies(self, *names: str) -> None:
        self.api.policies += names

    async def do_many(self, count: str) -> None:
        self.api.policies = [f"{number:02}" for number in range(int(count))]

    async def do_lists(self, answer: str = "") -> str:
        """Answer lists of policies so from now on; show how many there were."""
        count, self.api.lists = self.api.lists, 0
        self.api.answer = ANSWERS[answer] if answer else None
        return f"{count} lists"

    async def do_note(self) -> str:
        [*_, last] = self.api.events.values()
        return str(last["note"])

    async def do_log(self) -> str:
        """Show what was logged, and how loud; then forget it."""
        found = Counter(_LINE.sub(r"\1 \2 \3 \4", one.strip()).strip() for one in self.lines)
        self.lines.clear()
        return ", ".join(f"{one} x{n}" if n > 1 else one for one, n in found.items())

    async def do_words(self) -> str:
        """Show how many refusals were put into words, and how many had no room."""
        name = "rollout_operator_events_total"
        count = self.context.metrics.registry.get_sample_value(name, {"outcome": "limited"})
        return f"{self.worded} in words, {count or 0:g} limited"
