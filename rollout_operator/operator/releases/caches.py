"""Composition of the caches for releases in one namespace."""

from collections.abc import Callable, Sequence
from functools import partial

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.releases.caches import ReleaseCaches
from rollout_operator.controllers.releases.tags import list_tags
from rollout_operator.kube import release_kinds as kinds
from rollout_operator.kube.api import ApiClient, Resource
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.followed import FollowedKind, KindSource
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.store import WatchedStore
from rollout_operator.model.decode.releases.flux import (
    decode_image_policy,
    decode_image_repository,
    decode_kustomization,
    decode_oci_repository,
)
from rollout_operator.model.decode.releases.gate import decode_gate
from rollout_operator.model.decode.releases.health import decode_health_check
from rollout_operator.model.decode.releases.rollout import decode_rollout
from rollout_operator.model.decode.releases.schedule import decode_schedule
from rollout_operator.model.decode.releases.watched import watch_as
from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.objects import AnyWatched, WatchedObject
from rollout_operator.operator.context import Context


def build_caches(context: Context, client: ApiClient) -> ReleaseCaches:
    """Return the caches of all kinds; this client fills them once `follow` is called."""
    build = partial(follow_kind, context, client)
    return ReleaseCaches(
        rollouts=build([kinds.ROLLOUTS], watch_as(decode_rollout)),
        gates=build([kinds.ROLLOUT_GATES], watch_as(decode_gate)),
        checks=build([kinds.HEALTH_CHECKS], watch_as(decode_health_check)),
        policies=build(kinds.IMAGE_POLICIES, watch_as(decode_image_policy)),
        image_repositories=build(kinds.IMAGE_REPOSITORIES, watch_as(decode_image_repository)),
        oci_repositories=build(kinds.OCI_REPOSITORIES, watch_as(decode_oci_repository)),
        kustomizations=build(kinds.KUSTOMIZATIONS, watch_as(decode_kustomization)),
        schedules=build(
            [kinds.ROLLOUT_SCHEDULES],
            watch_as(partial(decode_schedule, kinds.ROLLOUT_SCHEDULES.kind)),
        ),
    )


def follow_kind(
    context: Context,
    client: ApiClient,
    resources: Sequence[Resource],
    decode: Callable[[JsonBytes], WatchedObject],
) -> FollowedKind:
    """Return one kind, followed in the first of its versions that the cluster serves."""
    store = WatchedStore(list_tags)
    namespace = context.namespace if resources[0].is_namespaced else ""

    def make_informer(resource: Resource) -> Informer[AnyWatched]:
        collection: Collection[AnyWatched] = Collection(
            resource=resource, namespace=namespace, decode=decode, store=store
        )
        return context.make_informer(client, collection)

    source = KindSource(
        resources=resources, namespace=namespace, client=client, make_informer=make_informer
    )
    return FollowedKind(source, store)


def follow(caches: ReleaseCaches, context: Context, tasks: TaskStack) -> None:
    """Begin to follow all kinds."""
    for kind in caches.list_kinds():
        tasks.start(f"{kind.kind} informer", kind.run(context.clock))
