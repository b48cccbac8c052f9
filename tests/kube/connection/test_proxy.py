"""The way to the API server through a proxy follows the rules of Go programs."""

import pytest

from rollout_operator.kube.connection.transport import choose_proxy

PROXY = "http://proxy.example.org:3128"


@pytest.mark.parametrize(
    ("url", "exceptions", "is_direct"),
    [
        pytest.param("https://10.0.0.1:443", "", False, id="no exceptions"),
        pytest.param("https://10.0.0.1:443", "10.0.0.0/8", True, id="network"),
        pytest.param("https://10.0.0.1:443", "192.168.0.0/16, 10.0.0.0/8", True, id="a list"),
        pytest.param("https://11.0.0.1", "10.0.0.0/8", False, id="another network"),
        pytest.param("https://10.0.0.1", "10.0.0.1", True, id="address"),
        pytest.param("https://10.0.0.1:6443", "10.0.0.1:6443", True, id="address and port"),
        pytest.param("https://10.0.0.1:443", "10.0.0.1:6443", False, id="address, another port"),
        pytest.param("https://[fd00::1]:443", "fd00::/8", True, id="network of IPv6"),
        pytest.param("https://[fd00::1]:443", "fd00::1", True, id="address of IPv6"),
        pytest.param("https://[fd00::1]:443", "[fd00::1]:443", True, id="IPv6 and port"),
        pytest.param("https://api.example.org", "example.org", True, id="domain covers below"),
        pytest.param("https://example.org", "example.org", True, id="domain covers itself"),
        pytest.param("https://api.example.org", ".example.org", True, id="dot covers below"),
        pytest.param("https://example.org", ".example.org", False, id="dot leaves itself"),
        pytest.param("https://api.example.org", "*.example.org", True, id="star covers below"),
        pytest.param("https://badexample.org", "example.org", False, id="only whole labels"),
        pytest.param("https://API.example.org", "EXAMPLE.org", True, id="any case"),
        pytest.param("https://example.org", "*", True, id="everything"),
        pytest.param("https://example.org", ",, ,", False, id="empty entries"),
        pytest.param("https://example.org", "10.0.0.0/99,x/y", False, id="broken networks"),
        pytest.param("https://127.0.0.1:6443", "", True, id="loopback"),
        pytest.param("https://localhost:6443", "", True, id="localhost"),
        pytest.param("https://[::1]:6443", "", True, id="loopback of IPv6"),
    ],
)
def test_exceptions(url: str, exceptions: str, is_direct: bool) -> None:
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions}
    assert choose_proxy(url, environ) == (None if is_direct else PROXY)


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        pytest.param({}, None, id="nothing set"),
        pytest.param({"https_proxy": PROXY}, PROXY, id="small letters"),
        pytest.param({"HTTP_PROXY": PROXY}, None, id="for another scheme"),
        pytest.param({"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128", id="no scheme"),
        pytest.param({"HTTPS_PROXY": "", "https_proxy": PROXY}, PROXY, id="empty capitals"),
        pytest.param({"HTTPS_PROXY": PROXY, "no_proxy": "10.0.0.0/8"}, None, id="small exceptions"),
    ],
)
def test_variables(environ: dict[str, str], proxy: str | None) -> None:
    assert choose_proxy("https://10.0.0.1", environ) == proxy
