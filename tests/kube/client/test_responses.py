"""Which error an answer becomes (FP-10 to FP-14, SI-18): by what the caller should do."""

import json
from datetime import timedelta

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, VALIDATING_WEBHOOKS, Call
from rollout_operator.kube.responses import (
    MAX_EXCERPT,
    Status,
    error_of,
    excerpt,
    parse_retry_after,
    read_mismatch,
    read_status,
)
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    Gone,
    InvalidInput,
    NotFound,
    Refused,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from tests.kube.fake_api import status_body

GET = Call(verb="get", resource=PODS, namespace="prod", name="a-0")
LIST = Call(verb="list", resource=PODS, namespace="prod")
DELETE = Call(verb="delete", resource=PODS, namespace="prod", name="a-0")
UPDATE = Call(
    verb="update", resource=STATEFULSETS, namespace="prod", name="a", subresource="status"
)
CREATE = Call(verb="create", resource=STATEFULSETS, namespace="prod")
PATCH = Call(verb="patch", resource=VALIDATING_WEBHOOKS, namespace="", name="guard")

USER = "system:serviceaccount:prod:rollout-operator"
BY_ROLE = f'pods "a-0" is forbidden: User "{USER}" cannot delete resource "pods" in API group ""'
BY_WEBHOOK = 'admission webhook "guard.example.org" denied the request: not today'
BY_POLICY = "pods \"a-0\" is forbidden: ValidatingAdmissionPolicy 'x' denied request: no"
NO_WEBHOOK = 'Internal error occurred: failed calling webhook "guard.example.org": timed out'


def status(code: int, reason: str = "", message: str = "") -> Status:
    return read_status(json.dumps(status_body(code, reason, message)).encode())


@pytest.mark.parametrize(
    ("call", "code", "reason", "message", "kind"),
    [
        pytest.param(GET, 401, "Unauthorized", "", Denied, id="401 read"),
        pytest.param(DELETE, 401, "Unauthorized", "", Denied, id="401 write"),
        pytest.param(DELETE, 403, "Forbidden", BY_ROLE, Denied, id="403 by role, write"),
        pytest.param(LIST, 403, "Forbidden", BY_ROLE, Denied, id="403 by role, read"),
        pytest.param(LIST, 403, "Forbidden", "odd", Denied, id="403 of any kind, read"),
        pytest.param(DELETE, 403, "Forbidden", BY_WEBHOOK, Refused, id="403 by webhook"),
        pytest.param(DELETE, 403, "Forbidden", BY_POLICY, Refused, id="403 by policy"),
        pytest.param(DELETE, 404, "NotFound", BY_WEBHOOK, Refused, id="webhook says 404"),
        pytest.param(DELETE, 409, "Conflict", BY_WEBHOOK, Refused, id="webhook says 409"),
        pytest.param(DELETE, 429, "TooManyRequests", BY_WEBHOOK, Refused, id="webhook says 429"),
        pytest.param(DELETE, 500, "InternalError", BY_WEBHOOK, Refused, id="webhook says 500"),
        pytest.param(DELETE, 500, "InternalError", NO_WEBHOOK, Refused, id="webhook is down"),
        pytest.param(GET, 404, "NotFound", "", NotFound, id="404"),
        pytest.param(DELETE, 404, "NotFound", "", NotFound, id="404 write"),
        pytest.param(DELETE, 409, "Conflict", "precondition", Conflict, id="FP-11 delete"),
        pytest.param(UPDATE, 409, "Conflict", "modified", Conflict, id="FP-11 update"),
        pytest.param(LIST, 410, "Expired", "", Gone, id="FP-10 list token"),
        pytest.param(LIST, 0, "Expired", "", Gone, id="FP-10 by its reason alone"),
        pytest.param(LIST, 429, "TooManyRequests", "", TooManyRequests, id="FP-12 read"),
        pytest.param(DELETE, 429, "TooManyRequests", "", TooManyRequests, id="FP-12 write"),
        pytest.param(CREATE, 409, "AlreadyExists", "", Conflict, id="TLS-13 create"),
        pytest.param(PATCH, 409, "Conflict", "modified", Conflict, id="FP-11 patch"),
        pytest.param(PATCH, 422, "Invalid", "an error", Conflict, id="a test of a patch failed"),
        pytest.param(PATCH, 422, "Invalid", BY_WEBHOOK, Refused, id="webhook says 422"),
        pytest.param(UPDATE, 422, "Invalid", "", Refused, id="422"),
        pytest.param(UPDATE, 400, "BadRequest", "", Refused, id="400"),
        pytest.param(GET, 500, "InternalError", "", Unreachable, id="FP-13 500 read"),
        pytest.param(GET, 503, "ServiceUnavailable", "", Unreachable, id="FP-13 503 read"),
        pytest.param(DELETE, 500, "InternalError", "etcd", UnknownOutcome, id="SI-18 500 write"),
        pytest.param(DELETE, 503, "", "refused", UnknownOutcome, id="SI-18 503 write"),
        pytest.param(UPDATE, 504, "Timeout", "", UnknownOutcome, id="SI-18 504 write"),
        pytest.param(GET, 200 + 400, "", "", Unreachable, id="an unknown code, read"),
        pytest.param(DELETE, 600, "", "", UnknownOutcome, id="an unknown code, write"),
    ],
)
def test_class_of_a_failure(
    call: Call, code: int, reason: str, message: str, kind: type[ApiError]
) -> None:
    error = error_of(call, code, status(code, reason, message))
    assert type(error) is kind
    assert (error.call, error.status, error.reason) == (call.text, code, reason)
    assert f"{error}" == f"cannot {call.text}: {error.problem}"
    assert call.text in str(error)


def test_refused_credentials_come_with_what_to_do() -> None:
    """PROC-02, D-40: `Unauthorized` alone says it of nothing and to no reader."""
    refused = status(401, "Unauthorized", "Unauthorized")
    complaint = (
        f"cannot {GET.text}: 401 Unauthorized: Unauthorized; the API server does not accept these"
        " credentials"
    )
    assert str(error_of(GET, 401, refused)) == complaint
    assert str(error_of(GET, 401, refused, log_in="log in again")) == f"{complaint}; log in again"


@pytest.mark.parametrize(
    ("call", "code", "kind"),
    [
        pytest.param(GET, 404, Unreachable, id="404: the object may well exist"),
        pytest.param(LIST, 404, NotFound, id="404: the kind is not installed"),
        pytest.param(DELETE, 404, UnknownOutcome, id="404 write"),
        pytest.param(DELETE, 403, Refused, id="403 write"),
        pytest.param(DELETE, 500, UnknownOutcome, id="a page that quotes a denial"),
        pytest.param(PATCH, 422, Refused, id="422: no word of a patch that does not apply"),
        pytest.param(GET, 511, Unreachable, id="511 without its body"),
    ],
)
def test_pages_of_proxies_prove_little(call: Call, code: int, kind: type[ApiError]) -> None:
    page = f"<html>{BY_WEBHOOK}</html>".encode()
    assert type(error_of(call, code, read_status(page))) is kind


def test_a_denied_call_names_what_the_role_lacks() -> None:
    error = error_of(UPDATE, 403, status(403, "Forbidden", f'x is forbidden: User "{USER}" cannot'
                                         ' update resource "statefulsets/status"'))  # fmt: skip
    assert str(error).startswith("cannot update statefulsets/a/status in namespace prod: 403 Forb")
    assert str(error).endswith(
        '; grant verb update on "statefulsets/status" in API group "apps" in its Role'
    )


def test_a_denied_call_on_the_cluster_names_its_role_and_no_namespace() -> None:
    message = f'x is forbidden: User "{USER}" cannot patch resource "x" at the cluster scope'
    error = error_of(PATCH, 403, status(403, "Forbidden", message))
    assert isinstance(error, Denied)
    assert str(error).startswith("cannot patch validatingwebhookconfigurations/guard: 403 Forb")
    assert str(error).endswith(
        '; grant verb patch on "validatingwebhookconfigurations"'
        ' in API group "admissionregistration.k8s.io" in its ClusterRole'
    )


@pytest.mark.parametrize(
    ("causes", "kind"),
    [
        pytest.param([], Conflict, id="does not apply: the object has changed"),
        pytest.param(
            [{"reason": "FieldValueInvalid", "field": "data"}], Refused, id="applies, but is wrong"
        ),
        pytest.param(
            [{"reason": "FieldValueInvalid", "field": "metadata.uid"}], Conflict, id="another UID"
        ),
    ],
)
def test_a_patched_object_that_is_invalid_names_its_fields(
    causes: list[object], kind: type[ApiError]
) -> None:
    body = status_body(422, "Invalid", "no", causes=causes)
    error = error_of(PATCH, 422, read_status(json.dumps(body).encode()))
    assert type(error) is kind


def test_fp_10_a_version_the_server_has_not_reached_is_reported_by_its_cause() -> None:
    body = status_body(504, "Timeout", "Too large resource version: 9, current: 1")
    body["details"] = {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1}
    error = error_of(LIST, 504, read_status(json.dumps(body).encode()))
    assert isinstance(error, Unreachable)
    assert error.reason == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("header", "seconds", "wait"),
    [
        pytest.param("3", 0, 3, id="FP-12 header"),
        pytest.param("3", 9, 3, id="FP-12 header before body"),
        pytest.param("", 9, 9, id="FP-12 body"),
        pytest.param("86400", 0, 60, id="FP-12 bounded"),
        pytest.param("9" * 400, 0, None, id="FP-12 absurd"),
        pytest.param("-5", 0, None, id="FP-12 negative"),
        pytest.param("٣", 0, None, id="FP-12 digits of another script"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", 0, None, id="FP-12 a date"),
        pytest.param("0", 0, None, id="FP-12 zero"),
        pytest.param("", 0, None, id="FP-12 nothing"),
    ],
)
def test_retry_after(header: str, seconds: int, wait: int | None) -> None:
    body = status_body(429, "TooManyRequests", "", retryAfterSeconds=seconds)
    found = read_status(json.dumps(body).encode())
    expected = None if wait is None else timedelta(seconds=wait)
    assert parse_retry_after(header, found) == expected
    error = error_of(LIST, 429, found, header)
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == expected


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\x00", b"[" * 60_000, b'{"kind":"Status","code":"x"}', b"null", b'{"kind":7}'],
    ids=["empty", "no text", "deep", "code is text", "null", "kind is a number"],
)
def test_an_unreadable_body_is_only_a_message(body: bytes) -> None:
    error = error_of(GET, 500, read_status(body))
    assert isinstance(error, Unreachable)
    assert str(error).isprintable()
    assert len(str(error)) < 2 * MAX_EXCERPT


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a\nb\x1b[31m", r"a\nb\x1b[31m", id="control characters"),
        pytest.param("x\u202ey", r"x\u202ey", id="text direction"),
        pytest.param("zürich", "zürich", id="letters stay"),
        pytest.param("x" * 300, "x" * 300, id="as long as may be"),
        pytest.param("x" * 301, "x" * 297 + "...", id="cut"),
        pytest.param(
            "Authorization: Bearer eyJhb.c-d_e",
            "Authorization: Bearer <redacted>",
            id="SEC-14 token",
        ),
        pytest.param("BASIC dXNlcjpwdw==;", "BASIC <redacted>", id="SEC-14 password"),
        pytest.param("http://me:pw@proxy:1/", "http://<redacted>@proxy:1/", id="SEC-14 userinfo"),
    ],
)
def test_excerpt(text: str, shown: str) -> None:
    assert excerpt(text) == shown


def test_rate_07_only_json_is_a_mismatch() -> None:
    body = b'{"cluster_validation_error_message":"wrong","route":"api"}'
    found = read_mismatch("application/json", body)
    assert found is not None
    assert (found.cluster_validation_error_message, found.route) == ("wrong", "api")
    assert read_mismatch("text/html", body) is None
    assert read_mismatch("application/json", b"{}") is None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_a_name_that_changes_the_path_is_never_sent(name: str) -> None:
    """`DELETE …/pods/` deletes them all, `DELETE …/pods/..` the namespace."""
    with pytest.raises(InvalidInput, match="names nothing"):
        Call(verb="delete", resource=PODS, namespace="prod", name=name)
    with pytest.raises(InvalidInput, match="names nothing"):
        Call(verb="list", resource=PODS, namespace=name)


def test_what_belongs_to_the_cluster_is_in_no_namespace() -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    call = Call(verb="list", resource=VALIDATING_WEBHOOKS, namespace="")
    assert (call.path, call.text) == (path, "list validatingwebhookconfigurations")
    assert PATCH.path == f"{path}/guard"
    with pytest.raises(InvalidInput, match="namespace: 'prod', but ValidatingWebhookConfig"):
        Call(verb="list", resource=VALIDATING_WEBHOOKS, namespace="prod")


def test_paths_are_quoted() -> None:
    assert Call(verb="get", resource=PODS, namespace="prod", name="a?b%").path.endswith("/a%3Fb%25")
