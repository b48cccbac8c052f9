"""Rollouts of three zones between which a health check stands, with a scripted Prometheus."""

import re
from copy import deepcopy
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import yaml
from msgspec.structs import replace
from rollout_lab.model.fields import child
from rollout_lab.model.history import Called
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.schemas.kinds import MULTI_AZ_ROLLOUT
from rollout_lab.world import Sandbox

from rollout_operator.gates import plan
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, ROLLOUT_HEALTH_CHECKS
from rollout_operator.model.names import HEALTH_CHECK, HEALTH_CHECK_BYPASS, PAUSED
from rollout_operator.model.objects import Group
from rollout_operator.planning.readiness import GroupBlocker, find_group_blocker
from tests.gates.prometheus import NAME, ScriptedPrometheus, render_check
from tests.operator import stage as operator
from tests.operator.diagnosis.inspected import observe_sandbox


class GateStage(operator.OperatorStage):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines, has_webhooks=False)
        self.prometheus = ScriptedPrometheus()
        self.prometheus.ratios["v2"] = 0.2
        self.reconciled = 0

    def _make_sandbox(self) -> Sandbox:
        sandbox = Sandbox(
            choose=self._choose, faults=self.late, open_outbound=lambda limit: self.prometheus
        )
        self.prometheus.watch(sandbox)
        return sandbox

    async def do_begin(self, *flags: str) -> None:
        """Create three zones that are bound to a health check, and start one operator.

        With `policy` a MultiAZRollout rolls them out, and with `budget` a budget grants each pod.
        With `others` there is a group of zones d, e.
        """
        self.depth += 1
        selected = ["who=all"] * ("budget" in flags) + ["who=all", "zonal"] * ("policy" in flags)
        for letter in "abcde" if "others" in flags else "abc":
            group = ["group=others"] * (letter in "de")
            await self.do_zone(letter, "plain", *group, *selected)
            await self.people.label(f"zone-{letter}", "rollout-operator/tests", "gates")
            await self.people.annotate(f"zone-{letter}", HEALTH_CHECK, NAME)
        if "budget" in flags:
            await self.do_budget()
        if "policy" in flags:
            await self.do_policy()
        await self.do_check()
        await self.do_start(*flags)
        await self.do_wait(30)
        self.depth -= 1

    async def do_check(self, *changes: str) -> None:
        """Create the health check, or change it: `firstZonePods=1`, `check.disabled=true`."""
        tree = render_check(self.sandbox.namespace)
        spec = tree["spec"]
        [one] = spec["checks"]
        one |= {"currentRange": "1m"}
        one["failurePolicy"]["reevaluationInterval"] = "30s"
        spec["selector"] = {"matchLabels": {"rollout-operator/tests": "gates"}}
        for name, value in (change.split("=", 1) for change in changes):
            target = one if name.startswith("check.") else spec
            target[name.removeprefix("check.")] = yaml.safe_load(value)
        call = ApiRequest(verb="create", resource=ROLLOUT_HEALTH_CHECKS, body=tree)
        if self._fetch() is not None:
            call = replace(call, verb="patch", name=NAME, content_type=MERGE_PATCH)
        await self._send(call)

    async def do_older(self) -> None:
        """Have the definition of the kind lack `leftAt`."""

        def drop(found: Any) -> None:
            for group in found.get("status", {}).get("groups", ()):
                group.pop("leftAt", None)

        self.stack.enter_context(patch.dict(MULTI_AZ_ROLLOUT.defaults, {"status": drop}))

    async def do_order(self, *zones: str) -> None:
        """Have the MultiAZRollout roll out zones in an order."""
        spec = {"azOrder": [*zones]}
        call = ApiRequest(verb="patch", resource=MULTI_AZ_ROLLOUTS, name="store")
        await self._send(replace(call, body={"spec": spec}, content_type=MERGE_PATCH))

    async def do_uncheck(self) -> None:
        """Delete the health check."""
        await self._send(ApiRequest(verb="delete", resource=ROLLOUT_HEALTH_CHECKS, name=NAME))

    async def do_overwrite(self, seconds: str) -> None:
        """Write the status ten times a second, with looks in times to come."""
        for number in range(10 * int(seconds)):
            tree: Any = deepcopy(child(self._fetch() or {}, "status"))
            for group in tree.get("groups", ()):
                for check in group.get("checks", ()):
                    check |= {"evaluatedAt": "2999-01-01T00:00:00Z", "failures": number}
            call = ApiRequest(verb="patch", resource=ROLLOUT_HEALTH_CHECKS, body={"status": tree})
            call = replace(call, name=NAME, subresource="status", content_type=MERGE_PATCH)
            await self._send(call)
            await self.do_wait(0.1)

    async def do_bind(self, letter: str, name: str = "") -> None:
        await self.people.annotate(f"zone-{letter}", HEALTH_CHECK, name or None)

    async def do_pause(self, letters: str, value: str = "true") -> None:
        for letter in letters:
            await self.people.annotate(f"zone-{letter}", PAUSED, value)

    async def do_bypass(self, letter: str, minutes: str) -> None:
        """Waive the check of a zone for so many minutes from now."""
        until = self.sandbox.api.now() + timedelta(minutes=float(minutes))
        text = f"{until:%Y-%m-%dT%H:%M:%SZ}"
        await self.people.annotate(f"zone-{letter}", HEALTH_CHECK_BYPASS, text)

    async def do_prometheus(self, how: str, zone: str = "") -> None:
        """Have it `slow`, `dead`, `broken` ..., perhaps only where it is asked of a zone."""
        self.prometheus.how, self.prometheus.pods = how, zone and f"zone-{zone}"

    async def do_bug(self, name: str) -> None:
        """Have the plan of a group fail."""

        def find(group: Group) -> GroupBlocker | None:
            if group.name == name:
                raise ZeroDivisionError("a bug")
            return find_group_blocker(group)

        self.stack.enter_context(patch.object(plan, "find_group_blocker", find))

    async def do_ratio(self, image: str, ratio: str) -> None:
        self.prometheus.ratios[image] = float(ratio)

    async def do_asked(self) -> str:
        """Show how many queries were sent since the last time."""
        found, self.prometheus.queries = len(self.prometheus.queries), []
        return f"{found} queries"

    async def do_restart(self, every: str, times: str) -> None:
        """Kill the operator every so many seconds, and start it at once."""
        for _ in range(int(times)):
            await self.do_wait(float(every))
            await self.do_crash()
            await self.do_again()

    async def do_checked(self) -> str:
        """Show what the status says."""
        found = self._fetch()
        assert found is not None, "there is one"
        status: Any = child(found, "status")
        return "; ".join(
            f"{group['group']}: "
            + " ".join(
                f"{one['name'].removeprefix('zone-')}{' passed' if 'passedAt' in one else ''}"
                for one in group.get("statefulSets", ())
            )
            + "".join(
                f", {one['name']} {one.get('result')}"
                + "".join(
                    f" {key}={one[key]}"
                    for key in ("successes", "failures", "errorAttempts", "current", "baseline")
                    if key in one
                )
                for one in group.get("checks", ())
            )
            for group in status.get("groups", ())
        )

    async def do_inspect(self) -> str:
        """Show what `status` says of the group from outside."""
        seen = await observe_sandbox(self.sandbox).inspect()
        [group] = seen.description.groups
        return f"{group.phase} {group.headline}"

    async def do_reported(self) -> str:
        """Show of which StatefulSets it was reported why, since the last time."""
        found = [line for line in self.lines if 'msg="Health check"' in line]
        self.lines.clear()
        return "; ".join(
            f"{match[1]} {match[2]}"
            for line in found
            if (match := re.search(r"statefulset=zone-(\w+) reason=(\w+)", line))
        )

    async def do_gauges(self) -> str:
        """Show the metrics of health checks that are not zero, without durations."""
        registry = self._process().telemetry.metrics.registry
        return "; ".join(
            f"{sample.name.removeprefix('rollout_operator_health_check_')}"
            f"{{{','.join(sample.labels.values())}}} {sample.value:g}"
            for family in registry.collect()
            for sample in family.samples
            if "_health_check_" in sample.name and sample.value
            if "duration" not in sample.name and not sample.name.endswith("_created")
        )

    async def do_written(self) -> str:
        """Show how often the status was written since the last time."""
        calls = [(one.request.resource, one.request.verb) for one in self.take(Called, "statuses")]
        return f"{calls.count((ROLLOUT_HEALTH_CHECKS, 'patch'))} times"

    async def do_reconciled(self, group: str) -> str:
        """Show how often a group has been reconciled since the last time."""
        registry = self._process().telemetry.metrics.registry
        name = "rollout_operator_group_reconciles_total"
        found = int(registry.get_sample_value(name, {"rollout_group": group}) or 0)
        before, self.reconciled = self.reconciled, found
        return f"{found - before} times"

    def _fetch(self) -> Any:
        return self.sandbox.api.get(ROLLOUT_HEALTH_CHECKS, self.sandbox.namespace, NAME)
