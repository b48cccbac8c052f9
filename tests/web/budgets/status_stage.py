"""The commands of stories of the status of budgets: what is said of each, and what is written."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, cast

from msgspec.structs import replace
from rollout_lab.schemas.patches import merge

from rollout_operator.controllers.budgets import BudgetReports, Budgets
from rollout_operator.guards.arbiter import Accounts, BudgetAccount
from rollout_operator.kube.api import JsonObject, Page, Resource
from rollout_operator.model.budget import BudgetVersions
from rollout_operator.model.description import BudgetDescription, Waiting
from rollout_operator.model.names import NotElected, Uid
from rollout_operator.model.outcome import Code
from tests.controllers.fake_client import FakeClient
from tests.controllers.fed_context import FedContext
from tests.virtual_time import VirtualClock, elapsed
from tests.web.client_stage import ClientStage, brief

PLURAL: Final = "zoneawarepoddisruptionbudgets"
STALE: Final = Waiting(code=Code.SNAPSHOT_STALE, text="too old")
ROOM: Final = BudgetDescription(
    name="a", is_valid=True, maximum="1", zones=3, pods=9, unavailable=0, allowed=1,
    text="1 more pod may go",
)  # fmt: skip


class _Kind(FakeClient):
    """Budgets on pages of one, of a kind that may drop fields of a status; none may be fetched."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.drops: tuple[str, ...] = ()

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
        assert patch["metadata"] == {"uid": f"uid-{name}"}
        status = patch["status"]
        assert isinstance(status, dict)
        kept: JsonObject = {
            key: value for key, value in status.items() if not {key, "all"} & {*self.drops}
        }
        return await super().patch(resource, namespace, name, {"status": kept}, subresource)


class StatusStage(ClientStage):
    """Budget a has a place; others come with `room b`."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines
        self.kind = _Kind()
        self.said: dict[str, BudgetDescription] = {}
        self.generation = 1
        self._attend(self.kind)
        self._add("a")
        self._begin()

    def _begin(self) -> None:
        clock = VirtualClock()
        context = FedContext(self.kind, clock)
        budgets = Budgets(context)
        budgets.accounts = cast(Accounts, self)
        self.statuses = BudgetReports(context, budgets)

    def find(self, name: str) -> BudgetAccount | None:
        if name not in self.said:
            return None
        known = BudgetVersions(
            namespace="test", name=name, uid=Uid(f"uid-{name}"), generation=self.generation
        )
        return BudgetAccount(known=known, described=self.said[name], zones=())

    def _add(self, name: str) -> None:
        self.said[name] = replace(ROOM, name=name)
        meta = {"namespace": "test", "name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
        self.kind.put(PLURAL, {"metadata": meta, "spec": {}})

    def look(self) -> list[str]:
        calls = self.kind.calls[self.shown :]
        self.shown = len(self.kind.calls)
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
        for name in names:
            self._add(name)

    async def do_restart(self) -> None:
        self._begin()

    async def do_wait(self, seconds: float) -> None:
        await VirtualClock().sleep(timedelta(seconds=seconds))

    async def do_down(self, name: str, pods: str) -> None:
        """Have it be said of a budget that so many pods are down."""
        self.said[name] = replace(
            self.said[name], unavailable=int(pods), allowed=0, text=f"{pods} down"
        )

    async def do_stale(self, name: str) -> None:
        self.said[name] = replace(self.said[name], waits=(STALE,))

    async def do_generation(self, number: str) -> None:
        self.generation = int(number)

    async def do_gone(self, name: str, *words: str) -> None:
        """Delete a budget; `seen` by the cache, too."""
        self.kind.objects.pop((PLURAL, name), None)
        if "seen" in words:
            del self.said[name]

    async def do_drops(self, *fields: str) -> None:
        """Have the kind as it is installed drop fields of a status, or `all`."""
        self.kind.drops = fields

    async def do_elect(self, other: str) -> None:
        """Have another replica be elected."""
        self.faults.append(("patch", NotElected(f"{other} acts"), 1))

    async def do_write(self, name: str, allowed: str) -> None:
        """Have a person write a status."""
        held = self.kind.objects[PLURAL, name]
        self.kind.put(PLURAL, merge(held, {"status": {"allowedDisruptions": int(allowed)}}))

    async def do_reconcile(self, names: str, times: str = "1") -> str:
        """Reconcile these budgets, one after the other; show when the last is next."""
        began = elapsed()
        for name in list(names) * int(times):
            again = (await self.statuses.reconcile(name)).again
        took = (elapsed() - began).total_seconds()
        return ("never" if again is None else f"again in {again.total_seconds():g}s") + (
            f" after {took:g}s" if took > 1 else ""
        )

    async def do_minutes(self, minutes: str, allowed: str) -> str:
        """Reconcile each second, while a person writes a status each second."""
        before = len(self.kind.calls)
        for _ in range(int(minutes) * 60):
            await self.do_write("a", allowed)
            await self.do_reconcile("a")
            await self.do_wait(1)
        return f"{len(self.kind.calls) - before} calls"

    async def do_show(self, name: str) -> str:
        """Show a status as it stands there."""
        status = self.kind.objects[PLURAL, name].get("status")
        if not status:
            return "no status"
        plain = [f"{key} {value}" for key, value in status.items() if key != "conditions"]
        times = [
            f"{one['type']} {one['status']} since {brief(str(one['lastTransitionTime']))}"
            for one in status.get("conditions", [])
        ]
        return ", ".join([*plain, *times])
