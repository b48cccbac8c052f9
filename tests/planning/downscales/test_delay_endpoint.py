"""What of an annotated URL may become part of a request to a pod: DELAY-04, D-27, SI-21, SI-23.

Whatever the URL says, it is refused, or what is called is the pod's own address with the scheme,
port, path and query as they are written, to every parser that reads it.
"""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint, Pod
from rollout_operator.planning.requests import (
    DelayTarget,
    NoTarget,
    plan_delay_target,
    plan_endpoint,
)
from rollout_operator.pods import render_url
from tests.planning.downscales.test_endpoint import assert_is_plain

DOMAIN = "cluster.local."
POD = Pod(
    namespace="prod-namespace",
    name="prod-statefulset-1",
    uid=Uid("u1"),
    resource_version="1",
    ip="10.1.2.3",
)
HOST = "prod-statefulset-1.prod-service.prod-namespace.svc.cluster.local."
ANNOTATION = "the grafana.com/rollout-prepare-delayed-downscale-url annotation"


def plan(
    url: str, *, service: str = "prod-service", domain: str = DOMAIN, **changes: object
) -> Endpoint | str:
    """Return the endpoint of the pod, one thing of it changed, or the refusal."""
    target = plan_delay_target(url, service)
    if isinstance(target, NoTarget):
        return target.sentence
    return plan_endpoint(replace(POD, **changes), target, domain)


def named(endpoint: Endpoint) -> str:
    """Return the URL as the reference form has it, under the name of the pod."""
    query = f"?{endpoint.query}" if endpoint.query else ""
    return f"{endpoint.scheme}://{endpoint.authority}/{endpoint.path}{query}"


@pytest.mark.parametrize("number", [1, 2])
def test_only_the_host_is_replaced(number: int) -> None:
    """T-05, endpoint form; DELAY-04, SEED-074."""
    name = f"prod-statefulset-{number}"
    endpoint = plan("http://example.com:8080/api/prepare", name=name)

    assert endpoint == Endpoint(
        pod=name,
        uid=Uid("u1"),
        ip="10.1.2.3",
        host=HOST.replace("prod-statefulset-1", name),
        port=8080,
        path="api/prepare",
    )
    assert named(endpoint) == (
        f"http://{name}.prod-service.prod-namespace.svc.cluster.local.:8080/api/prepare"
    )
    assert render_url(endpoint) == "http://10.1.2.3:8080/api/prepare"


@pytest.mark.parametrize(
    ("url", "expected", "port"),
    [
        pytest.param("http://pod/a", f"http://{HOST}/a", 80, id="T-05 without port there is none"),
        pytest.param("https://pod/a", f"https://{HOST}/a", 443, id="the port of https"),
        pytest.param("http://pod:80/a", f"http://{HOST}:80/a", 80, id="a port that is written"),
        pytest.param("https://pod:8443/a", f"https://{HOST}:8443/a", 8443, id="https and a port"),
        pytest.param("HTTP://POD/A", f"http://{HOST}/A", 80, id="capitals"),
        pytest.param("http://pod", f"http://{HOST}/", 80, id="no path"),
        pytest.param("http://pod?a=b", f"http://{HOST}/?a=b", 80, id="no path, but a query"),
        pytest.param("http:///a", f"http://{HOST}/a", 80, id="no host: pods have their own"),
        pytest.param("http://:8080/a", f"http://{HOST}:8080/a", 8080, id="no host, but a port"),
        pytest.param("http://[::1]/a", f"http://{HOST}/a", 80, id="an address of version 6"),
        pytest.param("http://[::1]:8/a", f"http://{HOST}:8/a", 8, id="an address and a port"),
        pytest.param("http://169.254.169.254/a", f"http://{HOST}/a", 80, id="SI-21 an address"),
        pytest.param("http://pod/a//b/", f"http://{HOST}/a//b/", 80, id="slashes"),
        pytest.param("http://pod//a", f"http://{HOST}//a", 80, id="two slashes at first"),
        pytest.param("http://p/~a/%7Ea", f"http://{HOST}/~a/%7Ea", 80, id="escapes stay"),
        pytest.param("http://p/a:b@c;d", f"http://{HOST}/a:b@c;d", 80, id="a path may have an @"),
        pytest.param(
            "http://p/a?b=http://c/../d&e={f}&g[]=%20+h?",
            f"http://{HOST}/a?b=http://c/../d&e={{f}}&g[]=%20+h?",
            80,
            id="a query stays as it is",
        ),
        pytest.param("http://pod/a?", f"http://{HOST}/a", 80, id="an empty query is none"),
        pytest.param("http://p/.a/b../...", f"http://{HOST}/.a/b../...", 80, id="dots in names"),
    ],
)
def test_every_plain_url_is_taken(url: str, expected: str, port: int) -> None:
    """DELAY-04: scheme, port, path and query are kept."""
    endpoint = plan(url)

    assert isinstance(endpoint, Endpoint), endpoint
    assert (named(endpoint), endpoint.port) == (expected, port)
    assert_is_plain(endpoint)


def test_a_target_is_the_same_for_all_pods() -> None:
    assert plan_delay_target("https://a:1/b/c?d=e", "service") == DelayTarget(
        scheme="https", port=1, shows_port=True, path="b/c", query="d=e", service="service"
    )


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        pytest.param("", 'is no http or https URL: ""', id="empty"),
        pytest.param("pod/a", 'is no http or https URL: "pod/a"', id="no scheme"),
        pytest.param("ftp://pod/a", 'is no http or https URL: "ftp://pod/a"', id="ftp"),
        pytest.param(
            "http://a b/",
            'has a blank or another character that stands in no URL: "http://a b/"',
            id="blank",
        ),
        pytest.param(
            "http://u:secret@pod/a",
            'has a user, and pods are sent no credentials: "http://***@pod/a"',
            id="SI-23 a password is not shown",
        ),
        pytest.param(
            "http://u:p/w@pod/a",
            'has no port from 1 to 65535: "http://***@pod/a"',
            id="SI-23 nor one with a slash",
        ),
        pytest.param(
            "u:secret@pod", 'is no http or https URL: "***@pod"', id="SI-23 nor without scheme"
        ),
        pytest.param("http://a%2fb/", 'has a host that is none: "http://a%2fb/"', id="host"),
        pytest.param(
            "http://pod:/", 'has no port from 1 to 65535: "http://pod:/"', id="empty port"
        ),
        pytest.param(
            "http://pod/a#b", 'has a fragment, which no pod would be sent: "http://pod/a#b"', id="#"
        ),
        pytest.param(
            'http://pod/"a"',
            'has a path with characters that must be escaped: "http://pod/\\"a\\""',
            id="quotes",
        ),
        pytest.param(
            "http://pod/a/../b", 'has a path with . or .. in it: "http://pod/a/../b"', id="dots"
        ),
        pytest.param(
            "http://pod/a%2", 'has a % that begins no escape: "http://pod/a%2"', id="escape"
        ),
        pytest.param(
            "http://pod/a?b=%0a",
            'has an escaped control character: "http://pod/a?b=%0a"',
            id="control character",
        ),
    ],
)
def test_what_is_refused_is_named(url: str, problem: str) -> None:
    """DELAY-03: the annotation, what is wrong, and the value."""
    assert plan(url) == f"{ANNOTATION} {problem}"


def test_long_urls_are_refused() -> None:
    """SI-23: and not printed in full."""
    longest = "http://pod/" + "a" * 1013
    assert isinstance(plan(longest), Endpoint)

    refusal = plan(longest + "a")
    assert isinstance(refusal, str)
    assert refusal.startswith(f'{ANNOTATION} is longer than 1024 characters: "http://pod/aaa')
    assert len(refusal) < 400


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"service": ""}, "the serviceName is not set or empty."),
        ({"service": "a.b"}, 'the serviceName is no DNS label: "a.b"'),
        ({"ip": ""}, "pod prod-statefulset-1 has no address yet"),
        ({"ip": "10.1.2"}, 'pod prod-statefulset-1 has no valid address: "10.1.2"'),
        ({"name": "a_b"}, 'the name of a pod is no DNS name: "a_b"'),
        ({"domain": "a b"}, 'the cluster domain is no DNS name: "a b"'),
    ],
)
def test_names_and_addresses_are_judged_as_ever(changes: dict[str, str], expected: str) -> None:
    """DELAY-13, SEC-10: the same rules as for `planning.requests`."""
    assert plan("http://pod/a", **changes) == expected


# What breaks out of its place in a URL, a header or a message, wherever it stands.
BREAKERS = (
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


def hostile() -> Iterator[str]:
    for breaker in BREAKERS:
        yield f"ht{breaker}tp://pod/a"
        yield f"http://p{breaker}d/a"
        yield f"http://pod:8{breaker}0/a"
        yield f"http://pod/a{breaker}"
        yield f"http://pod/a?b={breaker}"
    yield from URLS


@pytest.mark.parametrize(
    "url", [pytest.param(one, id=f"{at} {one[:30]!a}") for at, one in enumerate(hostile())]
)
def test_what_is_hostile_is_refused(url: str) -> None:
    """SEC-10, SI-23: by words on one printable line, however long the value is."""
    refusal = plan(url)

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
def test_what_is_planned_is_plain_or_refused(url: str) -> None:
    """SEC-10: nothing in between, and no error."""
    planned = plan(url)

    if isinstance(planned, str):
        assert planned.isprintable()
    else:
        assert_is_plain(planned)
        assert planned.host == HOST
