"""What may become part of a request to a pod: SEC-10, SEC-12, D-27, SI-21, PREP-06 to PREP-08.

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
from rollout_operator.planning.requests import NoTarget, plan_endpoint, plan_target
from rollout_operator.pods import render_url

DOMAIN = "cluster.local."
POD = Pod(namespace="default", name="test-4", uid=Uid("u4"), resource_version="1", ip="10.1.2.3")
ENDPOINT = Endpoint(
    pod="test-4",
    uid=Uid("u4"),
    ip="10.1.2.3",
    host="test-4.service-name.default.svc.cluster.local.",
    port=8080,
    path="prepare-downscale",
)
PORT_MISSING = "the grafana.com/prepare-downscale-http-port annotation is not set or empty."
PATH_MISSING = "the grafana.com/prepare-downscale-http-path annotation is not set or empty."
SERVICE_MISSING = "the serviceName is not set or empty."


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


def test_a_pod_is_called_at_its_address_under_its_name() -> None:
    """T-07, FQDN-01, FQDN-02, SEED-016, SEED-116: one example with every part."""
    assert plan() == ENDPOINT
    assert render_url(ENDPOINT) == "http://10.1.2.3:8080/prepare-downscale"


@pytest.mark.parametrize(
    ("annotations", "service", "expected"),
    [
        pytest.param({}, "", PORT_MISSING, id="PREP-06 the port comes first"),
        pytest.param({PREPARE_PORT: "", PREPARE_PATH: "a"}, "s", PORT_MISSING, id="PREP-06 empty"),
        pytest.param({PREPARE_PORT: "80"}, "", PATH_MISSING, id="PREP-07 the path before the name"),
        pytest.param({PREPARE_PORT: "80", PREPARE_PATH: ""}, "s", PATH_MISSING, id="PREP-07 empty"),
        pytest.param(
            {PREPARE_PORT: "80", PREPARE_PATH: "a"}, "", SERVICE_MISSING, id="PREP-08 no name"
        ),
        pytest.param(
            {PREPARE_PORT: "80@evil"},
            "",
            "the grafana.com/prepare-downscale-http-port annotation is no port from 1 to 65535:"
            ' "80@evil"',
            id="SEC-10 a bad port before a missing path",
        ),
        pytest.param(
            {PREPARE_PORT: "80", PREPARE_PATH: "a?b"},
            "",
            'the grafana.com/prepare-downscale-http-path annotation is no plain path: "a?b"'
            " (letters, digits and . _ ~ - between single slashes, no . or .. alone,"
            " at most 256 characters)",
            id="SEC-10 a bad path says what a good one is",
        ),
        pytest.param(
            {PREPARE_PORT: "80", PREPARE_PATH: "a"},
            "a.b",
            'the serviceName is no DNS label: "a.b"',
            id="SEC-10 a bad name",
        ),
    ],
)
def test_a_set_that_cannot_be_called_is_refused(
    annotations: dict[str, str], service: str, expected: str
) -> None:
    refusal = plan_target(annotations, service)
    assert isinstance(refusal, NoTarget)
    assert refusal.sentence == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ip": ""}, "pod test-4 has no address yet"),
        ({"ip": "10.1.2"}, 'pod test-4 has no valid address: "10.1.2"'),
        ({"name": "a_b"}, 'the name of a pod is no DNS name: "a_b"'),
        ({"namespace": "a.b"}, 'the namespace of pod test-4 is no DNS label: "a.b"'),
        ({"domain": "a b"}, 'the cluster domain is no DNS name: "a b"'),
        (
            {"domain": ".".join(["a" * 60] * 4)},
            "the DNS name of pod test-4 is longer than 253 characters",
        ),
    ],
)
def test_a_pod_that_cannot_be_called_is_refused(changes: dict[str, str], expected: str) -> None:
    """SEC-10: pod, field and value are named."""
    assert plan(**changes) == expected


@pytest.mark.parametrize("port", ["1", "9", "80", "443", "8080", "9999", "10000", "65535"])
def test_every_port_is_taken(port: str) -> None:
    """SEED-016."""
    endpoint = plan(port=port)

    assert isinstance(endpoint, Endpoint)
    assert endpoint.port == int(port)
    assert_is_plain_path(endpoint)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a/b", "a/b"),
        ("/a/b", "a/b"),
        ("//a/b", "a/b"),
        ("ingester/prepare-partition-downscale", "ingester/prepare-partition-downscale"),
        ("/.a/b../...", ".a/b../..."),
        ("~A.Z_0-9", "~A.Z_0-9"),
        ("a" * 256, "a" * 256),
        ("/" + "a" * 256, "a" * 256),
    ],
)
def test_every_plain_path_is_taken(text: str, path: str) -> None:
    """SEED-015: `a/b` and `/a/b` give the same URL."""
    endpoint = plan(path=text)

    assert isinstance(endpoint, Endpoint)
    assert endpoint.path == path
    assert_is_plain_path(endpoint)


@pytest.mark.parametrize(
    ("ip", "shown"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("127.0.0.1", "127.0.0.1"),
        ("fd00::1", "fd00::1"),
        ("FD00:0:0:0::1", "fd00::1"),
        ("::1", "::1"),
    ],
)
def test_every_address_is_taken_in_one_spelling(ip: str, shown: str) -> None:
    """D-27: its range is not judged."""
    endpoint = plan(ip=ip)

    assert isinstance(endpoint, Endpoint)
    assert endpoint.ip == shown
    assert_is_plain_path(endpoint)


@pytest.mark.parametrize("domain", ["cluster.local.", "cluster.local", "Corp.Example.", "x"])
def test_the_domain_stays_as_it_is_given(domain: str) -> None:
    """FQDN-02."""
    endpoint = plan(domain=domain)

    assert isinstance(endpoint, Endpoint)
    assert endpoint.host == f"test-4.service-name.default.svc.{domain}"


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


def test_there_are_many_vectors() -> None:
    """SEC-10: at least 300."""
    assert len({*hostile()}) >= 300


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
