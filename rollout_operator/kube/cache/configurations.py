"""The cache of webhook configurations: all of a kind, or one of a name."""

from typing import TypeAlias

from rollout_operator.kube.cache.store import Store
from rollout_operator.model.objects import Unreadable, WebhookConfiguration

Configuration: TypeAlias = WebhookConfiguration | Unreadable


class ConfigurationStore(Store[Configuration]):
    """Webhook configurations. A cluster has some dozens of them: they are looked through."""
