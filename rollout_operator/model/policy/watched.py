"""A MultiAZRollout as a watch shows it: what it wants, and what its status has recorded."""

import msgspec

from rollout_operator.model.names import Uid
from rollout_operator.model.policy.policy import Policy, RefusedPolicy
from rollout_operator.model.policy.status import PolicyStatus


class WatchedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One policy, whatever state it is in."""

    resource_version: str
    policy: Policy | RefusedPolicy
    status: PolicyStatus = PolicyStatus()
    """As far as it can be read: what cannot is as if it were lost."""
    problems: tuple[str, ...] = ()
    """What of the status cannot be read, a sentence each; another client has written it."""

    @property
    def namespace(self) -> str:
        """Return its namespace."""
        return self.policy.head.namespace

    @property
    def name(self) -> str:
        """Return its name."""
        return self.policy.head.name

    @property
    def uid(self) -> Uid:
        """Return its UID."""
        return self.policy.head.uid
