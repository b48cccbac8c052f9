"""The commands of what a person with a kubeconfig sees, with or without an operator (D-76).

`inspect` shows what is decided of groups, or what the operator says of them; `remarks` what is said
of that besides. Where nothing else is said, no Service leads to an operator.
"""

import asyncio
from datetime import timedelta
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace
from rollout_lab.model.history import Called

from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import ApiClient
from rollout_operator.model.description import (
    Description,
    OperatorDescription,
    ReleaseDescription,
    Waiting,
)
from rollout_operator.model.names import HEALTH_CHECK, ApiError, Denied, NotFound, Unreachable
from rollout_operator.model.outcome import Code
from rollout_operator.operator.inspect import Inspection, Inspector, is_settled, list_namespaces
from rollout_operator.planning.describe_groups import merge_descriptions
from tests.controllers.releases.world import ReleaseSandbox
from tests.lab.releasing import create_release, create_zones
from tests.operator.diagnosis.inspected import PERSON, Partial, observe_sandbox
from tests.operator.stage import OperatorStage, outline

ERRORS: Final[dict[str, type[ApiError]]] = {
    "denied": Denied,
    "missing": NotFound,
    "unreachable": Unreachable,
}
# What another program may answer behind the Service.
BODIES: Final = {
    "nonsense": b"nonsense",
    "another": b'"\xff"',
    "naive": b'{"namespace":"default","now":"2026-01-01T00:00:00"}',
    "deep": b'{"x":' + b"[" * 100_000,
    "bytes": b'{"namespace":"\xff"}',
    "below": b'{"namespace":"default","now":"2026-01-01T00:00:00Z","operator":{"version":"\xff"}}',
}
LABELS: Final = {"app": "app.kubernetes.io/name", "chart": "helm.sh/chart"}
RELEASES: Final = ("-releases.enabled", "-releases.metadata=none")
NIGHTS: Final = {"rolloutSelector": {}, "rules": [{"name": "always"}]}
BY_POLICY: Final = {"releasesImagePolicy": {"name": "app"}}
SELECTED: Final = {"selector": {"matchLabels": {"app": "app"}}}


class InspectStage(OperatorStage):
    """A person beside the cluster."""

    seen: Any
    inspection: Inspection

    def __init__(self) -> None:
        super().__init__(has_webhooks=False, is_quick=False)
        self.service: str | None = None
        self.inspector: Inspector | None = None

    async def do_given(self, *name: str) -> None:
        """Begin with three whole zones of two pods."""
        await self._quietly("zone a 2 plain; zone b 2 plain; zone c 2 plain; 60s")

    @property
    def client(self) -> Partial:
        if not hasattr(self, "_client"):
            self._client = Partial(observe_sandbox(self.sandbox))
        return self._client

    @property
    def world(self) -> ReleaseSandbox:
        return ReleaseSandbox(self.sandbox)

    # What answers

    async def do_answers(self, plural: str, error: str, text: str = "no") -> None:
        """Have reads of a kind, or calls through `services`, fail or be answered by nonsense."""
        self.client.answers[plural] = BODIES.get(error) or ERRORS[error](text)

    async def do_bind(self, letter: str, name: str) -> None:
        """Bind a zone to a health check."""
        await self.people.annotate(f"zone-{letter}", HEALTH_CHECK, name)

    async def do_service(self, name: str, *words: str) -> None:
        """Add a Service: `port=9000 name=http app=rollout-operator`."""
        given = dict(word.split("=", 1) for word in words)
        port: dict[str, object] = {"port": int(given.pop("port", 8001))}
        port |= {"name": given.pop("name")} if "name" in given else {}
        labels = {LABELS[key]: text for key, text in given.items()}
        self.client.services.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "labels": labels},
                "spec": {"ports": [port], "selector": {"app": "x"}},
            }
        )

    async def do_own(self, *words: str) -> None:
        """Have the operator answer: `acting`, `version=2`, `holds` the group, `for=default`."""
        given = dict(word.split("=", 1) for word in words if "=" in word)
        space, now = self.sandbox.namespace, self.sandbox.clock().now()
        operator = OperatorDescription(version="9", is_ready=True, is_acting="acting" in words)
        own = Description(
            namespace=space,
            now=now,
            operator=None if "alone" in words else operator,
            schema_version=int(given.get("version", 1)),
        )
        if {"holds", "frees"} & {*words}:
            [group] = self.inspection.description.groups
            wait = Waiting(code=Code.ZONE_LEFT_SHORT, text="it left")
            waits = (wait,) if "holds" in words else ()
            own = replace(own, operator=None, groups=(replace(group, waits=waits),))
        if "for" in given:
            watched = replace(own, namespace=given["for"])
            own = merge_descriptions(replace(own, namespace="ops"), [watched])
        self.client.answers["services"] = msgspec.json.encode(own)

    async def do_held_by(self, holder: str, seconds: str) -> None:
        """Have the Lease say who renewed it so long ago."""
        renewed = self.sandbox.clock().now() - timedelta(seconds=float(seconds))
        self.client.answers["leases"] = msgspec.json.encode(
            {
                "kind": "Lease",
                "metadata": {"name": "l", "namespace": "n", "resourceVersion": "1"},
                "spec": {"holderIdentity": holder, "renewTime": renewed.isoformat()},
            }
        )

    async def do_by(self, service: str = "") -> None:
        """Look for the operator at this Service alone, or not at all."""
        self.service = service

    # What is seen

    async def do_inspect(self) -> str:
        if self.inspector is None:
            self.inspector = Inspector(
                cast(ApiClient, self.client),
                self.sandbox.namespace,
                self.sandbox.clock(),
                service=self.service,
                lease="rollout-operator",
            )
        self.inspection = seen = await self.inspector.inspect()
        who = "computed" if seen.own is None else "own"
        operator = ", operator known" * (seen.best.operator is not None)
        return "; ".join([f"{who}{operator}", *map(_describe, seen.best.groups)])

    async def do_problems(self) -> str:
        groups = self.inspection.best.groups
        return " / ".join(problem.text for group in groups for problem in group.problems)

    async def do_remarks(self) -> str:
        return " / ".join(self.inspection.remarks) or "no remark"

    async def do_asked(self) -> str:
        return " ".join(dict.fromkeys(self.client.asked)) or "none asked"

    async def do_settled(self) -> str:
        found = {is_settled(group) for group in self.inspection.groups.values()}
        return "settled" if found == {True} else "not settled"

    async def do_budgets(self, *how: str) -> str:
        return "; ".join(
            f"{one.name} {one.maximum}: {one.zones} zones {one.pods} pods"
            f" {one.unavailable} unavailable {one.allowed} allowed"
            for one in self.inspection.description.budgets
        )

    async def do_policies(self) -> str:
        return "; ".join(
            f"{one.code}: {one.headline}" for one in self.inspection.best.list_policies()
        )

    async def do_releases(self, process: str = "") -> str:
        """Show what is said of releases, also by a process."""
        found = self.inspection.best if not process else await self._process(process).describe()
        if found.releases is msgspec.UNSET:
            assert (found.schedules, found.health_checks) == (msgspec.UNSET, msgspec.UNSET)
            return "nothing of releases"
        schedules = [
            f"{one.title} {'open' if one.is_open else 'closed'} of {one.rollouts}"
            for one in found.list_schedules()
        ]
        checks = [f"{one.title} of {' '.join(one.rollouts)}" for one in found.list_checks()]
        return "; ".join([*map(_describe_release, found.list_releases()), *schedules, *checks])

    async def do_agrees(self, times: str, seconds: str) -> str:
        """Compare with what the operator says, so often; show all that it said."""
        found: dict[str, None] = {}
        for _ in range(int(times)):
            # Never at the moment at which a pod changes: between the two reads something would.
            await asyncio.sleep(float(seconds))
            mine = (await observe_sandbox(self.sandbox).inspect()).description
            theirs = await self._process().describe()
            views = [[(one.phase, one.code) for one in view.groups] for view in (mine, theirs)]
            assert views[0] == views[1]
            assert mine.budgets == theirs.budgets
            if theirs.releases is not msgspec.UNSET:
                assert mine.releases == theirs.releases
                assert mine.list_schedules() == theirs.list_schedules()
                assert mine.health_checks == theirs.health_checks
            found |= dict.fromkeys(f"{one.phase}" for one in mine.list_releases())
            found |= dict.fromkeys(f"{one.phase} {one.code}" for one in mine.groups)
        assert [one.headline for one in mine.groups] == [one.headline for one in theirs.groups]
        self._list_deletes()
        return ", ".join(found)

    async def do_read(self, *plurals: str) -> str:
        """Show by which verbs this person read, and which of some kinds."""
        calls = [one for one in self.sandbox.history.list_all(Called) if one.actor == PERSON]
        found = {one.request.resource.plural for one in calls} & {*plurals}
        verbs = {one.request.verb for one in calls}
        return f"{' '.join(sorted(verbs))}: {' '.join(sorted(found)) or 'none of these'}"

    async def do_namespaces(self) -> str:
        return " ".join(await list_namespaces(observe_sandbox(self.sandbox).client)) or "none"

    async def do_late(self, seconds: str) -> None:
        self.sandbox.cluster.lag_controller(timedelta(seconds=float(seconds)))

    # Releases

    async def do_release(self) -> None:
        """Create zones, Flux, a Rollout, and schedules of both kinds."""
        await create_zones(self.world)
        self.sandbox.start_flux()
        await create_release(self.world, bakeTime="1m")
        spec = {**NIGHTS, "action": "Allow"}
        await self.world.create(kinds.ROLLOUT_SCHEDULES, "nights", spec)
        await self.world.create(kinds.CLUSTER_ROLLOUT_SCHEDULES, "days", spec)
        await asyncio.sleep(30)

    async def do_makes(self) -> None:
        """Have the operator make releases."""
        self.args.extend(RELEASES)

    async def do_rollout(self, name: str = "app", *words: str) -> None:
        """Create a Rollout: one that `checks`, also `anywhere`, or is `bad`."""
        spec: dict[str, object] = {**BY_POLICY}
        if "bad" in words:
            spec["wantedVersion"] = "no tag"
        if {"checks", "anywhere"} & {*words}:
            anywhere = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
            spec["healthCheckSelector"] = {**SELECTED, **(anywhere if "anywhere" in words else {})}
        await self.world.create(kinds.ROLLOUTS, name, spec)

    async def do_check(self, name: str, *words: str) -> None:
        """Create a HealthCheck, in the namespace `other` or not, with the label or not."""
        place = {"namespace": "other"} if "other" in words else {}
        labels = {"app": "app"} if "labelled" in words else {}
        await self.world.create(kinds.HEALTH_CHECKS, name, {}, labels=labels, **place)

    async def do_other(self, *kinds_there: str) -> None:
        """Create the namespace `other`, with a schedule or not."""
        await self.world.create(kinds.NAMESPACES, "other", {}, labels={"team": "a"})
        if kinds_there:
            await self.world.create(kinds.ROLLOUT_SCHEDULES, "others", NIGHTS, namespace="other")

    async def do_schedules(self) -> None:
        """Create a schedule, and one of the cluster."""
        await self.world.create(kinds.ROLLOUT_SCHEDULES, "nights", NIGHTS)
        await self.world.create(kinds.CLUSTER_ROLLOUT_SCHEDULES, "nights", NIGHTS)

    async def do_gate(self, name: str) -> None:
        """Create a gate that is closed."""
        spec = {"rolloutRef": {"name": "app"}, "passing": False}
        await self.world.create(kinds.ROLLOUT_GATES, name, spec)

    async def do_announce(self, tag: str) -> None:
        await self.sandbox.flux.announce("default", "app", tag)


def _describe(group: Any) -> str:
    codes = [str(one.code) for one in group.waits]
    return outline(group) + f", waits {' '.join(codes)}" * (len(codes) > 1)


def _describe_release(one: ReleaseDescription) -> str:
    checks = [f"checks {' '.join(check.name for check in one.checks)}"] * bool(one.checks)
    return " ".join([one.title, str(one.phase), one.reason, *checks])
