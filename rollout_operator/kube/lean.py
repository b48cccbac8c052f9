"""Import the few modules of kubernetes-asyncio that we use, without its 859 generated modules.

`import kubernetes_asyncio.client` runs every generated model and API class: 66 MiB of resident
memory and a second of CPU, two thirds of our whole budget, for code that raw calls never touch.
Here its packages are registered empty, with their real search path, so that single modules below
them can be imported: 3 MiB and a tenth of a second. Importing a generated name from an empty
package fails and says why. If the whole package was imported before, it is used instead.
"""

import sys
from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn, Protocol, cast

import aiohttp

_ROOT: Final = "kubernetes_asyncio"
# In this order: a parent before its children.
_PACKAGES: Final = (_ROOT, f"{_ROOT}.client", f"{_ROOT}.client.models", f"{_ROOT}.config")


class LibraryConfiguration(Protocol):
    host: str
    api_key: MutableMapping[str, str]
    ssl_ca_cert: str | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    tls_server_name: str | None
    disable_strict_ssl_verification: bool
    connection_pool_maxsize: int
    proxy: str | None
    refresh_api_key_hook: Callable[["LibraryConfiguration"], object] | None


class RestClient(Protocol):
    pool_manager: aiohttp.ClientSession
    proxy: str | None


class LibraryClient(Protocol):
    """What we use of the library's `ApiClient`: raw calls and their defaults."""

    configuration: LibraryConfiguration
    default_headers: MutableMapping[str, str]
    rest_client: RestClient

    # The library's own signature: every argument after these is keyword, untyped and optional.
    async def call_api(self, resource_path: str, method: str, **options: object) -> Any: ...

    async def close(self) -> None: ...


def new_configuration() -> LibraryConfiguration:
    return cast(LibraryConfiguration, _load_lean("client.configuration").Configuration())


def new_api_client(configuration: LibraryConfiguration) -> LibraryClient:
    """Return a client; needs a running loop. Raises OSError if CA or key cannot be read."""
    return cast(LibraryClient, _load_lean("client.api_client").ApiClient(configuration))


def load_incluster(
    configuration: LibraryConfiguration, token: Path, ca: Path, environ: Mapping[str, str]
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
        try:
            _register_empty_packages()
        except ImportError:
            # The next caller would take half-filled packages for the library.
            for module in [one for one in sys.modules if f"{one}.".startswith(f"{_ROOT}.")]:
                del sys.modules[module]
            raise
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
    # The config modules take these two names from the package.
    client: Any = sys.modules[f"{_ROOT}.client"]
    client.Configuration = import_module(f"{_ROOT}.client.configuration").Configuration
    client.ApiClient = import_module(f"{_ROOT}.client.api_client").ApiClient


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
