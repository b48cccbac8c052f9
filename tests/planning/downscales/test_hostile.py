"""No hostile value becomes part of a request to a pod: SEC-10, SEC-12, D-27, SI-21, SI-23.

Whatever annotations, names and addresses say, they are refused, or the URL that is called means
the pod's own address, the port and the path, to every parser that reads it.
"""

import json
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from rollout_operator.model.objects import Endpoint
from rollout_operator.pods import render_url
from tests.model.cases import lengthen
from tests.planning.downscales.test_tables import plan_call

HOST = "test-4.service-name.default.svc.cluster.local."
ANNOTATION = "the grafana.com/rollout-prepare-delayed-downscale-url annotation"


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


# `hostile.json` has what breaks out of its place in a URL, a header or a message, wherever it is,
# and in one place only; `{x * 300}` stands for so many.
VECTORS: Final[dict[str, list[str]]] = {
    key: lengthen(texts)
    for key, texts in json.loads(Path(__file__).with_name("hostile.json").read_text()).items()
}


def hostile() -> Iterator[tuple[str, str]]:
    for breaker in VECTORS["everywhere"]:
        yield "port", f"80{breaker}"
        yield "path", f"a{breaker}.."
        yield "service", f"a{breaker}b"
        yield "domain", f"cluster{breaker}local"
        yield "ip", f"10.0.0.1{breaker}"
        yield "name", f"test{breaker}4"
        yield "namespace", f"a{breaker}b"
    for field in ("port", "path", "domain", "ip"):
        yield from ((field, text) for text in VECTORS[field])
    for field in ("service", "namespace", "name"):
        yield from ((field, text) for text in VECTORS["label"])
    yield from (("service", "a.b"), ("namespace", "a.b"))
    for breaker in VECTORS["in a url"]:
        yield "url", f"ht{breaker}tp://pod/a"
        yield "url", f"http://p{breaker}d/a"
        yield "url", f"http://pod:8{breaker}0/a"
        yield "url", f"http://pod/a{breaker}"
        yield "url", f"http://pod/a?b={breaker}"
    yield from (("url", text) for text in VECTORS["url"])


@pytest.mark.parametrize(
    ("field", "text"),
    [pytest.param(*one, id=f"{at} {one[0]} {one[1][:30]!a}") for at, one in enumerate(hostile())],
)
def test_what_is_hostile_is_refused(field: str, text: str) -> None:
    """SEC-10: by words on one printable line, however long the value is (SI-23)."""
    refusal = plan_call(**{field: text})

    assert isinstance(refusal, str), refusal
    assert field != "url" or refusal.startswith(ANNOTATION)
    assert refusal.isprintable()
    assert len(refusal) < 400


names = st.text(st.sampled_from("aZ0-._@/:")) | st.text()
addresses = st.text(st.sampled_from("0127.:%[]fa")) | st.text()
fields = st.fixed_dictionaries(
    {},
    optional={
        "port": st.text(max_size=8) | st.integers(0, 99_999).map(str),
        "path": st.text(st.sampled_from("aZ0._~-/%?#@:\\ \n\u00e4")) | st.text(),
        **dict.fromkeys(("service", "domain", "name", "namespace"), names),
        "ip": st.ip_addresses().map(str) | addresses,
    },
)
urls = st.builds(
    "{}{}{}".format,
    st.sampled_from(["http://", "https://", "HTTP://pod", "http://[::1]", "http:", ""]),
    st.text(st.sampled_from("aZ0.:@/?#%2eEfF[]\\ &=~-_\n\u00e4"), max_size=20) | st.text(),
    st.text(st.sampled_from("aZ0./?%2eEfF&=~;@:-_{}"), max_size=20),
)


@given(fields)
def test_what_is_planned_is_plain_or_refused(changes: dict[str, str]) -> None:
    """SEC-10: nothing in between, and no error; and of a path nothing more than a path."""
    planned = plan_call(**changes)

    if isinstance(planned, str):
        assert planned.isprintable()
    else:
        assert_is_plain(planned)
        assert (planned.scheme, planned.query) == ("http", "")
        assert not set(render_url(planned)) & set("%?@")


@given(urls)
def test_what_is_planned_of_a_url_is_plain_or_refused(url: str) -> None:
    """SEC-10."""
    planned = plan_call(url=url)

    if isinstance(planned, str):
        assert planned.isprintable()
    else:
        assert_is_plain(planned)
        assert planned.host == HOST


def test_sec10_there_are_many_vectors() -> None:
    """SEC-10: at least 300; and the longest URL is taken (SI-23)."""
    assert len({one for one in hostile() if one[0] != "url"}) >= 300
    longest = "http://pod/" + "a" * 1013
    assert isinstance(plan_call(url=longest), Endpoint)
    assert isinstance(plan_call(url=longest + "a"), str)
