"""The namespaces of one process: an engine for each of them, and one description of all.

Decides what each namespace has for itself. One namespace alone has the metrics and the health of
the process; several have their own, so that each says what it lacks.
"""

from collections.abc import Coroutine, Mapping
from dataclasses import replace

from rollout_operator.config.environment import is_label
from rollout_operator.config.flags import Config
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.description import Description
from rollout_operator.operator.budget_status import BudgetReports
from rollout_operator.operator.discovery import Discovery
from rollout_operator.operator.engine import Engine, ReviewSource
from rollout_operator.operator.fleet import Fleet
from rollout_operator.operator.process import Process, Telemetry
from rollout_operator.operator.unobeyed import UnobeyedPolicies
from rollout_operator.planning.description.namespaces import merge_descriptions
from rollout_operator.telemetry.logs import bind_keys
from rollout_operator.web.reviews.reviewed import ReviewedNamespaces


class Namespaces:
    """The watched namespaces."""

    def __init__(
        self, config: Config, process: Process, telemetry: Telemetry, reviews: ReviewSource | None
    ) -> None:
        """`reviews` makes the reviews of each namespace, where webhooks are switched on."""
        self._config = config
        self._process = process
        self._telemetry = telemetry
        self._reviews = reviews
        self.fleet = Fleet(process, is_several=config.watches_several)
        self._discovery: Discovery | None = None
        self._reviewed: ReviewedNamespaces | None = None
        for namespace in config.namespaces or (config.namespace,):
            self.add(namespace)

    def discover(self) -> Mapping[str, Coroutine[None, None, None]]:
        """Return the task that finds all namespaces of the cluster, where all are watched."""
        if not self._config.watches_all:
            return {}
        self._discovery = discovery = Discovery(self._process, self.add)
        self._reviewed = ReviewedNamespaces(
            self._process.open("believing reviews", Priority.LIST),
            self._process.clock,
            begin=self.add,
            is_empty=lambda namespace: self.fleet.engines[namespace].is_empty,
        )
        self.fleet.wait_for(discovery.wait_answered)
        return {"namespaces": discovery.run()}

    async def add_for_review(self, namespace: str) -> None:
        """Watch a namespace of the cluster of whose objects a review is the first sign."""
        discovery, reviewed = self._discovery, self._reviewed
        if discovery is None or reviewed is None or discovery.is_forbidden:
            return
        if is_label(namespace):
            await reviewed.add(namespace)

    def add(self, namespace: str) -> None:
        """Watch a namespace from now on."""
        if namespace in self.fleet.engines:
            return
        if not self._config.watches_several:
            self._add(namespace, self._telemetry)
            return
        with bind_keys(namespace=namespace):
            self._add(namespace, self._telemetry.for_namespace(namespace, self._process.clock))

    async def describe(self) -> Description:
        """Return the description of all its namespaces, for people; at any time."""
        engines = tuple(self.fleet.engines.values())
        if not self._config.watches_several:
            return await engines[0].describe()
        own = Description(
            namespace=self._process.namespace,
            now=self._process.clock.now(),
            operator=self._process.health.describe(
                is_acting=any(engine.is_leading for engine in self.fleet.engines.values())
            ),
        )
        return merge_descriptions(own, [await engine.describe() for engine in engines])

    def _add(self, namespace: str, telemetry: Telemetry) -> None:
        settings = replace(self._config, namespace=namespace)
        engine = Engine(settings, self._process, telemetry)
        if not settings.is_shadow:
            engine.add_feature(BudgetReports)
            if not self._process.drives_policies:
                engine.add_feature(UnobeyedPolicies)
        if self._reviews is not None:
            engine.add_reviews(self._reviews)
        self.fleet.add(engine)
