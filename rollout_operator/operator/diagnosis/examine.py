"""Read one installation for `rollout-operator doctor`: rights to read are enough for most of it.

Decides what is read. A part that may not be read is recorded in the snapshot and is no failure;
further requests to the API server are in `access_reviews` and `dry_runs`, the findings from all of
it are decided in `planning.diagnosis`.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.kube.api import (
    DEFINITIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    LEASES,
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NATIVE_BUDGETS,
    PODS,
    SECRETS,
    SERVICES,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
)
from rollout_operator.model.decode.budget import decode_budget
from rollout_operator.model.decode.installation import (
    decode_endpoints,
    decode_labelled_pod,
    decode_namespace_labels,
    decode_native_budget,
    decode_operator,
    decode_served_versions,
    decode_service,
    decode_zone_set,
)
from rollout_operator.model.decode.lease import decode_lease
from rollout_operator.model.decode.registrations import decode_certificate, decode_hooks
from rollout_operator.model.decode.status import decode_watched_policy
from rollout_operator.model.diagnosis.findings import Diagnosis
from rollout_operator.model.diagnosis.installation import (
    HeldLease,
    HookRegistration,
    Installation,
    OperatorDeployment,
    PathAnswer,
    PodTrial,
    PolicyKind,
    ReachAnswer,
    RightAnswer,
    Source,
    ZoneSet,
)
from rollout_operator.model.errors import Denied, InvalidInput, NotFound, OperatorError
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.operator.diagnosis.access_reviews import fetch_rights
from rollout_operator.operator.diagnosis.dry_runs import probe_paths, try_pods, try_webhooks
from rollout_operator.operator.diagnosis.examine_releases import add_releases
from rollout_operator.operator.diagnosis.listing import ExaminingClient, Reading
from rollout_operator.pki.examination import read_bundle
from rollout_operator.planning.description.policies import find_disobedience
from rollout_operator.planning.diagnosis.checks import diagnose
from rollout_operator.planning.diagnosis.operators import (
    DEFAULT_LEASE,
    DEFAULT_SECRET,
    LEASE_FLAG,
    SECRET_FLAG,
    SELF_SIGNED_FLAG,
    find_value,
    is_on,
    list_acting,
    list_arguments,
    watches,
)
from rollout_operator.planning.diagnosis.policies import obeys
from rollout_operator.planning.diagnosis.preparing import explain_unknown, plan_questions

_ALL_DEPLOYMENTS: Final = structs.replace(DEPLOYMENTS, is_namespaced=False)
# Checks that are left out where their ground could not be read.
_OF_ACCOUNTS: Final = (Source.RIGHTS, Source.CLUSTER_RIGHTS)
_RESTS_ON: Final = {
    **dict.fromkeys(_OF_ACCOUNTS, Source.DEPLOYMENTS),
    Source.REACH: Source.WEBHOOKS,
    Source.POD_TRIALS: Source.STATEFULSETS,
}
# Credentials that the API server does not take at all.
_UNAUTHORIZED: Final = 401


async def examine(client: ExaminingClient, namespace: str, now: datetime) -> Diagnosis:
    """Return what is wrong with the installation of a namespace.

    `now` counts where the API server does not give the time. Raises OperatorError where the API
    server cannot be reached at all.
    """
    return diagnose(await read_installation(client, namespace, now))


async def read_installation(client: ExaminingClient, namespace: str, now: datetime) -> Installation:
    """Return the snapshot of a namespace. Raises OperatorError as `examine`."""
    reading = _InstallationReading(client, namespace)
    labels = await reading.fetch_namespace_labels()
    if labels is None and Source.NAMESPACE not in reading.unread:
        return Installation(namespace=namespace, now=now)
    sets = await reading.list_all(Source.STATEFULSETS, STATEFULSETS, _decode_set)
    installation = Installation(
        namespace=namespace,
        now=client.server_time() or now,
        namespace_labels=labels,
        operators=await reading.list_operators(),
        sets=tuple(sts for sts, _ in sets),
        pods=await reading.list_all(Source.PODS, PODS, decode_labelled_pod),
        services=await reading.list_all(Source.SERVICES, SERVICES, decode_service),
        ready_endpoints=await reading.count_endpoints(),
        native_budgets=await reading.list_all(
            Source.NATIVE_BUDGETS, NATIVE_BUDGETS, decode_native_budget
        ),
        zone_budgets=await reading.list_all(Source.ZONE_BUDGETS, ZONE_BUDGETS, decode_budget),
    )
    arguments = [
        word for operator in list_acting(installation)[:1] for word in list_arguments(operator)
    ]
    policies = await reading.list_all(Source.POLICIES, MULTI_AZ_ROLLOUTS, decode_watched_policy)
    if not obeys(installation):
        reading.unread.pop(Source.POLICIES, None)  # most users need no right to read them
    installation = replace(
        installation,
        policies=tuple(policy.policy for policy in policies),
        unobeyed=frozenset(
            policy.name
            for policy in policies
            if find_disobedience(policy, installation.now) is not None
        ),
        policy_kind=await reading.fetch_policy_kind(),
        lease=await reading.fetch_lease(find_value(arguments, LEASE_FLAG) or DEFAULT_LEASE),
        hooks=await reading.list_hooks(_choose_secret(arguments)),
    )
    installation = await add_releases(reading, installation)
    raw_sets = [raw for sts, raw in sets if sts.sts.group is not None]
    return await _fetch_last(reading, installation, raw_sets)


def _choose_secret(arguments: Sequence[str]) -> str:
    """Return the name of the Secret with the certificate; empty where files have it."""
    if not is_on(arguments, SELF_SIGNED_FLAG, default=True):
        return ""
    return find_value(arguments, SECRET_FLAG) or DEFAULT_SECRET


def _decode_set(raw: msgspec.Raw) -> tuple[ZoneSet, bytes]:
    return decode_zone_set(raw), bytes(raw)


async def _fetch_last(
    reading: "_InstallationReading", installation: Installation, raw_sets: Sequence[bytes]
) -> Installation:
    """Return the snapshot with the last answers, to requests that rest on the rest."""
    client = reading.client
    rights: list[RightAnswer] = []
    reach: tuple[ReachAnswer, ...] = ()
    trials: tuple[PodTrial, ...] = ()
    paths: tuple[PathAnswer, ...] = ()
    for source, is_namespaced in ((Source.RIGHTS, True), (Source.CLUSTER_RIGHTS, False)):
        with reading.recording(source):
            rights += await fetch_rights(client, installation, is_namespaced=is_namespaced)
    with reading.recording(Source.REACH):
        reach = await try_webhooks(client, installation)
    with reading.recording(Source.POD_TRIALS):
        trials = await try_pods(client, installation.namespace, raw_sets)
    with reading.recording(Source.PREPARE_PATHS):
        paths = await probe_paths(client, installation.namespace, plan_questions(installation))
    if untold := explain_unknown(paths):
        reading.unread[Source.PREPARE_PATHS] = untold
    for source, ground in _RESTS_ON.items():
        # The operator's own account is known without its Deployment.
        if ground in reading.unread and not (source in _OF_ACCOUNTS and rights):
            reading.unread.setdefault(source, reading.unread[ground])
    return replace(
        installation,
        rights=tuple(rights),
        reach=reach,
        pod_trials=trials,
        path_answers=paths,
        unread=dict(reading.unread),
    )


class _InstallationReading(Reading):
    """The reads that no single feature needs."""

    async def fetch_namespace_labels(self) -> dict[str, str] | None:
        """Return the labels of the namespace, None where there is none, or it may not be read.

        It is the first read: raises OperatorError where the API server cannot be reached at all.
        """
        try:
            return decode_namespace_labels(await self.client.fetch(NAMESPACES, "", self.namespace))
        except NotFound:
            return None
        except Denied as error:
            if error.status == _UNAUTHORIZED:
                raise
            self.record(Source.NAMESPACE, error)
            return None

    async def list_operators(self) -> tuple[OperatorDeployment, ...]:
        """Return the operators of the namespace; where it has none, those that watch it."""
        operators = await self.list_all(Source.DEPLOYMENTS, DEPLOYMENTS, decode_operator)
        own = [replace(operator, namespace="") for operator in operators if operator is not None]
        if own or Source.DEPLOYMENTS in self.unread:
            return tuple(own)
        everywhere = await self.list_all(Source.DEPLOYMENTS, _ALL_DEPLOYMENTS, decode_operator)
        self.unread.pop(Source.DEPLOYMENTS, None)  # most people may not list those of others
        return tuple(
            operator
            for operator in everywhere
            if operator is not None and watches(operator, self.namespace)
        )

    async def count_endpoints(self) -> dict[str, int]:
        """Return how many endpoints are ready behind each Service."""
        counts: dict[str, int] = {}
        for service, ready in await self.list_all(
            Source.ENDPOINTS, ENDPOINT_SLICES, decode_endpoints
        ):
            counts[service] = counts.get(service, 0) + ready
        return counts

    async def fetch_lease(self, name: str) -> HeldLease | None:
        """Return the Lease of the operators, None where there is none."""
        try:
            lease = decode_lease(await self.client.fetch(LEASES, self.namespace, name))
        except NotFound:
            return None
        except OperatorError as error:
            self.record(Source.LEASE, error)
            return None
        try:
            renewed = parse_rfc3339(lease.renewed)
        except InvalidInput:
            renewed = None
        return HeldLease(name=name, holder=lease.holder, renewed=renewed)

    async def fetch_policy_kind(self) -> PolicyKind:
        """Return whether MultiAZRollouts are served, and which versions where they are not.

        Administrators alone may read definitions, which are read only in that case.
        """
        if MULTI_AZ_ROLLOUTS not in self.unknown:
            return PolicyKind()
        name = f"{MULTI_AZ_ROLLOUTS.plural}.{MULTI_AZ_ROLLOUTS.group}"
        try:
            versions = decode_served_versions(await self.client.fetch(DEFINITIONS, "", name))
        except OperatorError:
            versions = ()
        return PolicyKind(is_served=False, versions=versions)

    async def list_hooks(self, secret: str) -> tuple[HookRegistration, ...]:
        """Return the webhooks of all rollout operators of the cluster."""
        certificate = await self._fetch_certificate(secret)
        kinds = [
            await self.list_all(Source.WEBHOOKS, resource, partial(decode_hooks, resource.kind))
            for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        ]
        return tuple(
            replace(
                hook,
                # The certificates of other operators are not known.
                bundle=read_bundle(
                    bundle, certificate if hook.service_namespace == self.namespace else b""
                ),
            )
            if bundle
            else hook
            for configurations in kinds
            for hooks in configurations
            for hook, bundle in hooks
        )

    async def _fetch_certificate(self, secret: str) -> bytes:
        """Return the certificate that the operator serves, empty where it may not be read."""
        if not secret:
            return b""
        try:
            return decode_certificate(await self.client.fetch(SECRETS, self.namespace, secret))
        except OperatorError:
            return b""
