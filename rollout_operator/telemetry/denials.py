"""Which users the webhooks refuse: one counter, by hook and user.

Decides which names it shows. Reviews are hostile input: a client that reaches the port may send any
name, and as many as it likes. So few names have series of their own, those that were refused most
often of late; all others have one together. A name gets a series by being refused again and again:
a name that is sent once displaces none.
"""

import math
from collections import OrderedDict
from datetime import timedelta
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from rollout_operator.telemetry.families import Counter

MAX_USERS: Final = 64
OTHER: Final = "other"
# After so long a refusal counts half: a name that was refused a thousand times makes room for one
# that is refused now after some hours, and what was refused once within minutes.
HALF_LIFE: Final = timedelta(hours=1)
# Names without series whose refusals are counted; those refused longest ago are forgotten first.
MAX_CANDIDATES: Final = 1024


class _Score(msgspec.Struct):
    """How often a name was refused, each time worth less as time goes by, in half lives."""

    value: float
    at: float

    def read(self, now: float) -> float:
        return self.value * math.exp2(self.at - now)

    def add(self, now: float) -> None:
        self.value, self.at = self.value * math.exp2(self.at - now) + 1, now


class Denials:
    """Counts refusals of all hooks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "rollout_operator_webhook_denials_total",
            "Admission reviews that were refused, or that failed, by the user who sent the "
            "request; user is other beyond those that are refused most often of late.",
            ("hook", "user"),
            registry=registry,
        )
        self._shown: dict[str, _Score] = {}
        self._candidates: OrderedDict[str, _Score] = OrderedDict()
        self._children: dict[tuple[str, str], Counter] = {}

    def begin(self, hook: str) -> None:
        """Make the series of a hook exist that does not depend on a user. Counts nothing."""
        self._get_child(hook, OTHER)

    def count(self, hook: str, user: str, now: timedelta) -> None:
        """Count one refusal, `now` on a clock's `elapsed`; without a user it is of the others."""
        self._get_child(hook, self._choose_label(user, now / HALF_LIFE)).inc()

    def _get_child(self, hook: str, user: str) -> Counter:
        child = self._children.get((hook, user))
        if child is None:
            child = self._children[hook, user] = self._counter.labels(hook, user)
        return child

    def _choose_label(self, user: str, now: float) -> str:
        score = self._shown.get(user)
        if score is not None:
            score.add(now)
            return user
        if not user or user == OTHER:
            return OTHER
        score = self._candidates.pop(user, None) or _Score(0, now)
        score.add(now)
        if not self._make_room(score.value, now):
            self._candidates[user] = score
            if len(self._candidates) > MAX_CANDIDATES:
                self._candidates.popitem(last=False)
            return OTHER
        self._shown[user] = score
        return user

    def _make_room(self, score: float, now: float) -> bool:
        """Drop the name refused least of late for one of this score; return whether there is room.

        By one refusal at least: names that are refused alike do not take turns.
        """
        if len(self._shown) < MAX_USERS:
            return True
        if score <= 1:
            return False
        seldom = min(self._shown, key=lambda user: self._shown[user].read(now))
        if self._shown[seldom].read(now) + 1 > score:
            return False
        self._candidates[seldom] = self._shown.pop(seldom)
        for hook, user in [key for key in self._children if key[1] == seldom]:
            del self._children[hook, user]
            self._counter.remove(hook, user)
        return True
