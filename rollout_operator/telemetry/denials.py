"""Who is refused by the webhooks: one counter, by hook and user.

Decides how many names it shows. Reviews are hostile input: who reaches the port may send any name,
so that the first names have series of their own, and all later ones have one together.
"""

from typing import Final

from prometheus_client import CollectorRegistry

from rollout_operator.telemetry.families import Counter

MAX_USERS: Final = 64
OTHER: Final = "other"


class Denials:
    """Counts refusals of all hooks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "rollout_operator_webhook_denials_total",
            "Admission reviews that were refused, or that failed, by the user who sent the "
            "request; user is other beyond the first users.",
            ("hook", "user"),
            registry=registry,
        )
        self._users: set[str] = set()
        self._children: dict[tuple[str, str], Counter] = {}

    def begin(self, hook: str) -> None:
        """Make the series of a hook exist that does not depend on a user. Counts nothing."""
        self._find(hook, OTHER)

    def count(self, hook: str, user: str) -> None:
        """Count one refusal; without a user it is one of the others."""
        self._find(hook, self._choose_label(user)).inc()

    def _find(self, hook: str, user: str) -> Counter:
        child = self._children.get((hook, user))
        if child is None:
            child = self._children[hook, user] = self._counter.labels(hook, user)
        return child

    def _choose_label(self, user: str) -> str:
        if user in self._users:
            return user
        if not user or len(self._users) >= MAX_USERS:
            return OTHER
        self._users.add(user)
        return user
