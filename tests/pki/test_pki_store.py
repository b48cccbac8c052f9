"""The Secret as it is read and written: TLS-10, TLS-14, SEC-14."""

import pytest

from rollout_operator.kube.api import Resource
from rollout_operator.model.names import Conflict, Denied, NotFound, Unreachable
from rollout_operator.pki.certificates import KeyMaterial, SecretStore
from tests.pki.fake_secrets import MADE_BY_US, NAME, NAMESPACE, FakeSecrets

FULL = KeyMaterial(
    cert=b"1", key=b"2", ca=b"3", ca_key=b"4", next_ca=b"5", next_ca_key=b"6", old_ca=b"7"
)


def store_of(secrets: FakeSecrets) -> SecretStore:
    return SecretStore(secrets, namespace=NAMESPACE, name=NAME)


async def test_what_is_written_is_read() -> None:
    """TLS-10: the keys of the data, ours beside those of every version."""
    secrets = FakeSecrets()
    store = store_of(secrets)
    await store.write(await store.fetch(), FULL)
    assert (await store.fetch()).material == FULL
    assert secrets.data == {
        "ca": b"3",
        "cert": b"1",
        "key": b"2",
        "ca-key": b"4",
        "next-ca": b"5",
        "next-ca-key": b"6",
        "old-ca": b"7",
    }


async def test_a_replaced_secret_keeps_what_is_not_ours() -> None:
    secrets = FakeSecrets(
        {"old-ca": b"gone", "tls.crt": b"kept"}, labels={"a": "b"}, annotations={"c": "d"}
    )
    assert secrets.body is not None
    secrets.body["type"] = "example.org/any"
    store = store_of(secrets)
    await store.write(await store.fetch(), KeyMaterial(ca=b"1", cert=b"2", key=b"3"))
    assert secrets.data == {"ca": b"1", "cert": b"2", "key": b"3", "tls.crt": b"kept"}
    assert secrets.body["type"] == "example.org/any"
    assert secrets.body["metadata"] == {
        "name": NAME,
        "namespace": NAMESPACE,
        "uid": "u-1",
        "resourceVersion": "2",
        "labels": {"a": "b", **MADE_BY_US},
        "annotations": {"c": "d"},
    }


async def test_a_lost_race_is_reported() -> None:
    """TLS-14: never over what another client has written since it was read."""
    secrets = FakeSecrets()
    store = store_of(secrets)
    before = await store.fetch()
    assert before.problem == "there is no secret"
    secrets.put({"ca": b"theirs"})
    with pytest.raises(Conflict):
        await store.write(before, FULL)
    before = await store.fetch()
    secrets.put({"ca": b"theirs again"})
    with pytest.raises(Conflict):
        await store.write(before, FULL)
    secrets.body = None
    with pytest.raises(NotFound):
        await store.write(before, FULL)


async def test_a_secret_that_may_not_be_created_is_named_with_the_way_out() -> None:
    """W-22, SEC-17: the shipped Role has no such right, since the Secret is shipped empty."""
    secrets = FakeSecrets()
    store = store_of(secrets)
    before = await store.fetch()
    secrets.fail_writes = Denied("forbidden; grant verb create", call="create secrets", status=403)
    with pytest.raises(Denied) as raised:
        await store.write(before, FULL)
    assert str(raised.value) == (
        "secret prod/certificate does not exist: create it empty"
        " (kubectl create secret generic certificate --namespace prod),"
        " or let this do it: forbidden; grant verb create"
    )
    assert (raised.value.status, raised.value.call) == (403, "create secrets")
    secrets.fail_writes = Denied("no such token", status=401)
    with pytest.raises(Denied, match=r"^no such token$"):
        await store.write(before, FULL)


class Garbage(FakeSecrets):
    async def fetch(self, resource: Resource, namespace: str, name: str) -> bytes:
        return b'["private"]'


async def test_an_answer_that_is_no_secret_is_no_answer() -> None:
    with pytest.raises(Unreachable, match="cannot read secret prod/certificate") as raised:
        await store_of(Garbage()).fetch()
    assert "private" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("text", ["%%%", "YQ", "YQ==\nYQ==", "ä"])
async def test_a_value_that_is_not_base64_is_named_and_not_shown(text: str) -> None:
    """SEC-14."""
    secrets = FakeSecrets()
    secrets.put_raw({"key": text})
    stored = await store_of(secrets).fetch()
    assert stored.problem == "data.key: not base64"
    assert stored.material == KeyMaterial()


@pytest.mark.parametrize(
    ("data", "type_", "is_empty"),
    [
        pytest.param(None, None, True, id="no data"),
        pytest.param({}, "Opaque", True, id="no entry"),
        pytest.param({"cert": "", "any": ""}, "Opaque", True, id="a placeholder: empty values"),
        pytest.param({"password": "YQ=="}, "Opaque", False, id="data of others"),
        pytest.param({"cert": "YQ=="}, None, False, id="data under one of our keys"),
        pytest.param(
            {"tls.crt": "", "tls.key": ""}, "kubernetes.io/tls", False, id="to be filled by others"
        ),
    ],
)
async def test_what_counts_as_empty(data: object, type_: str | None, is_empty: bool) -> None:
    """D-31: a Secret that was shipped to be filled by us."""
    secrets = FakeSecrets()
    secrets.put_raw(data)
    assert secrets.body is not None
    if type_ is not None:
        secrets.body["type"] = type_
    assert (await store_of(secrets).fetch()).is_empty is is_empty


async def test_no_text_of_what_was_read_shows_a_key() -> None:
    """SEC-14."""
    secrets = FakeSecrets({"key": b"PRIVATE", "ca-key": b"PRIVATE"})
    stored = await store_of(secrets).fetch()
    assert "PRIVATE" not in repr(stored)
    assert "UFJJVkFURQ" not in repr(stored)
