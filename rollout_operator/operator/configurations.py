"""The webhook configurations of the cluster, followed once for all namespaces of the process.

They are of the cluster, and a role may forbid them: nothing waits for them.
"""

from collections.abc import Callable, Sequence

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, ApiClient, Resource
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.store import Configuration, ConfigurationStore
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.decode.webhooks import webhook_decoder
from rollout_operator.model.objects import WebhookConfiguration, list_failure_policies
from rollout_operator.operator.process import Process
from rollout_operator.pki.bundle import is_ours

OnConfiguration = Callable[[Configuration | None, Configuration | None], None]


class Configurations:
    """Webhook configurations of both kinds, as far as they may be read."""

    def __init__(self, process: Process, names: Sequence[str]) -> None:
        """Without names all configurations are followed."""
        self._process = process
        self._names = tuple(names) or ("",)
        self._stores: list[ConfigurationStore] = []

    def list_all(self) -> list[Configuration]:
        """Return the cached configurations."""
        return [configuration for store in self._stores for configuration in store.list_all()]

    def collect_kinds(self, path: str) -> set[str]:
        """Return the kinds of our configurations that call this path."""
        return {
            configuration.kind
            for configuration in self.list_all()
            if isinstance(configuration, WebhookConfiguration)
            and is_ours(configuration, self._process.namespace)
            for hook in configuration.webhooks
            if hook.path == path
        }

    def follow(self, tasks: TaskStack, on_change: OnConfiguration) -> None:
        """Begin to follow them, and call back with each change."""
        process = self._process
        client = process.open("following configurations", Priority.LIST)
        for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            for name in self._names:
                informer = self._make_informer(client, resource, name)
                informer.on_change(on_change)
                tasks.start(f"{resource.plural} informer {name}".strip(), informer.run())
        process.metrics.failure_policies(
            lambda: list_failure_policies(self.list_all(), process.namespace)
        )

    def _make_informer(
        self, client: ApiClient, resource: Resource, name: str
    ) -> Informer[Configuration]:
        store = ConfigurationStore()
        self._stores.append(store)
        collection = Collection(
            resource=resource,
            namespace="",
            decode=webhook_decoder(resource.kind),
            store=store,
            field_selector=f"metadata.name={name}" if name else "",
        )
        process = self._process
        return Informer(client, collection, process.metrics, process.clock, process.rng)
