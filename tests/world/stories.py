"""Histories for tests of the judge, told write by write."""

from dataclasses import dataclass, field, replace
from typing import Any

from tests.judge.objects import Budget, Change, Delete, Pod, Set
from tests.world.verdicts import Violation, find_violations

NAMESPACE = "world"


@dataclass
class Story:
    """Writes a history: three zones of three ready, outdated pods, told write by write."""

    at: float = 100.0
    version: int = 0
    changes: list[Change] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    objects: dict[str, Pod | Set | Budget] = field(default_factory=dict)

    def wait(self, seconds: float) -> None:
        self.at += seconds

    def write(self, key: str, now: Pod | Set | Budget | None) -> None:
        self.version += 1
        before = self.objects.pop(key, None)
        if now is not None:
            self.objects[key] = now
        name = key.partition("/")[2]
        self.changes.append(
            Change(version=self.version, at=self.at, name=name, before=before, now=now)
        )

    def pod(self, name: str) -> Pod:
        found = self.objects[f"pod/{name}"]
        assert isinstance(found, Pod)
        return found

    def change_set(self, zone: str, **changes: Any) -> None:
        found = self.objects[f"set/{zone}"]
        assert isinstance(found, Set)
        self.write(f"set/{zone}", replace(found, **changes))

    def change_pod(self, name: str, **changes: Any) -> None:
        self.write(f"pod/{name}", replace(self.pod(name), **changes))

    def ask(self, name: str, **changes: Any) -> None:
        """Let the operator delete a pod."""
        pod = self.pod(name)
        self.write(f"pod/{name}", replace(pod, is_terminating=True))
        granted = Delete(
            namespace=NAMESPACE,
            name=name,
            code=200,
            asked_uid=pod.uid,
            asked_version="1",
            uid=pod.uid,
            version=self.version,
        )
        self.deletes.append(replace(granted, **changes))

    def come_back(self, name: str, *, is_ready: bool = True) -> None:
        """Let the pod go and a new one take its place."""
        zone = name.rpartition("-")[0]
        self.write(f"pod/{name}", None)
        new = Pod(name=name, uid=f"{name}@{self.version}", owner=zone, revision="new")
        self.write(f"pod/{name}", replace(new, is_ready=False))
        if is_ready:
            self.write(f"pod/{name}", new)

    def verdict(self) -> list[Violation]:
        return find_violations(self.changes, self.deletes, namespace=NAMESPACE)

    def broken(self) -> set[str]:
        return {each.invariant for each in self.verdict()}


def begin() -> Story:
    """Return the beginning: nothing has happened for a minute."""
    told = Story()
    for zone in ("a", "b", "c"):
        told.write(f"set/{zone}", Set(name=zone, uid=zone, group="g", replicas=3))
        for ordinal in range(3):
            name = f"{zone}-{ordinal}"
            told.write(f"pod/{name}", Pod(name=name, uid=name, owner=zone, revision="old"))
    told.wait(60)
    return told
