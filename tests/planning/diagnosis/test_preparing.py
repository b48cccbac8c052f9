"""Which pods are called where they are to be prepared, and what is not known afterwards."""

import pytest
from msgspec.structs import replace

from rollout_operator.model.diagnosis import LabelledPod, PathQuestion
from rollout_operator.model.names import (
    DOWNSCALE_DELAY_URL,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)
from rollout_operator.model.objects import Target
from rollout_operator.planning.doctor import diagnose, explain_unknown, plan_questions
from tests.planning.diagnosis.installations import answered, good, path_answer, with_sets, zone_set

LABELLED = {PREPARE_DOWNSCALE: "true"}
ZONE_B = PathQuestion(
    set_name="zone-b", pod="zone-b-0", target=Target(port=80, path="prepare", service="zone-b")
)


def test_the_first_ready_pod_of_each_labelled_set_is_called() -> None:
    assert plan_questions(good()) == (ZONE_B,)

    first, *others = (pod for pod in good().pods if pod.name.startswith("zone-b"))
    alike = LabelledPod(name="zone-b-0-0", is_ready=True)
    pods = (alike, replace(first, is_ready=False), *others)
    assert [one.pod for one in plan_questions(good(pods=pods))] == ["zone-b-1"]
    assert [one.pod for one in plan_questions(good(pods=(alike,)))] == [""]


def test_a_delay_is_called_by_its_own_scheme_without_its_query() -> None:
    url = "https://any/ingester/prepare?unset=true"
    late = zone_set("zone-c", annotations={DOWNSCALE_DELAY_URL: url})
    (_, question) = plan_questions(with_sets(late))

    target = question.target
    assert (target.scheme, target.port, target.path) == ("https", 443, "ingester/prepare")


@pytest.mark.parametrize(
    ("path", "replicas"), [("ingester/shutdown", 2), ("/ingester/flush", 2), ("../x", 2), ("x", 0)]
)
def test_nothing_is_called_that_may_act_or_cannot_be_called(path: str, replicas: int) -> None:
    places = {PREPARE_PATH: path, PREPARE_PORT: "80"}
    other = zone_set("zone-c", labels=LABELLED, annotations=places, replicas=replicas)

    assert plan_questions(with_sets(other)) == (ZONE_B,)


@pytest.mark.parametrize("status", [200, 204, 302, 400, 405, 500, 503])
def test_whatever_answers_serves_the_path(status: int) -> None:
    installation = answered(status)

    assert diagnose(installation).findings == ()
    assert explain_unknown(installation.path_answers) == ""


def test_what_is_not_known_is_reported_unless_something_is_found() -> None:
    message = "GET /prepare on port 80 of pod zone-b-0: HTTP status 401"
    assert explain_unknown([path_answer(200), path_answer(401)]) == message
    assert explain_unknown([path_answer(404), path_answer(401)]) == ""
    none = path_answer(problem="no pod is ready", pod="")
    assert explain_unknown([none, none]) == "no pod is ready of zone-b"
    refused = path_answer(problem="400 BadRequest: address not allowed")
    assert explain_unknown([refused]).endswith("zone-b-0: 400 BadRequest: address not allowed")
