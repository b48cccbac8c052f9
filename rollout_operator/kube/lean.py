"""Import the few modules of kubernetes-asyncio that we use, without its 859 generated modules.

`import kubernetes_asyncio.client` runs every generated model and API class: 66 MiB of resident
memory and a second of CPU, two thirds of our whole budget, for code that raw calls never touch.
Here its packages are registered empty, with their real search path, so that single modules below
them can be imported: those that open the TLS connections and send raw calls, and that find the
cluster we run in. Its `Configuration` and `ApiClient` are not among them: they bring urllib3,
dateutil and multiprocessing, 4 MiB and 40 ms. Importing another name from an empty package fails
and says why. If the whole package was imported before, it is used instead.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn, cast

import aiohttp
import msgspec

_ROOT: Final = "kubernetes_asyncio"
# In this order: a parent before its children.
_PACKAGES: Final = (_ROOT, f"{_ROOT}.client", f"{_ROOT}.config")


class Configuration(msgspec.Struct, kw_only=True):
    """What the library reads of its class of this name."""

    host: str = ""
    api_key: dict[str, str] = {}
    ssl_ca_cert: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_ssl: bool = True
    tls_server_name: str | None = None
    disable_strict_ssl_verification: bool = True
    """Go programs, and so every other client of the cluster, accept a CA without the extensions
    that OpenSSL is strict about from Python 3.13 on; several providers' CAs lack them."""
    connection_pool_maxsize: int = 0
    """Without limit. Each watch keeps a connection: those of thirty namespaces would be all that
    the library has by default, with none left to act. The rate limits bound what is in flight."""
    proxy: str | None = None
    proxy_headers: Mapping[str, str] | None = None


def new_connector(configuration: Configuration) -> aiohttp.BaseConnector:
    """Return a connector with TLS; needs a running loop.

    Raises OSError if CA or key cannot be read.
    """
    session: aiohttp.ClientSession = (
        _load_lean("client.rest").RESTClientObject(configuration).pool_manager
    )
    connector = session.connector
    assert connector is not None
    session.detach()
    return connector


def load_incluster(
    configuration: Configuration, token: Path, ca: Path, environ: Mapping[str, str]
) -> None:
    """Set host and CA of the cluster we run in. Raises OSError and `config_exception()`."""
    _load_lean("config.incluster_config").load_incluster_config(
        client_configuration=configuration,
        try_refresh_token=False,
        token_filename=str(token),
        cert_filename=str(ca),
        environ=environ,
    )


def config_exception() -> type[Exception]:
    return cast(type[Exception], _load_lean("config.config_exception").ConfigException)


def _load_lean(name: str) -> ModuleType:
    if _ROOT not in sys.modules:
        _register_empty_packages()
    return import_module(f"{_ROOT}.{name}")


def _register_empty_packages() -> None:
    spec = find_spec(_ROOT)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{_ROOT} is not installed")
    for name in _PACKAGES:
        folders = [
            str(Path(root, *name.split(".")[1:])) for root in spec.submodule_search_locations
        ]
        sys.modules[name] = _empty_package(name, folders)
    for name in _PACKAGES[1:]:
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, sys.modules[name])
    # The config modules take this name from the package.
    client: Any = sys.modules[f"{_ROOT}.client"]
    client.Configuration = Configuration


def _empty_package(name: str, folders: list[str]) -> ModuleType:
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = folders
    package: Any = module_from_spec(spec)

    def refuse(attribute: str) -> NoReturn:
        raise AttributeError(
            f"{name}.{attribute}: {name} was loaded without its generated names by {__name__};"
            f" import {_ROOT} before it where they are needed"
        )

    package.__getattr__ = refuse
    return cast(ModuleType, package)
