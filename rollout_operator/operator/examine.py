"""Read one installation for `rollout-operator doctor`; rights to read are enough for most of it.

A part that may not be read is recorded in the snapshot and fails nothing. Rights of the operator's
ServiceAccount are read as an administrator, a user of the namespace or the account itself may: the
first way that is allowed is taken. Dry runs pass admission and are not stored. The findings are
decided in `planning`.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import (
    ACCESS_REVIEWS,
    DEFINITIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    LEASES,
    LOCAL_ACCESS_REVIEWS,
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NATIVE_BUDGETS,
    PODS,
    SECRETS,
    SELF_ACCESS_REVIEWS,
    SELF_REVIEWS,
    SERVICES,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    DryRunner,
    JsonObject,
    PodProxy,
    Reader,
    Resource,
    Writer,
    iterate_pages,
)
from rollout_operator.kube.election import decode_lease
from rollout_operator.model.decode import custom, releases
from rollout_operator.model.decode.custom import decode_budget, decode_watched_policy
from rollout_operator.model.decode.installation import (
    decode_allowed,
    decode_certificate,
    decode_endpoints,
    decode_hooks,
    decode_kuberik,
    decode_labelled_pod,
    decode_missing_fields,
    decode_namespace_labels,
    decode_native_budget,
    decode_operator,
    decode_pod_to_try,
    decode_served_versions,
    decode_service,
    decode_username,
    decode_zone_set,
)
from rollout_operator.model.diagnosis import (
    BUDGET_PATH,
    EVICTION_PATH,
    NO_DOWNSCALE_PATH,
    PREPARE_DOWNSCALE_PATH,
    Diagnosis,
    HeldLease,
    HookRegistration,
    Installation,
    OperatorDeployment,
    PathAnswer,
    PathQuestion,
    PodTrial,
    PolicyKind,
    ReachAnswer,
    Right,
    RightAnswer,
    Source,
)
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    OperatorError,
    Refused,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.release_plan import gather_releases
from rollout_operator.model.units import format_duration, parse_rfc3339
from rollout_operator.operator.inspect import Decoded, Decoder, Lister, ReleaseReader
from rollout_operator.pki.certificates import read_bundle
from rollout_operator.planning.describe_policies import find_disobedience
from rollout_operator.planning.doctor import diagnose, explain_unknown, plan_questions
from rollout_operator.planning.doctor_install import (
    DEFAULT_LEASE,
    DEFAULT_SECRET,
    LEASE_FLAG,
    SECRET_FLAG,
    SELF_SIGNED_FLAG,
    RightNeeds,
    find_value,
    is_on,
    list_acting,
    list_arguments,
    list_rights,
    list_watched,
    watches,
)
from rollout_operator.planning.doctor_objects import (
    OF_FLUX,
    makes,
    obeys,
    reads_cluster,
    reads_inventory,
    reads_nodes,
    reads_secrets,
)

_DEPLOYMENTS: Final = replace(DEPLOYMENTS, is_namespaced=False)
_OF_RELEASES: Final = (
    *(kinds.ROLLOUTS, kinds.ROLLOUT_GATES, kinds.HEALTH_CHECKS),
    *(kinds.ROLLOUT_SCHEDULES, kinds.CLUSTER_ROLLOUT_SCHEDULES),
)
_DEFINED: Final = {**custom.DEFINED, **releases.DEFINED}
_OTHERS: Final = (
    *((resource,) for resource in _OF_RELEASES[1:]),
    *(kinds.IMAGE_POLICIES, kinds.IMAGE_REPOSITORIES),
    *(kinds.OCI_REPOSITORIES, kinds.KUSTOMIZATIONS),
)
# Of an operator that watches dozens, those that are checked say enough.
_MOST_NAMESPACES: Final = 8
_ACCOUNTS: Final = "system:serviceaccount"
# How manifests and charts call the account, mostly with the name of a release before it.
_PROGRAM: Final = "rollout-operator"
# Zones of a group are alike: what refuses pods of the twentieth refuses those of an earlier zone.
_MOST_SETS: Final = 20
_NAME: Final = "rollout-operator-doctor"
# The schema of each release takes it, and so does none of its webhooks: there is no ninth group.
_BAD_BUDGET: Final[JsonObject] = {
    "apiVersion": f"{ZONE_BUDGETS.group}/{ZONE_BUDGETS.version}",
    "kind": ZONE_BUDGETS.kind,
    "metadata": {"name": _NAME},
    "spec": {
        "selector": {"matchLabels": {_NAME: "none"}},
        "maxUnavailable": 1,
        "podNamePartitionRegex": "(x)",
        "podNameRegexGroup": 9,
    },
}
# As long as the operator itself gives a pod, unless flags say otherwise.
_LIMIT: Final = timedelta(seconds=5)
# A namespace may have many sets, and the API server other work.
_AT_ONCE: Final = 10
# Checks that are left out where their ground could not be read.
_OF_ACCOUNTS: Final = (Source.RIGHTS, Source.CLUSTER_RIGHTS)
_RESTS_ON: Final = {
    **dict.fromkeys(_OF_ACCOUNTS, Source.DEPLOYMENTS),
    Source.REACH: Source.WEBHOOKS,
    Source.POD_TRIALS: Source.STATEFULSETS,
}
# Credentials that the API server does not take at all.
_UNAUTHORIZED: Final = 401


class ExaminingClient(Reader, Writer, DryRunner, PodProxy, Protocol):
    def server_time(self) -> datetime | None:
        """Return what the API server's clock shows; None before its first answer."""


async def examine(client: ExaminingClient, namespace: str, now: datetime) -> Diagnosis:
    """Return what is wrong with the installation of a namespace.

    `now` counts where the API server gives no time. Raises OperatorError where the API server
    cannot be reached.
    """
    return diagnose(await read_installation(client, namespace, now))


async def read_installation(client: ExaminingClient, namespace: str, now: datetime) -> Installation:
    """Return the snapshot of a namespace. Raises OperatorError as `examine`."""
    reading = _Reading(client, namespace)
    labels = await reading.fetch_namespace_labels()
    if labels is None and Source.NAMESPACE not in reading.unread:
        absent = f"namespace {namespace} does not exist"
        others: dict[Source, str] = {
            source: absent for source in Source if source is not Source.NAMESPACE
        }
        return Installation(namespace=namespace, now=now, unread=others)
    sets = await reading.list_all(
        Source.STATEFULSETS, STATEFULSETS, lambda raw: (decode_zone_set(raw), bytes(raw))
    )
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
        reading.spare(Source.POLICIES)
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
    installation = await _add_releases(reading, installation)
    missing = await reading.map_missing(_list_used(installation))
    installation = replace(installation, missing_fields=missing)
    raw_sets = [raw for sts, raw in sets if sts.sts.group is not None]
    return await _fetch_last(reading, installation, raw_sets)


def _list_used(installation: Installation) -> Iterator[Resource]:
    """Yield the kinds that something here depends on and the API server serves."""
    if installation.zone_budgets:
        yield ZONE_BUDGETS
    if obeys(installation) and installation.policy_kind.is_served:
        yield MULTI_AZ_ROLLOUTS
    if makes(installation):
        absent = installation.releases.absent
        yield from (resource for resource in _OF_RELEASES if resource.kind not in absent)


async def _add_releases(reading: "_Reading", installation: Installation) -> Installation:
    """Return the installation with its releases, unchanged where there are none."""
    reader = ReleaseReader(Lister(reading.client, None), reading.namespace)
    objects = await reader.list_all((kinds.ROLLOUTS,))
    if not objects and not makes(installation):
        for _, error in reader.failures:
            reading.record(Source.RELEASES, error)
        reading.spare(Source.RELEASES)
        return installation
    objects += await reader.list_all(*_OTHERS)
    for resource, error in reader.failures:
        # Where these may not be listed, there are none for the operator.
        if resource is not kinds.CLUSTER_ROLLOUT_SCHEDULES:
            source = Source.FLUX if resource.kind in OF_FLUX else Source.RELEASES
            reading.record(source, error)
    return replace(
        installation,
        releases=gather_releases(objects, reader.absent),
        kuberik=await _list_kuberik(reading),
    )


async def _list_kuberik(reading: "_Reading") -> tuple[str, ...]:
    """Return Deployments of the cluster; where they may not be listed none, without a remark."""
    own = _Reading(reading.client, reading.namespace)
    return tuple(filter(None, await own.list_all(Source.RELEASES, _DEPLOYMENTS, decode_kuberik)))


async def _fetch_rights(
    client: Writer, installation: Installation, *, is_namespaced: bool
) -> tuple[RightAnswer, ...]:
    """Return which needed rights the first operator has, in the namespace or in the cluster.

    Raises OperatorError.
    """
    namespace = installation.namespace
    caller = await _fetch_caller(client)
    prefix = f"{_ACCOUNTS}:{namespace}:"
    accounts = [
        (
            operator.namespace or namespace,
            operator.account,
            list_arguments(operator),
            (namespace,) if operator.namespace else list_watched(operator, namespace),
        )
        for operator in list_acting(installation)
    ]
    if not accounts and caller.startswith(prefix) and caller.endswith(_PROGRAM):
        # The operator's own account may read no Deployments: flags are not known then.
        accounts = [(namespace, caller.removeprefix(prefix), (), (namespace,))]
    answers: list[RightAnswer] = []
    for home, account, arguments, watched in accounts[:1]:
        is_self = caller == f"{_ACCOUNTS}:{home}:{account}"
        reader = _RightsReader(client, home, account, is_self=is_self)
        needs = RightNeeds(
            nodes=reads_nodes(installation),
            secrets=reads_secrets(installation),
            cluster=reads_cluster(installation),
            inventory=reads_inventory(installation),
        )
        for right in list_rights(arguments, home, needs):
            if right.is_namespaced is is_namespaced:
                is_single = right.is_of_process or not is_namespaced
                places = (home,) if is_single else watched[:_MOST_NAMESPACES]
                answers += [await reader.fetch(right, place) for place in places]
    return tuple(answers)


async def _fetch_caller(client: Writer) -> str:
    """Return the caller's name at the API server, empty where it does not say."""
    try:
        return decode_username(await client.create(SELF_REVIEWS, "", _body(SELF_REVIEWS)))
    except ApiError:  # before 1.28
        return ""


@dataclass(frozen=True, slots=True)
class _RightsReader:
    client: Writer
    home: str
    account: str
    is_self: bool = field(kw_only=True)

    async def fetch(self, right: Right, namespace: str) -> RightAnswer:
        return RightAnswer(
            account=self.account,
            namespace="" if namespace == self.home else namespace,
            right=right,
            is_granted=await self._is_granted(right, namespace),
        )

    async def _is_granted(self, right: Right, namespace: str) -> bool:
        client, home = self.client, self.home
        spec: JsonObject = {"resourceAttributes": _render_attributes(namespace, right)}
        if self.is_self:
            return await _review(client, SELF_ACCESS_REVIEWS, "", spec)
        spec["user"] = f"{_ACCOUNTS}:{home}:{self.account}"
        spec["groups"] = [f"{_ACCOUNTS}s", f"{_ACCOUNTS}s:{home}", "system:authenticated"]
        try:
            return await _review(client, ACCESS_REVIEWS, "", spec)
        except Denied:
            if not right.is_namespaced:
                raise
        return await _review(client, LOCAL_ACCESS_REVIEWS, namespace, spec)


async def _review(client: Writer, kind: Resource, namespace: str, spec: JsonObject) -> bool:
    body = {**_body(kind), "spec": spec}
    if namespace:
        body["metadata"] = {"namespace": namespace}
    return decode_allowed(kind.kind, await client.create(kind, namespace, body))


def _body(kind: Resource) -> JsonObject:
    return {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind}


def _render_attributes(namespace: str, right: Right) -> JsonObject:
    return {
        "namespace": namespace if right.is_namespaced else "",
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "name": right.name,
    }


async def _try_webhooks(client: DryRunner, installation: Installation) -> tuple[ReachAnswer, ...]:
    """Return the answers to requests that the webhooks of this namespace review.

    Raises OperatorError where none of them is allowed.
    """
    answers: list[ReachAnswer] = []
    denials: list[ApiError] = []
    for attempt in (_try_budget, _try_scale, _try_eviction):
        try:
            answers += await attempt(client, installation)
        except (Denied, NotFound) as error:
            denials.append(error)
    if denials and not answers:
        raise denials[0]
    return tuple(answers)


async def _try_budget(client: DryRunner, installation: Installation) -> list[ReachAnswer]:
    """Create a budget that the webhook must refuse: only a webhook that was called does."""
    if BUDGET_PATH not in {hook.path for hook in installation.own_hooks}:
        return []
    creation = client.try_create(ZONE_BUDGETS, installation.namespace, _BAD_BUDGET)
    answer = ReachAnswer(
        request="create a budget that cannot be obeyed", paths=(BUDGET_PATH,), must_be_refused=True
    )
    return [await _answer(answer, creation)]


async def _try_scale(client: DryRunner, installation: Installation) -> list[ReachAnswer]:
    """Scale a member of a group down by one, whatever the webhooks answer."""
    registered = {hook.path for hook in installation.own_hooks}
    paths = tuple(
        path for path in (NO_DOWNSCALE_PATH, PREPARE_DOWNSCALE_PATH) if path in registered
    )
    sts = next((member.sts for member in installation.members if member.sts.replicas > 0), None)
    if not paths or sts is None:
        return []
    patch: JsonObject = {"spec": {"replicas": sts.replicas - 1}}
    request = f"scale {sts.name} down to {sts.replicas - 1}"
    scaling = client.try_patch(STATEFULSETS, sts.namespace, sts.name, patch, "scale")
    return [await _answer(ReachAnswer(request=request, paths=paths), scaling)]


async def _try_eviction(client: DryRunner, installation: Installation) -> list[ReachAnswer]:
    """Evict a pod of a member, whatever the webhook answers."""
    names = {pod.name for pod in installation.pods}
    firsts = (f"{member.sts.name}-{member.sts.first_ordinal}" for member in installation.members)
    pod = next((name for name in firsts if name in names), "")
    if not pod or EVICTION_PATH not in {hook.path for hook in installation.own_hooks}:
        return []
    namespace = installation.namespace
    eviction: JsonObject = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        # A second time: nothing that overlooks the query may take a pod.
        "deleteOptions": {"dryRun": ["All"]},
    }
    evicting = client.try_create(PODS, namespace, eviction, pod, "eviction")
    return [await _answer(ReachAnswer(request=f"evict {pod}", paths=(EVICTION_PATH,)), evicting)]


async def _answer(dry_run: ReachAnswer, request: Awaitable[None]) -> ReachAnswer:
    """Return the outcome of a request. Raises OperatorError where it says nothing of webhooks."""
    try:
        await request
    except (Refused, Conflict, TooManyRequests) as error:
        return msgspec.structs.replace(dry_run, error=f"{error}")
    except UnknownOutcome as error:
        return msgspec.structs.replace(dry_run, error=f"{error}", is_answered=False)
    return dry_run


async def _try_pods(
    client: DryRunner, namespace: str, raw_sets: Sequence[bytes]
) -> tuple[PodTrial, ...]:
    """Return the answers to the creation of a pod of each of these StatefulSets.

    Raises OperatorError where that is not allowed.
    """
    return tuple([await _try_pod(client, namespace, raw) for raw in raw_sets[:_MOST_SETS]])


async def _try_pod(client: DryRunner, namespace: str, raw: bytes) -> PodTrial:
    name, body = decode_pod_to_try(raw)
    try:
        await client.try_create(PODS, namespace, body)
    except Refused as error:
        return PodTrial(set_name=name, error=f"{error}")
    return PodTrial(set_name=name)


async def probe_paths(
    client: PodProxy, namespace: str, questions: Sequence[PathQuestion]
) -> tuple[PathAnswer, ...]:
    """Return the answer to each question. Raises Denied where pods may not be called."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def probe(question: PathQuestion) -> PathAnswer:
        if not question.pod:
            return PathAnswer(question=question, problem="no pod is ready")
        async with turns:
            return await _probe(client, namespace, question)

    return tuple(await gather_all(map(probe, questions)))


async def _probe(client: PodProxy, namespace: str, question: PathQuestion) -> PathAnswer:
    is_lost = False
    try:
        async with asyncio.timeout(_LIMIT.total_seconds()):
            status = await client.probe_pod(namespace, question.pod, question.target)
        return PathAnswer(question=question, status=status)
    except TimeoutError:
        is_lost, problem = True, f"no answer within {format_duration(_LIMIT)}"
    except Denied as error:
        right = f"get pods/proxy in namespace {namespace}"
        raise Denied(f"{error}", call=right, status=error.status) from error
    except ApiError as error:
        # With a status it is the pod that was not reached, else the API server.
        is_lost = isinstance(error, Unreachable) and error.status > 0
        problem = error.problem
    return PathAnswer(question=question, problem=problem, is_lost=is_lost)


def _choose_secret(arguments: Sequence[str]) -> str:
    if not is_on(arguments, SELF_SIGNED_FLAG, default=True):
        return ""
    return find_value(arguments, SECRET_FLAG) or DEFAULT_SECRET


async def _fetch_last(
    reading: "_Reading", installation: Installation, raw_sets: Sequence[bytes]
) -> Installation:
    """Return the snapshot with the answers to requests that depend on the rest."""
    client = reading.client
    rights: list[RightAnswer] = []
    reach: tuple[ReachAnswer, ...] = ()
    trials: tuple[PodTrial, ...] = ()
    paths: tuple[PathAnswer, ...] = ()
    for source, is_namespaced in ((Source.RIGHTS, True), (Source.CLUSTER_RIGHTS, False)):
        with reading.recording(source):
            rights += await _fetch_rights(client, installation, is_namespaced=is_namespaced)
    with reading.recording(Source.REACH):
        reach = await _try_webhooks(client, installation)
    with reading.recording(Source.POD_TRIALS):
        trials = await _try_pods(client, installation.namespace, raw_sets)
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
        unneeded=frozenset(reading.unneeded),
    )


@dataclass(slots=True)
class _Reading:
    """The reads of one snapshot, and what could not be read."""

    client: ExaminingClient
    namespace: str
    unread: dict[Source, str] = field(default_factory=dict)
    unneeded: set[Source] = field(default_factory=set)
    unknown: set[Resource] = field(default_factory=set)
    """Kinds that the API server does not know."""

    @contextmanager
    def recording(self, source: Source) -> Iterator[None]:
        try:
            yield
        except OperatorError as error:
            self.record(source, error)

    def record(self, source: Source, error: OperatorError) -> None:
        denied = isinstance(error, Denied) and error.call
        self.unread[source] = f"may not {denied}" if denied else f"{error}"

    def spare(self, source: Source) -> None:
        """Record that it does not matter whether a part was read: most users need no right to."""
        if self.unread.pop(source, None) is not None:
            self.unneeded.add(source)

    async def list_all(
        self, source: Source, resource: Resource, decode: Decoder[Decoded]
    ) -> tuple[Decoded, ...]:
        """Return all objects of a kind; empty where the cluster does not know the kind."""
        objects: list[Decoded] = []
        namespace = self.namespace if resource.is_namespaced else ""
        with self.recording(source):
            try:
                async for page in iterate_pages(self.client, resource, namespace):
                    objects += [decode(raw) for raw in page.items]
            except NotFound:
                self.unknown.add(resource)
        return tuple(objects)

    async def fetch_namespace_labels(self) -> dict[str, str] | None:
        """Return the labels of the namespace, None where it may not be read.

        The first read: raises OperatorError where the API server cannot be reached.
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
        """Return the operators of the namespace, or those elsewhere that watch it."""
        operators = await self.list_all(Source.DEPLOYMENTS, DEPLOYMENTS, decode_operator)
        own = [replace(operator, namespace="") for operator in operators if operator is not None]
        if own or Source.DEPLOYMENTS in self.unread:
            return tuple(own)
        everywhere = await self.list_all(Source.DEPLOYMENTS, _DEPLOYMENTS, decode_operator)
        self.unread.pop(Source.DEPLOYMENTS, None)  # most people may not list those of others
        return tuple(
            operator
            for operator in everywhere
            if operator is not None and watches(operator, self.namespace)
        )

    async def count_endpoints(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for service, ready in await self.list_all(
            Source.ENDPOINTS, ENDPOINT_SLICES, decode_endpoints
        ):
            counts[service] = counts.get(service, 0) + ready
        return counts

    async def fetch_lease(self, name: str) -> HeldLease | None:
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
        """Return whether MultiAZRollouts are served, and if not, what is served in their place.

        Administrators alone may read their definition.
        """
        if MULTI_AZ_ROLLOUTS not in self.unknown:
            return PolicyKind()
        try:
            versions = decode_served_versions(await self._fetch_definition(MULTI_AZ_ROLLOUTS))
        except OperatorError:
            versions = ()
        return PolicyKind(is_served=False, versions=versions)

    async def map_missing(self, used: Iterable[Resource]) -> dict[str, tuple[str, ...]]:
        """Return the fields that the definitions of these kinds lack, by kind."""
        missing: dict[str, tuple[str, ...]] = {}
        for resource in used:
            try:
                raw = await self._fetch_definition(resource)
                found = decode_missing_fields(raw, resource.version, _DEFINED[resource.kind])
            except NotFound:
                continue
            except OperatorError as error:
                self.record(Source.DEFINITIONS, error)
                continue
            if found:
                missing[resource.kind] = found
        if missing:
            self.unread.pop(Source.DEFINITIONS, None)  # what was read is to be shown
        return missing

    async def _fetch_definition(self, resource: Resource) -> bytes:
        return await self.client.fetch(DEFINITIONS, "", f"{resource.plural}.{resource.group}")

    async def list_hooks(self, secret: str) -> tuple[HookRegistration, ...]:
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
        if not secret:
            return b""
        try:
            return decode_certificate(await self.client.fetch(SECRETS, self.namespace, secret))
        except OperatorError:
            return b""
