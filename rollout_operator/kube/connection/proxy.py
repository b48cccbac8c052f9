"""Choose the proxy on the way to the API server from the environment, by the rules of Go programs.

Python's own reading of NO_PROXY knows no networks: `10.0.0.0/8`, which operators write so that
calls inside of the cluster stay there, would be ignored and those calls sent to the proxy.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

_Address = IPv4Address | IPv6Address


def choose_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for requests to `url`, None for a direct connection.

    HTTPS_PROXY and HTTP_PROXY by the scheme, NO_PROXY for exceptions, in capitals or small letters.
    Loopback addresses are always reached directly.
    """
    target = urlsplit(url)
    host = (target.hostname or "").rstrip(".")
    port = target.port or (443 if target.scheme == "https" else 80)
    proxy = _read(environ, f"{target.scheme}_proxy")
    if not proxy or host == "localhost":
        return None
    address = _address(host)
    if address is not None and address.is_loopback:
        return None
    exceptions = _read(environ, "no_proxy").split(",")
    if any(_matches(entry.strip().lower(), host, address, port) for entry in exceptions):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _read(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name.upper()) or environ.get(name) or "").strip()


def _matches(entry: str, host: str, address: _Address | None, port: int) -> bool:
    """Tell whether one entry of NO_PROXY covers a host: all, network, address or domain."""
    if entry in {"", "*"}:
        return entry == "*"
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, only_port = _split_port(entry)
    if only_port not in {None, port}:
        return False
    excepted = _address(name)
    if excepted is not None or address is not None:
        return excepted == address
    # `example.org` covers itself and what lies below, `.example.org` only what lies below.
    domain = name.removeprefix("*").removeprefix(".")
    return host.endswith(f".{domain}") or host == name


def _split_port(entry: str) -> tuple[str, int | None]:
    """Return host and port of an entry; an IPv6 address without brackets has no port."""
    name, colon, digits = entry.rpartition(":")
    if colon and digits.isascii() and digits.isdigit() and (":" not in name or name[0] == "["):
        return name.strip("[]"), int(digits)
    return entry.strip("[]"), None


def _address(text: str) -> _Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
