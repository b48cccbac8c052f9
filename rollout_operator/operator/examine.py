"""Read one installation for `rollout-operator doctor`; rights to read are enough for most of it.

A part that may not be read is recorded in the snapshot and fails nothing. Rights of the operator's
ServiceAccount are read as an administrator, a user of the namespace or the account itself may: the
first way that is allowed is taken. Dry runs pass admission and are not stored. The findings are
decided in `planning`.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from rollout_operator.gates import model as gates
from rollout_operator.gates.plan import NO_KIND, find_name, find_problem
from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import (
    ACCESS_REVIEWS,
    DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    LOCAL_ACCESS_REVIEWS,
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    ROLLOUT_HEALTH_CHECKS,
    SECRETS,
    SELF_ACCESS_REVIEWS,
    SELF_REVIEWS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    DryRunner,
    JsonObject,
    Reader,
    Resource,
    Writer,
    iterate_pages,
)
from rollout_operator.kube.election import decode_lease
from rollout_operator.model.decode import custom
from rollout_operator.model.decode.custom import decode_budget, decode_watched_policy
from rollout_operator.model.decode.installation import (
    decode_allowed,
    decode_certificate,
    decode_hooks,
    decode_missing_fields,
    decode_namespace_labels,
    decode_operator,
    decode_served_versions,
    decode_username,
    decode_zone_set,
)
from rollout_operator.model.diagnosis import (
    BUDGET_PATH,
    EVICTION_PATH,
    HEALTH_CHECK_PATH,
    KUBERIK,
    NO_DOWNSCALE_PATH,
    OPERATOR,
    POLICIES_FLAG,
    PREPARE_DOWNSCALE_PATH,
    RELEASES_FLAG,
    Diagnosis,
    HookRegistration,
    Installation,
    OperatorDeployment,
    PodTrial,
    PolicyKind,
    ReachAnswer,
    Right,
    RightAnswer,
    Source,
)
from rollout_operator.model.lease import Lease
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    NotFound,
    OperatorError,
    Refused,
    TooManyRequests,
    UnknownOutcome,
)
from rollout_operator.operator.inspect import Decoded, Decoder, Lister, ReleaseReader
from rollout_operator.pki.certificates import read_bundle
from rollout_operator.planning.describe_policies import find_disobedience
from rollout_operator.planning.doctor import diagnose
from rollout_operator.planning.rights import (
    DEFAULT_SECRET,
    SECRET_FLAG,
    SELF_SIGNED_FLAG,
    TLS_FLAG,
    list_needs,
    list_rights,
)
from rollout_operator.releases.model import decode as releases
from rollout_operator.releases.model.plan import OF_FLUX, gather_releases
from rollout_operator.releases.planning.describe import gather_facts

_DEPLOYMENTS: Final = replace(DEPLOYMENTS, is_namespaced=False)
_OF_RELEASES: Final = (
    *(kinds.ROLLOUTS, kinds.ROLLOUT_GATES, kinds.HEALTH_CHECKS),
    *(kinds.ROLLOUT_SCHEDULES, kinds.CLUSTER_ROLLOUT_SCHEDULES),
)
_DEFINED: Final = {**custom.DEFINED, **releases.DEFINED, **gates.DEFINED}
_OTHERS: Final = (
    *((resource,) for resource in _OF_RELEASES[1:]),
    *(kinds.IMAGE_POLICIES, kinds.IMAGE_REPOSITORIES),
    *(kinds.OCI_REPOSITORIES, kinds.KUSTOMIZATIONS),
)
# Of an operator that watches dozens, those that are checked say enough.
_MOST_NAMESPACES: Final = 8
_ACCOUNTS: Final = "system:serviceaccount"
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
# Checks that are left out where their ground could not be read.
_RESTS_ON: Final = {
    Source.RIGHTS: Source.DEPLOYMENTS,
    Source.CLUSTER_RIGHTS: Source.DEPLOYMENTS,
    Source.REACH: Source.WEBHOOKS,
    Source.POD_TRIALS: Source.STATEFULSETS,
}
# Credentials that the API server does not take at all.
_UNAUTHORIZED: Final = 401


class ExaminingClient(Reader, Writer, DryRunner, Protocol):
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
        others = dict.fromkeys(set(Source) - {Source.NAMESPACE}, absent)
        return Installation(namespace=namespace, now=now, unread=others)
    installation = Installation(
        namespace=namespace,
        now=client.server_time() or now,
        namespace_labels=labels,
        operators=await reading.list_operators(),
        sets=await reading.list_all(Source.STATEFULSETS, STATEFULSETS, decode_zone_set),
        zone_budgets=await reading.list_all(Source.ZONE_BUDGETS, ZONE_BUDGETS, decode_budget),
    )
    acting = installation.acting
    policies = await reading.list_all(Source.POLICIES, MULTI_AZ_ROLLOUTS, decode_watched_policy)
    if not installation.are_any_on(POLICIES_FLAG):
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
        lease=None if acting else await reading.fetch_lease(),
        hooks=await reading.list_hooks(acting[:1]),
        missing_secret=reading.missing_secret,
    )
    if installation.gated:
        installation = replace(installation, broken_gates=await reading.map_gates(installation))
    installation = await _add_releases(reading, installation)
    missing = await reading.map_missing(_list_used(installation))
    installation = replace(installation, missing_fields=missing)
    return await _add_answers(reading, installation)


def _list_used(installation: Installation) -> Iterator[Resource]:
    """Yield the kinds that something here depends on and the API server serves."""
    if installation.zone_budgets:
        yield ZONE_BUDGETS
    if installation.are_any_on(POLICIES_FLAG) and installation.policy_kind.is_served:
        yield MULTI_AZ_ROLLOUTS
    if installation.gated or any(hook.path == HEALTH_CHECK_PATH for hook in installation.hooks):
        yield ROLLOUT_HEALTH_CHECKS
    if installation.are_any_on(RELEASES_FLAG):
        absent = installation.releases.absent
        yield from (resource for resource in _OF_RELEASES if resource.kind not in absent)


async def _add_releases(reading: "_Reading", installation: Installation) -> Installation:
    """Return the installation with its releases, unchanged where there are none."""
    reader = ReleaseReader(Lister(reading.client, None), reading.namespace)
    objects = await reader.list_all((kinds.ROLLOUTS,))
    if not objects and not installation.are_any_on(RELEASES_FLAG):
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
    running = await reading.list_everywhere(KUBERIK)
    return replace(
        installation,
        releases=gather_facts(gather_releases(objects, reader.absent)),
        kuberik=tuple(f"{each.namespace}/{each.name}" for each in running if each.replicas),
    )


async def _add_answers(reading: "_Reading", installation: Installation) -> Installation:
    """Return the snapshot with the answers to requests that depend on the rest."""
    rights: list[RightAnswer] = []
    reach: Sequence[ReachAnswer] = ()
    trials: Sequence[PodTrial] = ()
    for source, is_namespaced in ((Source.RIGHTS, True), (Source.CLUSTER_RIGHTS, False)):
        with reading.recording(source):
            rights += await _fetch_rights(reading.client, installation, is_namespaced=is_namespaced)
    with reading.recording(Source.REACH):
        reach = await _try_webhooks(reading.client, installation)
    with reading.recording(Source.POD_TRIALS):
        trials = [
            await _try_pod(reading.client, each.sts.namespace, each.sts.name, each.pod)
            for each in installation.members[:_MOST_SETS]
        ]
    for source, ground in _RESTS_ON.items():
        # The operator's own account is known without its Deployment.
        if ground in reading.unread and not (ground is Source.DEPLOYMENTS and rights):
            reading.unread.setdefault(source, reading.unread[ground])
    return replace(
        installation,
        rights=tuple(rights),
        reach=tuple(reach),
        pod_trials=tuple(trials),
        unread=dict(reading.unread),
        unneeded=frozenset(reading.unneeded),
    )


async def _fetch_rights(
    client: Writer, installation: Installation, *, is_namespaced: bool
) -> Sequence[RightAnswer]:
    """Return which needed rights the first operator has, in the namespace or in the cluster.

    Raises OperatorError.
    """
    namespace = installation.namespace
    caller = await _fetch_caller(client)
    own, _, account = caller.rpartition(":")
    operators = installation.acting
    if not operators and own == f"{_ACCOUNTS}:{namespace}" and account.endswith(OPERATOR):
        # The operator's own account may read no Deployments: flags are not known then.
        operators = (OperatorDeployment(name=account, account=account),)
    answers: list[RightAnswer] = []
    for operator in operators[:1]:
        home = operator.namespace or namespace
        user = f"{_ACCOUNTS}:{home}:{operator.account}"
        watched = (namespace,) if operator.namespace else operator.list_watched(namespace)
        for right in list_rights(operator, home, list_needs(installation)):
            if right.is_namespaced is not is_namespaced:
                continue
            is_single = right.is_of_process or not is_namespaced
            for place in (home,) if is_single else watched[:_MOST_NAMESPACES]:
                attributes = _render_attributes(right, place)
                is_granted = await _review(client, "" if user == caller else user, attributes)
                answers.append(
                    RightAnswer(
                        account=operator.account,
                        namespace="" if place == home else place,
                        right=right,
                        is_granted=is_granted,
                    )
                )
    return answers


async def _fetch_caller(client: Writer) -> str:
    """Return the caller's name at the API server, empty where it does not say."""
    try:
        return decode_username(await client.create(SELF_REVIEWS, "", _render(SELF_REVIEWS)))
    except ApiError:  # before 1.28
        return ""


def _render_attributes(right: Right, namespace: str) -> dict[str, str]:
    resource, _, subresource = right.resource.partition("/")
    return {
        "namespace": namespace if right.is_namespaced else "",
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
    }


async def _review(client: Writer, user: str, attributes: Mapping[str, str]) -> bool:
    """Return whether a ServiceAccount, or else the caller, has a right. Raises OperatorError."""
    namespace = attributes["namespace"]
    spec: JsonObject = {"resourceAttributes": dict(attributes)}

    async def ask(kind: Resource, place: str) -> bool:
        head = {"metadata": {"namespace": place}} if place else {}
        answer = await client.create(kind, place, {**_render(kind), **head, "spec": spec})
        return decode_allowed(kind.kind, answer)

    if not user:
        return await ask(SELF_ACCESS_REVIEWS, "")
    accounts = user.rpartition(":")[0].replace(_ACCOUNTS, f"{_ACCOUNTS}s")
    spec |= {"user": user, "groups": [f"{_ACCOUNTS}s", accounts, "system:authenticated"]}
    try:
        return await ask(ACCESS_REVIEWS, "")
    except Denied:
        if not namespace:
            raise
    return await ask(LOCAL_ACCESS_REVIEWS, namespace)


def _render(kind: Resource) -> JsonObject:
    return {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind}


async def _try_webhooks(client: DryRunner, installation: Installation) -> Sequence[ReachAnswer]:
    """Return the answers to requests that the webhooks of this namespace review.

    Raises OperatorError where none of them is allowed.
    """
    answers: list[ReachAnswer] = []
    denials: list[ApiError] = []
    for answer, send in _list_dry_runs(client, installation):
        try:
            await send()
        except (Denied, NotFound) as error:
            denials.append(error)
            continue
        except (Refused, Conflict, TooManyRequests) as error:
            answer = replace(answer, error=f"{error}")
        except UnknownOutcome as error:
            answer = replace(answer, error=f"{error}", is_answered=False)
        answers.append(answer)
    if denials and not answers:
        raise denials[0]
    return answers


def _list_dry_runs(
    client: DryRunner, installation: Installation
) -> Iterator[tuple[ReachAnswer, Callable[[], Awaitable[None]]]]:
    """Yield the request of each dry run, with how it is sent."""
    namespace, registered = installation.namespace, {hook.path for hook in installation.own_hooks}
    if BUDGET_PATH in registered:
        request = "create a budget that cannot be obeyed"
        yield (
            ReachAnswer(request=request, paths=(BUDGET_PATH,), must_be_refused=True),
            partial(client.try_write, "create", ZONE_BUDGETS, namespace, _BAD_BUDGET),
        )
    sts = next((each.sts for each in installation.members if each.sts.replicas > 0), None)
    if sts is None:
        return
    scaling = [path for path in (NO_DOWNSCALE_PATH, PREPARE_DOWNSCALE_PATH) if path in registered]
    if scaling:
        patch: JsonObject = {"spec": {"replicas": sts.replicas - 1}}
        request = f"scale {sts.name} down to {sts.replicas - 1}"
        yield (
            ReachAnswer(request=request, paths=tuple(scaling)),
            partial(client.try_write, "patch", STATEFULSETS, namespace, patch, sts.name, "scale"),
        )
    if EVICTION_PATH in registered:
        pod = f"{sts.name}-{sts.first_ordinal}"
        eviction: JsonObject = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            # A second time: nothing that overlooks the query may take a pod.
            "deleteOptions": {"dryRun": ["All"]},
        }
        yield (
            ReachAnswer(request=f"evict {pod}", paths=(EVICTION_PATH,)),
            partial(client.try_write, "create", PODS, namespace, eviction, pod, "eviction"),
        )


async def _try_pod(client: DryRunner, namespace: str, name: str, pod: JsonObject) -> PodTrial:
    """Return the answer to the creation of a pod. Raises OperatorError if it is not allowed."""
    try:
        await client.try_write("create", PODS, namespace, pod)
    except Refused as error:
        return PodTrial(set_name=name, error=f"{error}")
    return PodTrial(set_name=name)


@dataclass(slots=True)
class _Reading:
    """The reads of one snapshot, and what could not be read."""

    client: ExaminingClient
    namespace: str
    unread: dict[Source, str] = field(default_factory=dict)
    unneeded: set[Source] = field(default_factory=set)
    unknown: set[Resource] = field(default_factory=set)
    """Kinds that the API server does not know."""
    missing_secret: str = ""

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
        decode = partial(decode_operator, program=OPERATOR)
        operators = await self.list_all(Source.DEPLOYMENTS, DEPLOYMENTS, decode)
        own = [replace(operator, namespace="") for operator in operators if operator is not None]
        if own or Source.DEPLOYMENTS in self.unread:
            return tuple(own)
        return tuple(
            operator
            for operator in await self.list_everywhere(OPERATOR)
            if operator.watches(self.namespace)
        )

    async def list_everywhere(self, program: str) -> list[OperatorDeployment]:
        """Return Deployments of the cluster; where they may not be listed none, and no remark."""
        others = _Reading(self.client, "")
        decode = partial(decode_operator, program=program)
        found = await others.list_all(Source.DEPLOYMENTS, _DEPLOYMENTS, decode)
        return [operator for operator in found if operator is not None]

    async def fetch_lease(self) -> Lease | None:
        with self.recording(Source.LEASE):
            try:
                return decode_lease(await self.client.fetch(LEASES, self.namespace, OPERATOR))
            except NotFound:
                pass
        return None

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

    async def map_gates(self, installation: Installation) -> dict[str, str]:
        """Return by StatefulSet why the RolloutHealthCheck that it names cannot be obeyed."""
        kind = ROLLOUT_HEALTH_CHECKS
        found = await self.list_all(Source.GATES, kind, gates.watch_health_check)
        checks = {each.name: gates.read_watched(each) for each in found}
        absence = NO_KIND if kind in self.unknown else ""
        problems = {
            sts.name: find_problem(sts, checks.get(find_name(sts)), absence)
            for sts in (each.sts for each in installation.gated)
        }
        return {name: problem for name, problem in problems.items() if problem}

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

    async def list_hooks(
        self, operators: Sequence[OperatorDeployment]
    ) -> tuple[HookRegistration, ...]:
        """Return webhooks with what their bundles say of the certificate that is served."""
        certificate = await self._fetch_certificate(operators)
        configurations = [
            await self.list_all(Source.WEBHOOKS, resource, partial(decode_hooks, resource.kind))
            for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        ]
        hooks: list[HookRegistration] = []
        for found in configurations:
            for hook, bundle in (each for one in found for each in one):
                # The certificates of other operators are not known.
                served = certificate if hook.service_namespace == self.namespace else b""
                facts = read_bundle(bundle, served) if bundle else None
                hooks.append(replace(hook, bundle=facts))
        return tuple(hooks)

    async def _fetch_certificate(self, operators: Sequence[OperatorDeployment]) -> bytes:
        """Return the certificate of the first operator; empty where it may not be read."""
        secret, is_served = DEFAULT_SECRET, False
        for operator in operators:
            if not operator.is_on(SELF_SIGNED_FLAG, default=True):
                return b""
            secret = operator.find(SECRET_FLAG) or secret
            # That of an operator elsewhere lies there; a name from a variable is not known.
            is_served = operator.is_on(TLS_FLAG) and not operator.namespace and "$(" not in secret
        try:
            return decode_certificate(await self.client.fetch(SECRETS, self.namespace, secret))
        except NotFound:
            self.missing_secret = secret if is_served else ""
            return b""
        except OperatorError:
            return b""
