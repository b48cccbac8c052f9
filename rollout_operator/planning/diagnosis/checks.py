"""All checks of an installation, in the order in which they are reported.

A check is made where everything that it needs could be read; where not, it is skipped and reported
so.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from rollout_operator.model.diagnosis.findings import Diagnosis, Finding, SkippedCheck
from rollout_operator.model.diagnosis.installation import Installation, Source
from rollout_operator.planning.diagnosis import (
    budgets,
    groups,
    operators,
    policies,
    preparing,
    releases,
    rights,
    webhooks,
)


class Check(msgspec.Struct, frozen=True):
    """One question, and what must have been read to answer it."""

    name: str
    run: Callable[[Installation], Iterable[Finding]]
    needs: tuple[Source, ...]


_OPERATORS: Final = Source.DEPLOYMENTS
_SETS: Final = Source.STATEFULSETS
_HOOKS: Final = Source.WEBHOOKS
_RELEASES: Final = Source.RELEASES
_FLUX: Final = Source.FLUX

CHECKS: Final = (
    Check("namespace", operators.check_namespace, (Source.NAMESPACE,)),
    Check("operator is there and ready", operators.check_operator, (_OPERATORS, _SETS)),
    Check("one operator", operators.check_count, (_OPERATORS,)),
    Check("holder of the Lease", operators.check_lease, (Source.LEASE, Source.PODS)),
    Check("arguments of the operator", operators.check_arguments, (_OPERATORS,)),
    Check("flags and variables", operators.check_overruled, (_OPERATORS,)),
    Check("rights of the operator", rights.check_rights, (Source.RIGHTS,)),
    Check(
        "rights of the operator in the cluster",
        rights.check_cluster_rights,
        (Source.CLUSTER_RIGHTS,),
    ),
    Check("webhooks are registered", webhooks.check_registered, (_OPERATORS, _HOOKS)),
    Check(
        "labels and budgets have webhooks",
        webhooks.check_guards,
        (_HOOKS, _SETS, Source.ZONE_BUDGETS),
    ),
    Check("webhooks of other operators", webhooks.check_others, (_HOOKS,)),
    Check(
        "Services of webhooks", webhooks.check_services, (_HOOKS, Source.SERVICES, Source.ENDPOINTS)
    ),
    Check("CA of webhooks", webhooks.check_bundles, (_HOOKS,)),
    Check("failure policies", webhooks.check_policies, (_HOOKS,)),
    Check("time-outs of webhooks", webhooks.check_timeouts, (_HOOKS,)),
    Check("webhooks are reached", webhooks.check_reach, (Source.REACH,)),
    Check("zones of groups", groups.check_zones, (_SETS,)),
    Check("groups of one application", groups.check_shared, (_SETS,)),
    Check("update strategies", groups.check_strategies, (_SETS,)),
    Check("order of zones", groups.check_order, (_SETS,)),
    Check("values of labels and annotations", groups.check_values, (_SETS,)),
    Check("values of switches", groups.check_switches, (_SETS,)),
    Check("spelling of keys", groups.check_spelling, (_SETS,)),
    Check("places of keys", groups.check_places, (_SETS,)),
    Check("where pods are prepared", groups.check_preparing, (_SETS,)),
    Check(
        "pods answer where they are prepared",
        preparing.check_answers,
        (_SETS, Source.PODS, Source.PREPARE_PATHS),
    ),
    Check("kind of MultiAZRollouts", policies.check_kind, (_OPERATORS, Source.POLICIES)),
    Check("MultiAZRollouts are obeyed", policies.check_obeyed, (_OPERATORS, Source.POLICIES)),
    Check("MultiAZRollouts are accepted", policies.check_accepted, (Source.POLICIES, _SETS)),
    Check(
        "update strategies under MultiAZRollouts",
        policies.check_strategies,
        (Source.POLICIES, _SETS),
    ),
    Check("kinds of releases", releases.check_kinds, (_OPERATORS, _RELEASES)),
    Check("Rollouts are made by one controller", releases.check_made, (_OPERATORS, _RELEASES)),
    Check("kinds of Flux", releases.check_flux, (_RELEASES, _FLUX)),
    Check("Rollouts and schedules are accepted", releases.check_accepted, (_RELEASES,)),
    Check("versions are announced", releases.check_announced, (_RELEASES, _FLUX)),
    Check("versions are written", releases.check_written, (_RELEASES, _FLUX)),
    Check("Rollouts that others name", releases.check_named, (_RELEASES, _FLUX)),
    Check("HealthChecks and Rollouts are selected", releases.check_selected, (_RELEASES,)),
    Check("zones that others follow", groups.check_leading_zones, (_SETS,)),
    Check(
        "PodDisruptionBudgets have room", budgets.check_native_room, (Source.NATIVE_BUDGETS, _SETS)
    ),
    Check(
        "PodDisruptionBudgets do not overlap",
        budgets.check_native_overlap,
        (Source.NATIVE_BUDGETS, Source.PODS),
    ),
    Check(
        "one kind of budget for a pod",
        budgets.check_both_kinds,
        (Source.NATIVE_BUDGETS, Source.ZONE_BUDGETS, Source.PODS),
    ),
    Check("zone budgets", budgets.check_zone_budgets, (Source.ZONE_BUDGETS, _SETS, Source.PODS)),
    Check(
        "zone budgets do not overlap",
        budgets.check_zone_overlap,
        (Source.ZONE_BUDGETS, Source.PODS),
    ),
    Check("pods that are to come", webhooks.check_pods, (Source.POD_TRIALS,)),
)


def diagnose(installation: Installation) -> Diagnosis:
    """Return what is wrong with an installation, as far as it could be read."""
    findings: list[Finding] = []
    skipped: list[SkippedCheck] = []
    passed = 0
    for check in CHECKS:
        missing = [source for source in check.needs if source in installation.unread]
        if missing:
            skipped.append(SkippedCheck(check=check.name, why=installation.unread[missing[0]]))
            continue
        breaches = tuple(check.run(installation))
        findings += breaches
        passed += not breaches
    return Diagnosis(
        namespace=installation.namespace,
        findings=tuple(findings),
        skipped=tuple(skipped),
        passed=passed,
    )
