"""One condition in the `status` of an object of ours."""

import msgspec


class StatusCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One condition, as Kubernetes has them."""

    type: str
    status: str
    """`True` or `False`."""
    reason: str = ""
    """One of our codes in CamelCase, such as `DisruptionBudgetUsed`."""
    message: str = ""
    last_transition_time: str = ""
    """When `status` changed last, as RFC 3339."""
    observed_generation: int = 0
