"""Listening sockets, by default on all addresses of both families; errors name the flag."""

import errno
import os
import socket
from typing import Final

from rollout_operator.model.errors import ConfigError

MAX_PORT: Final = 65535


def bind(port: int, *, flag: str, host: str = "") -> socket.socket:
    """Return a socket on `host`, or on all addresses, of IPv4 alone where IPv6 is off.

    Port 0 takes a free one.

    Raises ConfigError that names `flag`, e.g. `-server.port`.
    """
    if not 0 <= port <= MAX_PORT:
        raise ConfigError(f"{flag}: {port} is not within 0 and {MAX_PORT}")
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"{flag}: port {port} is in use") from error
        cause = os.strerror(error.errno or 0).lower()
        raise ConfigError(f"{flag}: cannot listen on port {port}: {cause}") from error
