"""What is foreseen of Rollouts of `kuberik.com`: which version comes when, and what holds it.

A command prints these as JSON: fields are added freely, and none is renamed or removed.
"""

from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.condition import Time

FORECAST_SCHEMA: Final = 1


@unique
class Arrival(StrEnum):
    """Whether a version comes. Never renamed."""

    DEPLOYED = "deployed"
    """At a time that is known."""
    LATER = "later"
    """Time may bring it, but not within the span that was looked at."""
    PERSON = "person"
    """Never, unless a person acts."""
    NONE = "none"
    """No version waits."""


class HoldingGate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A gate that does not let a version through."""

    name: str
    text: str
    """Why not."""
    schedule: str = ""
    """The schedule that keeps it, by kind, namespace and name; empty where none does."""
    opens: Time | None = None
    """When its schedule opens it; None where that is not known."""


class HoldForecast(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One reason that holds a version back, and for how long it decides."""

    since: Time
    reason: str
    """That of the condition or the Event that says the same."""
    text: str
    until: Time | None = None
    """None where it lasts."""
    remedy: str = ""
    """What a person can do; empty where there is nothing to do but to wait."""
    gates: tuple[HoldingGate, ...] = ()
    """Those that do not let the version through."""


class VersionForecast(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One version of a Rollout."""

    verdict: Arrival
    tag: str = ""
    """Empty where no version waits, or none is known."""
    at: Time | None = None
    """When it is deployed."""
    local_time: str = ""
    """The same on the wall clock of `time_zone`, with the offset from UTC."""
    time_zone: str = "UTC"
    """That of the schedule that holds it last, or of a schedule that gates its Rollout."""
    holds: tuple[HoldForecast, ...] = ()
    """In the order in which they decide."""
    holds_left_out: int = 0
    """How many more there are."""
    bake: str = ""
    """How its bake ends, as the history of the Rollout has it."""
    bake_text: str = ""
    bake_ends: Time | None = None


class RolloutForecast(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One Rollout: the versions that are deployed, in order, and last what waits then."""

    namespace: str
    name: str
    tag: str
    """What is deployed at the start; empty for nothing."""
    versions: tuple[VersionForecast, ...]


class Forecast(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that is foreseen."""

    schema_version: int = FORECAST_SCHEMA
    exit_code: int
    """That of the command, with its flag or without."""
    begins: Time
    ends: Time
    rollouts: tuple[RolloutForecast, ...]
    problems: tuple[str, ...] = ()
    """What of the input cannot be obeyed or read, by object, field and value."""
    assumptions: tuple[str, ...] = ()
    """What is taken for granted, a sentence each."""
