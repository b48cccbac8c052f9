"""The commands of stories of the status of budgets: those of budgets, and what writes a status.

Budget `a` is over all zones; those that come with `room b` are over none.
"""

from collections.abc import Sequence
from typing import Final

from rollout_lab.schemas.patches import merge

from rollout_operator.controllers.budgets import BudgetReports
from rollout_operator.kube.api import JsonObject, Page, Resource
from rollout_operator.model.names import NotElected
from tests.controllers.fake_client import FakeClient
from tests.virtual_time import elapsed
from tests.web.budgets.stage import BudgetStage
from tests.web.client_stage import brief

PLURAL: Final = "zoneawarepoddisruptionbudgets"


class _Kind(FakeClient):
    """Budgets on pages of one, of a kind that may drop fields of a status; none may be fetched."""

    drops: tuple[str, ...] = ()

    async def fetch_page(
        self, resource: Resource, namespace: str, *, token: str = "", **_: object
    ) -> Page:
        return await super().fetch_page(resource, namespace, limit=1, token=token)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        subresource: str = "",
        **how: object,
    ) -> bytes:
        assert isinstance(patch, dict)
        assert (subresource, set(patch)) == ("status", {"metadata", "status"})
        assert patch["metadata"] == {"uid": f"uid-budget-{name}"}
        status = patch["status"]
        assert isinstance(status, dict)
        kept: JsonObject = {
            key: value for key, value in status.items() if not {key, "all"} & {*self.drops}
        }
        return await super().patch(resource, namespace, name, {"status": kept}, subresource)


class StatusStage(BudgetStage):
    client: _Kind
    make_client = _Kind

    async def set_up(self) -> None:
        await self.do_budget("ingester", "none")
        await self.do_room("a")

    def _start(self, name: str) -> None:
        super()._start(name)
        self.reports = BudgetReports(self.process, self.process.budgets)

    def look(self) -> list[str]:
        calls = self.client.calls[self.shown :]
        self.shown = len(self.client.calls)
        writes = [call.rpartition("/")[2] for call in calls if call.startswith("patch")]
        pages = sum(call.startswith("list") for call in calls)
        reported = sum("Status of budgets is not written" in line for line in self.lines)
        self.lines.clear()
        return [
            *([f"pages {pages}"] * bool(pages)),
            *([f"writes {' '.join(writes)}"] * bool(writes)),
            *(["reported"] * reported),
        ]

    async def do_room(self, *names: str) -> None:
        """Create budgets, over no pod."""
        for name in names:
            await self.do_budget(name, *["selector=app:another"] * (name != "a"))
            meta = {"name": name, "uid": f"uid-budget-{name}", "resourceVersion": "1"}
            self.client.put(PLURAL, {"metadata": {"namespace": "test", **meta}, "spec": {}})

    async def do_remove(self, name: str) -> None:
        """Delete a budget; the cache shows it still."""
        self.client.objects.pop((PLURAL, name), None)

    async def do_drops(self, *fields: str) -> None:
        """Have the kind as it is installed drop fields of a status, or `all`."""
        self.client.drops = fields

    async def do_elect(self, other: str) -> None:
        """Have another replica be elected."""
        self.faults.append(("patch", NotElected(f"{other} acts"), 1))

    async def do_write(self, name: str, allowed: str) -> None:
        """Have a person write a status."""
        held = self.client.objects[PLURAL, name]
        self.client.put(PLURAL, merge(held, {"status": {"allowedDisruptions": int(allowed)}}))

    async def do_report(self, names: str, times: str = "1") -> str:
        """Reconcile these budgets, one after the other; show when the last is next."""
        began = elapsed()
        for name in list(names) * int(times):
            again = (await self.reports.reconcile(name)).again
        took = (elapsed() - began).total_seconds()
        return ("never" if again is None else f"again in {again.total_seconds():g}s") + (
            f" after {took:g}s" if took > 1 else ""
        )

    async def do_minutes(self, minutes: str, allowed: str) -> str:
        """Reconcile each second, while a person writes a status each second."""
        before = len(self.client.calls)
        for _ in range(int(minutes) * 60):
            await self.do_write("a", allowed)
            await self.do_report("a")
            await self.do_wait(1)
        return f"{len(self.client.calls) - before} calls"

    async def do_status(self, name: str) -> str:
        status = self.client.objects[PLURAL, name].get("status")
        if not status:
            return "no status"
        plain = [f"{key} {value}" for key, value in status.items() if key != "conditions"]
        times = [
            f"{one['type']} {one['status']} since {brief(str(one['lastTransitionTime']))}"
            for one in status.get("conditions", [])
        ]
        return ", ".join([*plain, *times])
