"""The operator's configuration: the values of its flags, and what follows from them.

Which flags there are stands in `operator_flags`. Which combinations are refused is decided in
`checks`, how words become values in `grammar`, how all of it reads as help in `usage`. A flag that
is not among the arguments has the value from `environment`, else its default.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rollout_operator.config.environment import NOTHING, Environment
from rollout_operator.config.grammar import Flag, fill_fields, map_flags, parse_arguments
from rollout_operator.config.operator_flags import SHADOW, OperatorFlags
from rollout_operator.model.lease import Times

_WITHOUT_EFFECT: Final = ("zpdb.pod-ready-annotation-patch-timeout",)


@dataclass(frozen=True, kw_only=True)
class Config(OperatorFlags):
    """The configuration by the words after the program's name, checked by `checks.read_config`."""

    leftovers: tuple[str, ...] = ()
    """Words after the flags, which mean nothing."""
    without_effect: tuple[str, ...] = ()
    """Names of flags that were given and mean nothing any more."""
    watched: tuple[str, ...] | None = None
    """The namespaces that the environment names, all if empty; None leaves that to the flag."""
    environment: Environment = NOTHING

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the watched namespaces; empty for all: `namespace` is then the operator's own."""
        return (self.namespace,) if self.watched is None else self.watched

    @property
    def watches_all(self) -> bool:
        """Return whether all namespaces are watched."""
        return not self.namespaces

    @property
    def watches_several(self) -> bool:
        """Return whether several namespaces may be watched: series and lines name them then."""
        return self.watches_all or len(self.namespaces) > 1

    @property
    def operator_name(self) -> str:
        """Return the name in its writes, Events and Lease."""
        return self.environment.operator_name

    @property
    def extra_port(self) -> int:
        """Return the second port with `/metrics`; 0 for none."""
        port = self.environment.metrics_port
        is_taken = not self.environment.is_port_chosen and port in self.review_ports
        return 0 if port == self.server_port or is_taken else port

    @property
    def review_ports(self) -> tuple[int, ...]:
        """Return the ports of reviews, where they are answered."""
        return (self.webhooks_port, self.forwarding_port) if self.answers_reviews else ()

    @property
    def zone_tracker(self) -> str:
        """Return the name of the ConfigMap with times of downscales; empty without one."""
        return self.zone_tracker_name if self.use_zone_tracker else ""

    @property
    def lease(self) -> str:
        """Return the name of the Lease that is held to act; empty where none is needed."""
        return self.lease_name if self.election_enabled and not self.is_shadow else ""

    @property
    def election_times(self) -> Times:
        """Return how the process takes part in the election."""
        return Times(
            lease=self.lease_duration, deadline=self.renew_deadline, retry=self.retry_period
        )

    @property
    def is_shadow(self) -> bool:
        """Return whether nothing is written, and no webhook answered."""
        return self.mode == SHADOW

    @property
    def drives_policies(self) -> bool:
        """Return whether MultiAZRollouts are obeyed."""
        return self.multi_az_rollouts and not self.is_shadow

    @property
    def drives_releases(self) -> bool:
        """Return whether Rollouts of releases are carried out."""
        return self.releases and not self.is_shadow

    @property
    def answers_reviews(self) -> bool:
        """Return whether webhooks are served."""
        return self.webhooks_enabled and not self.is_shadow

    @property
    def forwarding_port(self) -> int:
        """Return the port for reviews of other replicas; 0 where none are passed on.

        Certificates from files are not ours: their CA is unknown, and whether it signs others.
        """
        is_possible = self.answers_reviews and self.self_signed and self.election_enabled
        return self.peer_port if is_possible else 0

    @property
    def service_name(self) -> str:
        """Return the DNS name that our own certificate is for."""
        return self.dns_name or f"rollout-operator.{self.namespace}.svc"


FLAGS: Final[tuple[Flag[Any], ...]] = tuple(map_flags(Config).values())


def get_flag(name: str) -> Flag[Any]:
    """Return the flag of this name, which must exist."""
    return next(each for each in FLAGS if each.name == name)


def read_arguments(argv: Sequence[str], environment: Environment = NOTHING) -> Config:
    """Return the configuration by the words after the program's name, unchecked.

    Fields that they leave open come from the environment. Raises UsageError where they do not
    follow the grammar, or HelpRequested.
    """
    arguments = parse_arguments(FLAGS, argv)
    values = fill_fields(Config, arguments)
    if environment.is_given:
        standing_in = _stand_in(environment)
        values |= {
            name: standing_in[name]
            for name, flag in map_flags(Config).items()
            if name in standing_in and not arguments.has(flag)
        }
    by_flag = arguments.has(get_flag("kubernetes.namespace"))
    return Config(
        **values,
        leftovers=arguments.leftovers,
        without_effect=tuple(name for name in _WITHOUT_EFFECT if arguments.has(get_flag(name))),
        watched=None if by_flag else environment.watched,
        environment=environment,
    )


def _stand_in(environment: Environment) -> dict[str, object]:
    """Return, by field, the value that counts where the flag of that field is not given."""
    first = (*(environment.watched or ()), "")[0]
    return {
        "namespace": environment.own_namespace or first,
        "log_level": environment.log_level,
        "lease_name": environment.operator_name,
        "multi_az_rollouts": True,
    }
