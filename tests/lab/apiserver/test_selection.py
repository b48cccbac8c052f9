"""Selectors of queries: which objects they take, and which are refused or not modelled."""

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Resource
from rollout_operator.lab.apiserver.selection import read_selection
from rollout_operator.lab.model.request import ApiRefusal, NotModelled
from rollout_operator.lab.schemas.kinds import CONFIG_MAPS, NODES

OBJECTS: dict[str, JsonObject] = {
    "plain": {"metadata": {"name": "plain", "namespace": "prod"}},
    "blue": {"metadata": {"name": "blue", "labels": {"color": "blue", "app": "x"}}},
    "red": {"metadata": {"name": "red", "labels": {"color": "red", "long.io/a_b": ""}}},
    "ready": {
        "metadata": {"name": "ready"},
        "status": {"phase": "Running"},
        "spec": {"nodeName": "n1"},
    },
}


def taken(resource: Resource, **query: str) -> list[str]:
    selection = read_selection(resource, query)
    return [name for name, obj in OBJECTS.items() if selection.takes(obj)]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("color=blue", ["blue"], id="equal"),
        pytest.param("color==blue", ["blue"], id="equal, doubled"),
        pytest.param("color!=blue", ["plain", "red", "ready"], id="unequal takes the absent too"),
        pytest.param("color in (blue, red)", ["blue", "red"], id="in"),
        pytest.param("color notin (blue)", ["plain", "red", "ready"], id="notin"),
        pytest.param("color", ["blue", "red"], id="exists"),
        pytest.param("!color", ["plain", "ready"], id="absent"),
        pytest.param("color,app", ["blue"], id="both"),
        pytest.param("color in (blue,red),app!=x", ["red"], id="a set and a comparison"),
        pytest.param(" color = blue , app = x ", ["blue"], id="blanks"),
        pytest.param("long.io/a_b=", ["red"], id="an empty value is a value"),
        pytest.param("color=", [], id="and no other one"),
        pytest.param("", list(OBJECTS), id="nothing asked"),
    ],
)
def test_label_selectors_take(selector: str, expected: list[str]) -> None:
    assert taken(PODS, labelSelector=selector) == expected


@pytest.mark.parametrize("selector", ["a=b,", "a=b c", "=b", "a in b", "a in (b", "!", ",a"])
def test_a_malformed_label_selector_is_a_bad_request(selector: str) -> None:
    with pytest.raises(ApiRefusal) as caught:
        read_selection(PODS, {"labelSelector": selector})
    assert (caught.value.status, caught.value.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("resource", "selector", "expected"),
    [
        pytest.param(STATEFULSETS, "metadata.name=blue", ["blue"], id="name"),
        pytest.param(STATEFULSETS, "metadata.namespace==prod", ["plain"], id="namespace"),
        pytest.param(STATEFULSETS, "metadata.name!=blue", ["plain", "red", "ready"], id="not name"),
        pytest.param(PODS, "status.phase=Running,spec.nodeName=n1", ["ready"], id="of pods"),
        pytest.param(PODS, "spec.nodeName=", ["plain", "blue", "red"], id="no node"),
    ],
)
def test_field_selectors_take(resource: Resource, selector: str, expected: list[str]) -> None:
    assert taken(resource, fieldSelector=selector) == expected


@pytest.mark.parametrize(
    ("resource", "selector", "message"),
    [
        pytest.param(
            CONFIG_MAPS,
            "data.x=1",
            '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
            id="a kind that knows but these two",
        ),
        pytest.param(PODS, "spec.x=1", "field label not supported: spec.x", id="pods"),
        pytest.param(
            PODS, "nonsense", "invalid selector: 'nonsense'; can't understand 'nonsense'", id="form"
        ),
    ],
)
def test_other_fields_are_a_bad_request(resource: Resource, selector: str, message: str) -> None:
    with pytest.raises(ApiRefusal) as caught:
        read_selection(resource, {"fieldSelector": selector})
    assert (caught.value.status, caught.value.message) == (400, message)


@pytest.mark.parametrize(
    ("resource", "selector"),
    [(PODS, "spec.hostNetwork=true"), (NODES, "spec.unschedulable=true"), (PODS, "a=\\,")],
)
def test_what_the_real_server_knows_and_this_one_does_not_is_said(
    resource: Resource, selector: str
) -> None:
    with pytest.raises(NotModelled):
        read_selection(resource, {"fieldSelector": selector})
