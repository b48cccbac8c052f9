"""No hostile value becomes part of a request to a pod: SEC-10, SEC-12, D-27, SI-21, SI-23.

Whatever annotations, names and addresses say, they are refused, or the URL that is called means
the pod's own address, the port and the path, to every parser that reads it.
"""

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from yarl import URL

from rollout_operator.model.names import PREPARE_PATH, PREPARE_PORT, Uid
from rollout_operator.model.objects import Endpoint, Pod
from rollout_operator.planning.requests import (
    NoTarget,
    plan_delay_target,
    plan_endpoint,
    plan_target,
)
from rollout_operator.pods import render_url

DOMAIN = "cluster.local."
POD = Pod(namespace="default", name="test-4", uid=Uid("u4"), resource_version="1", ip="10.1.2.3")
HOST = "test-4.service-name.default.svc.cluster.local."
ANNOTATION = "the grafana.com/rollout-prepare-delayed-downscale-url annotation"


def plan(
    *,
    port: str = "8080",
    path: str = "prepare-downscale",
    service: str = "service-name",
    domain: str = DOMAIN,
    **changes: object,
) -> Endpoint | str:
    """Return the endpoint of the pod, one thing of it changed, or the refusal."""
    target = plan_target({PREPARE_PORT: port, PREPARE_PATH: path}, service)
    return (
        target.sentence
        if isinstance(target, NoTarget)
        else plan_endpoint(replace(POD, **changes), target, domain)
    )


def plan_delay(url: str) -> Endpoint | str:
    target = plan_delay_target(url, "service-name")
    if isinstance(target, NoTarget):
        return target.sentence
    return plan_endpoint(POD, target, DOMAIN)


def assert_is_plain(endpoint: Endpoint) -> None:
    """Check that all who read the URL and the host read the same, and nothing else in it."""
    text = render_url(endpoint)
    query = f"?{endpoint.query}" if endpoint.query else ""
    for url in (URL(text, encoded=True), *([] if "%" in text or query else [URL(text)])):
        assert ip_address(url.host or "") == ip_address(endpoint.ip)
        assert (url.port, url.raw_path_qs) == (endpoint.port, f"/{endpoint.path}{query}")
        assert (url.user, url.password, url.raw_fragment) == (None, None, "")
        assert url.scheme == endpoint.scheme
        assert not {".", ".."} & set(url.path.split("/"))
    parts = urlsplit(text)
    assert ip_address(parts.hostname or "") == ip_address(endpoint.ip)
    assert (parts.port, parts.path) == (endpoint.port, f"/{endpoint.path}")
    assert (parts.username, parts.query, parts.fragment) == (None, endpoint.query, "")
    assert parts.scheme == endpoint.scheme in ("http", "https")
    assert str(ip_address(endpoint.ip)) == endpoint.ip
    assert text.isascii()
    assert text.isprintable()
    assert not set(text) & set(" #\\")
    assert set(endpoint.host.lower()) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


def assert_is_plain_path(endpoint: Endpoint) -> None:
    """Check the same of an endpoint that a review names: it has a plain path and no more."""
    assert_is_plain(endpoint)
    assert (endpoint.scheme, endpoint.query) == ("http", "")
    assert not set(render_url(endpoint)) & set("%?@")


# What breaks out of its place in a URL, a header or a message, wherever it stands.
BREAKERS = (
    "\0", "\t", "\n", "\r\n", "\r\nHost: evil", "\x1b[31m", "\x7f", "\x85", " ", "\u00a0", "\u2028",
    "\u202e", "\u200b", "\ufeff", "\ud800", "@", "@evil", ":evil@", "#", "?", "?a=b", "%", "%00",
    "%0d%0a", "%2e%2e", "%2f", "\\", "\\\\evil", ";", "&", "=", "+", ",", "'", '"', "<", ">", "[",
    "]", "[::1]", "{", "}", "|", "^", "`", "$", "$(id)", "*", "!", "(", ")", "\u00e9", "\u00df",
    "\u017f", "\u212a", "\u2460", "\u0663", "\U0001d7d6", "\u3002", "\uff0e", "\uff0f", "\uff1a",
    "\uff03", "\uff1f", "\uff20", "\u2100", "../", "//", "://", ":80",
)  # fmt: skip
PORTS = (
    "0", "00080", "080", "-1", "+80", " 80", "80 ", "8 0", "80.0", "8e1", "0x50", "0b1", "1_0",
    "65536", "99999", "100000", "9" * 5000, "80/", "80:80", "http", "80@evil", "\u0668\u0660",
    "\uff18\uff10", "8\u0660", "\u00b2", "80\n", "80#", "80?", "80/../", "\\80", "null", "[80]",
    "80;81", "80,81", "::80", "\x01" * 300,
)  # fmt: skip
PATHS = (
    "/", "//", "///", "a//b", "a/", "a/b/", ".", "..", "/..", "a/..", "a/../b", "a/./b", "./a",
    "../a", "../../admin", "a" * 257, "a/" * 200, "?", "?a", "#", "a#b", "a?b=c", "a%2fb",
    "%2e%2e/a", "a b", "http://evil/a", "//evil:80/a", "a:b", "@evil", "a;b", "a\\b", "\\\\evil\\a",
    "a*", "\u00e4", "a\nb", "a\r\nX: y", "a HTTP/1.1\r\nHost: evil\r\n\r\n", "a\0", "a+b", "a,b",
    "a=b", "a&b", "a\u2215b", "a" * 100_000, "\x01" * 300,
)  # fmt: skip
LABELS = (
    "a_b", "-a", "a-", "A", "a" * 64, "a..b", ".a", "a.", "evil.example/", "169.254.169.254:80",
    "a@b", "a:80", "a/b", "xn--\u00e4", "\u00e4", "a b", "a\n", "*", "a" * 100_000,
)  # fmt: skip
DOMAINS = (
    "", ".", "..", "a..b", ".a", "a..", "evil:80", "evil/", "evil@x", "evil#", "evil?", "a b",
    "a\n", "a\r\nX: y", "[::1]", "-a", "a-", "a_b", "\u017f", "\u212a", "a" * 64, "a." * 200,
    "a" * 100_000,
)  # fmt: skip
ADDRESSES = (
    "1", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127.0.1", "127.0.0.01", "127.0.0.1.",
    "127.0.0.1:80", "127.0.0.1/8", "256.0.0.1", "1.2.3.4.5", " 10.0.0.1", "10.0.0.1\n", "10.0.0.1#",
    "10.0.0.1@evil", "10.0.0.1%00", "\uff110.0.0.1", "\u0661.1.1.1", "localhost", "evil", "[::1]",
    "::1%eth0", "fe80::1%25eth0", "fe80::1%", "fe80::1%\r\nX: y", "::1/128", ":::1", "1::2::3",
    "::g", "::1]", "::ffff:1.2.3.400", "None", "0x0A000001", "metadata.google.internal",
)  # fmt: skip


def hostile() -> Iterator[tuple[str, str]]:
    for breaker in BREAKERS:
        yield "port", f"80{breaker}"
        yield "path", f"a{breaker}.."
        yield "service", f"a{breaker}b"
        yield "domain", f"cluster{breaker}local"
        yield "ip", f"10.0.0.1{breaker}"
        yield "name", f"test{breaker}4"
        yield "namespace", f"a{breaker}b"
    yield from (("port", text) for text in PORTS)
    yield from (("path", text) for text in PATHS)
    for field in ("service", "namespace"):
        yield from ((field, text) for text in (*LABELS, "a.b"))
    yield from (("name", text) for text in LABELS)
    yield from (("domain", text) for text in DOMAINS)
    yield from (("ip", text) for text in ADDRESSES)


@pytest.mark.parametrize(
    ("field", "text"),
    [pytest.param(*one, id=f"{at} {one[0]} {one[1][:20]!a}") for at, one in enumerate(hostile())],
)
def test_what_is_hostile_is_refused(field: str, text: str) -> None:
    """SEC-10: by words on one printable line, however long the value is (SI-23)."""
    refusal = plan(**{field: text})

    assert isinstance(refusal, str), refusal
    assert refusal.isprintable()
    assert len(refusal) < 400


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "port": st.one_of(st.text(max_size=8), st.integers(0, 99_999).map(str)),
            "path": st.text(st.sampled_from("aZ0._~-/%?#@:\\ \n\u00e4")) | st.text(),
            "service": st.text(st.sampled_from("aZ0-._@/:")) | st.text(),
            "domain": st.text(st.sampled_from("aZ0-._@/:")) | st.text(),
            "ip": st.one_of(
                st.ip_addresses().map(str), st.text(st.sampled_from("0127.:%[]fa")), st.text()
            ),
            "name": st.text(st.sampled_from("aZ0-._@/:")) | st.text(),
            "namespace": st.text(st.sampled_from("aZ0-._@/:")) | st.text(),
        },
    )
)
def test_what_is_planned_is_plain_or_refused(changes: dict[str, str]) -> None:
    """SEC-10: nothing in between, and no error."""
    planned = plan(**changes)

    if isinstance(planned, str):
        assert planned.isprintable()
    else:
        assert_is_plain_path(planned)


URL_BREAKERS = (
    "\0", "\t", "\n", "\r\n", "\r\nHost: evil", "\x1b[31m", "\x7f", "\x85", " ", "\u00a0", "\u2028",
    "\u202e", "\u200b", "\ufeff", "\ud800", "\\", "\\\\evil", "\u00e9", "\u212a", "\u0663",
    "\u3002", "\uff0e", "\uff0f", "\uff1a", "\uff03", "\uff1f", "\uff20", "%", "%0", "%zz", "%00",
    "%0d%0a", "%1B", "%7f",
)  # fmt: skip
URLS = (
    "http", "http:", "http:/", "http:pod", "http:/pod/a", "//pod/a", "/a", "://pod/a", "http//pod",
    "http:///../a", "ftp://p/a", "file:///etc/passwd", "gopher://p/", "unix:///run/a.sock",
    "ws://p/", "javascript:alert(1)", "data:,a", "httpx://p/", "http+unix://p/", "1http://p/",
    "http://u@p/", "http://u:p@p/", "http://@p/", "http://:@p/", "http://a@b@p/", "http://u:p@:80/",
    "http://p:0/", "http://p:00080/", "http://p:080/", "http://p:-1/", "http://p:+80/",
    "http://p:65536/", "http://p:99999999999/", "http://p:8e1/", "http://p:0x50/", "http://p:a/",
    "http://p:80:80/", "http://a:b/", "http://p:/", "http://[::1/", "http://::1/", "http://[::1]a/",
    "http://a[::1]/", "http://[::1]:/", "http://[fe80::1%25eth0]/", "http://[p]/", "http://{pod}/",
    "http://<p>/", "http://p|q/", "http://p^/", "http://%70/", "http://p%2f/", "http://p/#",
    "http://p/#a", "http://p#a", "http://p?a#b", "http://p/.", "http://p/..", "http://p/./a",
    "http://p/a/.", "http://p/a/..", "http://p/../a", "http://p/a/../../b", "http://p/%2e",
    "http://p/%2e%2e/a", "http://p/.%2E/a", "http://p/a%2f..%2fb", "http://p/a%5c..%5cb",
    "http://p/a%2F%2e%2e", "http://p/a\\..\\b", "http://p/a b", "http://p/<a>", "http://p/{a}",
    "http://p/a|b", "http://p/^", "http://p/`a`", "http://p/[a]", 'http://p/"', "http://p/%",
    "http://p/%a", "http://p/%g0", "http://p/?%", "http://p/?a=%0", "http://p/?%00", "http://p/%0A",
    "http://p/a HTTP/1.1\r\nHost: evil\r\n\r\n", " http://p/", "http://p/ ", "http://p/\n",
    "http://" + "a" * 1100, "a" * 100_000, "http://u:" + "x" * 100_000 + "@p/",
    "http://p/" + "@" * 100_000, "http://p/" + "../" * 100,
)  # fmt: skip


def hostile_urls() -> Iterator[str]:
    for breaker in URL_BREAKERS:
        yield f"ht{breaker}tp://pod/a"
        yield f"http://p{breaker}d/a"
        yield f"http://pod:8{breaker}0/a"
        yield f"http://pod/a{breaker}"
        yield f"http://pod/a?b={breaker}"
    yield from URLS


@pytest.mark.parametrize(
    "url", [pytest.param(one, id=f"{at} {one[:30]!a}") for at, one in enumerate(hostile_urls())]
)
def test_a_hostile_url_is_refused(url: str) -> None:
    """SEC-10, SI-23: by words on one printable line, however long the value is."""
    refusal = plan_delay(url)

    assert isinstance(refusal, str), refusal
    assert refusal.startswith(ANNOTATION)
    assert refusal.isprintable()
    assert len(refusal) < 400


@given(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["http://", "https://", "HTTP://pod", "http://[::1]", "http:", ""]),
        st.text(st.sampled_from("aZ0.:@/?#%2eEfF[]\\ &=~-_\n\u00e4"), max_size=20) | st.text(),
        st.text(st.sampled_from("aZ0./?%2eEfF&=~;@:-_{}"), max_size=20),
    )
)
def test_what_is_planned_of_a_url_is_plain_or_refused(url: str) -> None:
    """SEC-10: nothing in between, and no error."""
    planned = plan_delay(url)

    if isinstance(planned, str):
        assert planned.isprintable()
    else:
        assert_is_plain(planned)
        assert planned.host == HOST


def test_sec10_there_are_many_vectors() -> None:
    """SEC-10: at least 300; and the longest URL is taken (SI-23)."""
    assert len({*hostile()}) >= 300
    longest = "http://pod/" + "a" * 1013
    assert isinstance(plan_delay(longest), Endpoint)
    assert isinstance(plan_delay(longest + "a"), str)
