"""What was read again takes the place of what could not be decoded (LI-02, SI-07, SI-09)."""

import pytest

from rollout_operator.kube.cache.store import PodStore
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, Unreadable


def pod(name: str = "a-0", *, version: str, uid: str = "u") -> Pod:
    return Pod(namespace="prod", name=name, uid=Uid(uid), resource_version=version)


def unreadable(version: str) -> Unreadable:
    return Unreadable(
        kind="Pod",
        namespace="prod",
        name="a-0",
        uid=Uid("u"),
        resource_version=version,
        error="status.phase: expected str, got int",
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(pod(version="5"), [("a-0@5", "a-0@5")], id="LI-02 the same version, whole"),
        pytest.param(pod(version="9"), [("a-0@5", "a-0@9")], id="LI-02 a newer version"),
        pytest.param(pod(version="9", uid="n"), [("a-0@5", ""), ("", "a-0@9")], id="SI-07 new"),
        pytest.param(None, [("a-0@5", "")], id="LI-02 gone"),
        pytest.param(pod(version="4"), [], id="SI-09 an older version"),
        pytest.param(pod("a-1", version="9"), [], id="SI-07 another object"),
        pytest.param(unreadable("5"), [], id="as it was"),
        pytest.param(unreadable("6"), [("a-0@5", "a-0@6")], id="unreadable still"),
    ],
)
def test_what_was_read_again_takes_the_place_of_what_it_was_read_for(
    found: Pod | Unreadable | None, expected: list[tuple[str, str]]
) -> None:
    store, broken = PodStore(), unreadable("5")
    store.upsert(broken)
    changes = store.heal(broken, found)
    assert [(_version(old), _version(new)) for old, new in changes] == expected
    assert store.unreadable_count == (not expected or isinstance(found, Unreadable))


def test_si09_what_was_stored_since_the_read_began_stays() -> None:
    store, broken = PodStore(), unreadable("5")
    store.upsert(broken)
    store.upsert(pod(version="6"))
    assert store.heal(broken, pod(version="9")) == ()
    assert store.heal(broken, None) == ()
    store.remove(pod(version="7"))
    assert store.heal(broken, pod(version="9")) == ()
    assert len(store) == 0


def _version(view: Pod | Unreadable | None) -> str:
    return "" if view is None else f"{view.name}@{view.resource_version}"
