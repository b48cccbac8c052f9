"""The routes of the status page over a real socket."""

import asyncio
import re
from base64 import b64encode
from hashlib import sha256

import msgspec
import pytest

from rollout_operator.model.description import Description
from rollout_operator.model.outcome import Code
from rollout_operator.web.admin import render_schema
from tests.code_rules import ROOT
from tests.pages import chapter_of
from tests.web.served import ServedAdmin, serving_admin, showing
from tests.web.status.descriptions import (
    HOSTILE,
    budget,
    describe,
    group,
    health_check,
    operator,
    policy,
    release,
    release_schedule,
    waiting,
)
from tests.web.status.elements import Elements
from tests.web.status.streams import BROWSER

SCHEMA = ROOT / "docs" / "status.schema.json"
PAGES = ("/", "/status", "/reasons")


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_may_do_nothing_but_what_it_brings(path: str) -> None:
    """The policy allows the two pieces in the page by their hashes, and calls to its own server."""
    async with showing() as shown:
        shown.now = describe(group(waits=(waiting(HOSTILE),)))
        async with shown.client.get(shown.url(path), headers=BROWSER) as answer:
            policy = answer.headers["Content-Security-Policy"]
            html = await answer.text()
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    hashes = {
        tag: "'sha256-" + b64encode(sha256(text.encode()).digest()).decode() + "'"
        for tag, text in re.findall(r"<(style|script)>(.*?)</\1>", html, re.DOTALL)
    }

    assert rules.pop("style-src") == hashes.pop("style")
    assert rules.pop("script-src") in {*hashes.values()} or path == "/reasons"
    assert rules == {
        "default-src": "'none'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert [*Elements(html).list_active()] == []
    assert "<noscript><meta" in html or path == "/reasons"


async def test_the_document_is_what_the_schema_says() -> None:
    """SCHEMA_VERSION 1: decoded by the type that the schema is made of, it is the same again."""
    everything = describe(
        group(waits=(waiting(HOSTILE),)),
        group("second", code=None),
        operator=operator(missing=("pods: not followed yet",)),
        budgets=(budget(), budget("second")),
        policies=(policy(), policy("second")),
        releases=(release(), release("second", text=HOSTILE)),
        schedules=(release_schedule(),),
        health_checks=(health_check(),),
    )
    for description in (everything, describe()):
        async with showing() as shown:
            shown.now = description
            async with shown.client.get(shown.url("/status.json")) as answer:
                assert answer.content_type == "application/json"
                body = await answer.read()
        assert msgspec.json.decode(body, type=Description) == description
        assert msgspec.json.decode(body)["schema_version"] == 1


async def test_the_schema_is_served_and_stands_in_the_documents(admin: ServedAdmin) -> None:
    """A change of it is a change of an interface, and is seen in review."""
    _, text = await admin.get("/status.schema.json")

    assert text.encode() == render_schema()
    assert SCHEMA.read_bytes() == render_schema(), "write it anew: python -m tests.pictures schema"
    assert Code.SEVERAL_ZONES_NOT_READY not in text, "a new reason is no new schema"


def test_every_field_is_explained() -> None:
    page = chapter_of("commands.md", "The status page")
    definitions = msgspec.json.decode(render_schema())["$defs"]
    fields = {name for one in definitions.values() for name in one.get("properties", {})}

    assert {field for field in fields if f"`{field}`" not in page} == set()


async def test_all_reasons_have_an_anchor_and_a_line(admin: ServedAdmin) -> None:
    _, text = await admin.get("/reasons")
    _, html = await admin.get("/reasons", **BROWSER)
    anchors = {one.get("id", "") for _, one in Elements(html).tags}

    assert {*Code} <= anchors
    assert {*Code} <= {*text.splitlines()}


async def test_before_anything_is_known_the_page_says_what_is_missing() -> None:
    async with serving_admin() as admin:
        _, text = await admin.get("/status")
        _, html = await admin.get("/", **BROWSER)
        _, document = await admin.get("/status.json")

    assert "not ready" in text
    assert "operator: starting" in text
    assert "Not ready operator: starting" in Elements(html).text
    assert msgspec.json.decode(document)["operator"]["missing"] == ["operator: starting"]


async def test_nothing_is_described_without_a_request_and_once_for_many() -> None:
    async with showing() as shown:
        for path in ("/metrics", "/ready", "/reasons", "/status.schema.json"):
            await shown.get(path)
        assert shown.requested == 0
        paths = ("/", "/status", "/status.json")
        await asyncio.gather(*(shown.get(path) for path in paths for _ in range(10)))
        assert shown.requested == 1


async def test_routes_in_metrics_are_few(admin: ServedAdmin) -> None:
    """DEP: what a client types is no label."""
    for path in (*PAGES, "/status.json", "/status.schema.json", "/status/x", "/reasons/y"):
        await admin.get(path)
    shown = {re.findall('route="([^"]*)"', line)[0] for line in admin.series("inflight_requests")}

    assert shown == {"root", "status", "status_json", "status_schema_json", "reasons", "other"}
