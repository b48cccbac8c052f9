"""MultiAZRollouts on the page, in its text and in its JSON; and no trace of them without."""

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import ConditionDescription
from rollout_operator.model.description import Description
from rollout_operator.planning.text import render_description
from rollout_operator.web.admin import list_document
from rollout_operator.web.cards import MOST_POLICIES
from tests.virtual_time import in_virtual_time
from tests.web.status.descriptions import HOSTILE, budget, describe, group, operator, policy
from tests.web.status.test_sections import SHOWN_HOSTILE, read


@in_virtual_time
async def test_a_group_that_a_policy_drives_leads_to_it() -> None:
    driven = replace(group(), policy="prod/db")
    page = await read(describe(driven, policies=(policy(),)))

    ids = {one["id"] for _, one in page.tags if "id" in one}
    links = [one["href"] for tag, one in page.tags if tag == "a" and one["href"].startswith("#p-")]
    assert len(links) == 1
    assert links[0].removeprefix("#") in ids
    assert "replaced by MultiAZRollout prod/db" in page.text


@in_virtual_time
async def test_no_text_of_a_tenant_is_more_than_text() -> None:
    hostile = policy(headline=HOSTILE, message=HOSTILE, zones=(HOSTILE, "b"))
    page = await read(describe(policies=(hostile,)))

    assert page.text.count(SHOWN_HOSTILE) >= 4


@in_virtual_time
async def test_a_batch_that_stalls_is_reported_on_the_page_and_in_its_text() -> None:
    stalled = ConditionDescription(
        type="Stalled", is_true=True, reason="ProgressDeadlineExceeded", message="db-a-1 crashes"
    )
    shown = replace(policy(), conditions=(stalled,), unknown_zones=("us-west-2d",))
    page = await read(describe(policies=(shown,)))
    text = "\n".join(render_description(describe(policies=(shown,))))

    assert "Progressing, stalled" in page.text
    assert "No rollout group" not in page.text
    assert "MultiAZRollout prod/db: Progressing, stalled, 5 of 6 ready" in text
    assert "  no StatefulSet is in us-west-2d, of azOrder" in text


@in_virtual_time
async def test_of_very_many_the_rest_is_counted() -> None:
    many = tuple(policy(f"db-{number}") for number in range(MOST_POLICIES + 2))
    held = replace(policy("zz-held"), phase="Blocked")
    described = describe(policies=(*many, held))
    page = await read(described)
    lines = [*render_description(described)]

    assert "3 more MultiAZRollouts" in page.text
    assert page.text.index("zz-held") < page.text.index("db-0")
    assert lines[2].startswith("MultiAZRollout prod/zz-held: Blocked")


@in_virtual_time
async def test_where_policies_are_not_obeyed_nothing_is_said_of_them() -> None:
    plain = describe(group(), operator=operator(), budgets=(budget(),))
    document = b"".join(list_document(plain))

    keys = list(msgspec.json.decode(document))
    assert keys == [
        *("schema_version", "namespace", "now", "operator", "groups", "budgets", "namespaces")
    ]
    assert b"polic" not in document
    assert not any("MultiAZ" in line for line in render_description(plain))
    assert "MultiAZ" not in (await read(plain)).text


def test_where_policies_are_obeyed_and_there_is_none_that_is_said() -> None:
    document = b"".join(list_document(describe(policies=())))

    assert msgspec.json.decode(document, type=Description).policies == ()
