"""Why a registry was not read: a class says what the caller should do.

Each text is one sentence that names registry, repository and tag, and what a person can do. None
holds a credential, nor the query of a URL, which may be one: causes are said in words of our own.
"""

from datetime import timedelta

from rollout_operator.model.errors import OperatorError


class RegistryError(OperatorError):
    """A registry was not read. `retry_after` is how long it wants no further request."""

    def __init__(self, text: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class ReleaseNotFound(RegistryError):
    """There is no such tag or no such repository: a person pushes it or corrects its name."""


class RegistryDenied(RegistryError):
    """The registry wants other credentials: a person names or renews a pull secret."""


class RegistryBusy(RegistryError):
    """The registry refuses more requests for now, until `retry_after` where it says so."""


class RegistryUnreachable(RegistryError):
    """No useful answer in time: back off."""


class RegistryDistrusted(RegistryError):
    """The answer is wrong or out of all bounds: read again later, and report it to a person."""


class NoAnswer(OperatorError):
    """Within this package: a request had no answer. The text says why."""

    def __init__(self, problem: str, *, is_without_tls: bool = False) -> None:
        """`is_without_tls`: there is a server, or may be one, that speaks no TLS."""
        super().__init__(problem)
        self.is_without_tls = is_without_tls


class BadAnswer(OperatorError):
    """Within this package: an answer that is not to be used. The text says why."""
