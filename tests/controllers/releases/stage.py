"""The commands of stories of the controller of Rollouts: what people do, what fails, its passes.

What is shown is new: calls, tags of the history and of the OCIRepositories, `Ready`, and events.
"""

import json
import re
from collections import deque
from datetime import timedelta
from typing import Any, Final

from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.model import names
from rollout_operator.model.budget import EventKind, Regarding
from rollout_operator.model.outcome import Severity
from rollout_operator.releases.model.releases import ImageReference, ReleaseMetadata
from rollout_operator.releases.registry import RegistryAccess, ReleaseNotFound
from rollout_operator.releases.sources import ReleaseLookUps
from tests import stories
from tests.controllers.fake_client import Json
from tests.controllers.releases.bench import FakeReleaseApi, ReleaseBench
from tests.virtual_time import VirtualClock

PREFIX: Final = "rollout.kuberik.com/"
KEPT: Final = ("releasesImagePolicy",)
LONG: Final = re.compile(r"(\w)\*(\d+)")
SHORT: Final = {"ocirepositories": "oci", "kustomizations": "ks", "rollouts/status": "status"}


class NoImages:
    """Registries without any image."""

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        raise ReleaseNotFound(f"{image}: there is none")


class ControllerStage(stories.Steps):
    """A Rollout `app`, its policy, and an OCIRepository; the caches know them."""

    def __init__(self) -> None:
        self.bench = ReleaseBench()
        self.calls = 0
        self.events = 0
        self.shown = {"history": "", "oci/app": "none", "Ready": "", "annotated": "none"}

    def look(self) -> list[str]:
        calls, self.calls = self.bench.api.calls[self.calls :], len(self.bench.api.calls)
        events, self.events = self.bench.events[self.events :], len(self.bench.events)
        before, self.shown = self.shown, self._describe()
        changed = [f"{key} {text}" for key, text in self.shown.items() if text != before.get(key)]
        for one in events:
            uid = one.regarding.uid
            assert one.regarding == Regarding(EventKind.RELEASE, "prod", "app", uid)
            assert uid in {"uid-app", "another"}
        signs = [f"{one.reason}{'!' * (one.severity is Severity.WARN)}" for one in events]
        return [
            *[f"calls {', '.join(map(_shorten, calls))}"] * bool(calls),
            *changed,
            *[f"events {' '.join(signs)}"] * bool(signs),
        ]

    def _describe(self) -> dict[str, str]:
        objects = self.bench.api.objects
        found: dict[str, str] = {}
        if ("rollouts", "app") in objects:
            status = self.bench.status
            found["history"] = " ".join(
                f"{one['version']['tag']}:{one['bakeStatus']}#{one['id']}{_show_more(one)}"
                for one in status.get("history", ())
            )
            ready = [one for one in status.get("conditions", ()) if one["type"] == "Ready"]
            found["Ready"] = "".join(f"{one['status']} {one['reason']}" for one in ready)
            metadata = objects["rollouts", "app"]["metadata"]
            pairs = metadata.get("annotations", {}).items()
            texts = [f"{key.removeprefix(PREFIX)}={_cut(text)}" for key, text in pairs]
            found["annotated"] = " ".join(texts) or "none"
        for plural, name in objects:
            if plural == "ocirepositories":
                found[f"oci/{name}"] = " ".join(objects[plural, name]["spec"]["ref"].values())
        return {key: text for key, text in found.items() if text or key in self.shown}

    async def do_rollout(self, *fields: str) -> None:
        """Begin with a Rollout with these fields in its spec."""
        self.bench = ReleaseBench(**_read(fields))

    async def do_spec(self, *fields: str) -> None:
        self.rollout["spec"] = {**self.rollout["spec"], **_read(fields)}

    @property
    def rollout(self) -> Json:
        found: Json = self.bench.api.objects["rollouts", "app"]
        return found

    async def do_annotate(self, *words: str) -> None:
        """Set annotations: `annotate retry=1 deploy-user=x*5000` has one of 5000 characters."""
        pairs = (word.partition("=") for word in words)
        self.rollout["metadata"]["annotations"] = {
            PREFIX + key: LONG.sub(lambda found: found[1] * int(found[2]), text)
            for key, _, text in pairs
        }

    async def do_ask(self, tag: str, text: str) -> str:
        """A person requests a new version, with this name and this message, in JSON."""
        self.bench.announce(tag)
        await self.bench.rest()
        said = json.loads(LONG.sub(lambda found: found[1] * int(found[2]), text))
        requested = {"force-deploy": tag, "deploy-user": said, "deploy-message": said}
        annotations = {f"{PREFIX}{key}": text for key, text in requested.items()}
        self.rollout["metadata"]["annotations"] = annotations
        await self.bench.rest()
        entry = self.bench.status["history"][0]
        return f"{_cut(entry['message'])} by {_cut(entry['triggeredBy']['name'])}"

    async def do_crowd(self, count: str) -> str:
        """So many Rollouts, each with a gate and objects of Flux; show what a pass of all costs."""
        names = [f"app-{number}" for number in range(int(count))]
        add = self.bench.api.add
        for name in names:
            add(kinds.ROLLOUTS, name, {"releasesImagePolicy": {"name": "app"}})
            add(kinds.ROLLOUT_GATES, name, {"rolloutRef": {"name": name}})
            annotated = {"annotations": {f"{PREFIX}rollout": name}}
            add(kinds.OCI_REPOSITORIES[0], name, {"ref": {}}, metadata=annotated)
            source = {"kind": "OCIRepository", "name": name}
            add(kinds.KUSTOMIZATIONS[0], name, {"sourceRef": source})
        before = 0
        for _ in range(4):
            before = len(self.bench.api.calls)
            self.bench.show()
            for name in names:
                await self.bench.step(name)
        self.calls, self.events = len(self.bench.api.calls), len(self.bench.events)
        self.shown = self._describe()
        found = [f"{one.kind}/{one.head.name}" for one in self.bench.flux.get_flux(names[7])]
        return f"{self.calls - before} calls; {names[7]} regards {' '.join(found)}"

    async def do_announce(self, tag: str) -> None:
        self.bench.announce(tag)

    async def do_fail(self, call: str, error: str, text: str, count: str = "1") -> None:
        """The next calls fail: `fail "apply ocirepositories" Refused no 3`."""
        kind = getattr(names, error)
        one = kind(text, status=404) if error == "NotFound" else kind(text)
        self.bench.api.errors.setdefault(call, deque()).extend([one] * int(count))

    async def do_add(self, plural: str, name: str, *words: str) -> None:
        """Add an object: `add oci also`, `add gate g closed`, `add ks app annotation=...`."""
        annotations = {PREFIX + key: text for key, text in _read(words).items()}
        gate: JsonObject = {"rolloutRef": {"name": "app"}, "passing": "closed" not in words}
        source: JsonObject = {"sourceRef": {"kind": "OCIRepository", "name": "app"}}
        made: dict[str, tuple[Resource, JsonObject]] = {
            "gate": (kinds.ROLLOUT_GATES, gate),
            "ks": (kinds.KUSTOMIZATIONS[0], source),
            "oci": (kinds.OCI_REPOSITORIES[0], {"ref": {"tag": "none"}}),
        }
        resource, spec = made[plural]
        self.bench.api.add(resource, name, spec, metadata={"annotations": annotations})

    async def do_remove(self, plural: str, name: str) -> None:
        del self.bench.api.objects[plural, name]

    async def do_mended(self) -> str:
        """Announce two versions while the spec is invalid, then mend it, and request the first."""
        good = {key: text for key, text in self.rollout["spec"].items() if key in KEPT}
        for tag in ("1.1.0", "1.2.0"):
            await self.do_announce(tag)
            await self.do_rest()
        invalid = "; ".join(self.look())
        self.rollout["spec"] = good
        await self.do_annotate("force-deploy=1.1.0")
        self.bench.show()
        await self.bench.step()
        return invalid

    async def do_replace(self) -> None:
        """Another Rollout of the same name."""
        spec = self.rollout["spec"]
        self.bench.api.add(kinds.ROLLOUTS, "app", spec, metadata={"uid": "another"})

    async def do_touch(self) -> None:
        """Another client writes the Rollout, and caches do not show it yet."""
        self.rollout["metadata"]["resourceVersion"] = "999"

    async def do_digest(self, digest: str) -> None:
        """The policy says it of its tag."""
        latest = self.bench.api.objects["imagepolicies", "app"]["status"]["latestRef"]
        latest["digest"] = f"sha256:{int(digest[7:]):064}"

    async def do_going(self) -> None:
        self.rollout["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    async def do_failed(self) -> None:
        """The current release is on record as failed."""
        failed = {**self.bench.status["history"][0], "bakeStatus": "Failed"}
        self.rollout["status"]["history"] = [failed]

    async def do_age(self, kind: str, minutes: str) -> None:
        """What is known of a kind was proved so long ago."""
        found = self.bench.wide_checks if kind == "elsewhere" else self.bench.kind(kind)
        found.proved_ago = timedelta(minutes=float(minutes))

    async def do_elsewhere(self, namespace: str, status: str, *labels: str) -> None:
        """A HealthCheck in another namespace."""
        self.bench.put_elsewhere(namespace, status, **_read(labels))

    async def do_during(self, verb: str, what: str) -> None:
        """While such a call is under way a gate is closed, or a version announced."""

        async def change(call: str) -> None:
            if call.startswith(verb) and what == "gate":
                await self.do_add("gate", "g", "closed")
                self.bench.show("rolloutgates")
            elif call.startswith(verb):
                self.bench.announce("1.2.0")

        self.bench.api.pause = change

    async def do_pinned(self, digest: str, manager: str) -> None:
        """Another writer has chosen tag and digest of the OCIRepository."""
        one = self.bench.api.objects["ocirepositories", "app"]
        one["spec"]["ref"]["digest"] = digest
        fields: Json = {"f:spec": {"f:ref": {"f:tag": {}, "f:digest": {}}}}
        one["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": fields}]

    async def do_tag(self, name: str, tag: str, manager: str = "") -> None:
        """A person changes what an OCIRepository runs."""
        one = self.bench.api.objects["ocirepositories", name]
        one["spec"]["ref"]["tag"] = tag
        one["metadata"]["resourceVersion"] = "900"
        fields: Json = {"f:spec": {"f:ref": {"f:tag": {}}}}
        held = [{"manager": manager, "fieldsV1": fields}] if manager else []
        one["metadata"]["managedFields"] = held

    async def do_hide(self, kind: str) -> None:
        self.bench.kind(kind).may_be_read = False

    async def do_find(self, kind: str) -> None:
        self.bench.kind(kind).may_be_read = True

    async def do_lose(self, *kinds: str) -> None:
        """Kinds are removed from the cluster."""
        for kind in kinds:
            self.bench.kind(kind).is_there = False

    async def do_have(self, *kinds: str) -> None:
        for kind in kinds:
            self.bench.kind(kind).is_there = True

    async def do_blind(self) -> None:
        """Other namespaces may not be read."""
        self.bench.namespaces.may_be_read = False

    async def do_keep(self) -> None:
        """Begin anew, with a flag by which other namespaces are left alone."""
        self.bench.restart(keeps_to_namespace=True)

    async def do_images(self, namespace: str, image: str, selected: str = "") -> None:
        """The policy reads an ImageRepository there, and Flux selected of this image."""
        body = {"image": image, "secretRef": {"name": "pull"}}
        metadata = {"namespace": namespace}
        self.bench.api.add(kinds.IMAGE_REPOSITORIES[0], "app", body, metadata=metadata)
        policy = self.bench.api.objects["imagepolicies", "app"]
        policy["spec"]["imageRepositoryRef"]["namespace"] = namespace
        policy["status"]["latestRef"]["name"] = selected or image

    async def do_registries(self, *words: str) -> None:
        """Begin anew, and call registries, which have no image at all."""
        clock = VirtualClock()
        secrets = FakeReleaseApi()
        secrets.add(kinds.SECRETS, "pull", {})
        self.look_ups = ReleaseLookUps(NoImages(), secrets, clock, lambda name, wait: None)
        self.bench.restart(look_ups=self.look_ups, verifies_wanted="verified" in words)

    async def do_answer(self) -> str:
        """Look up what is asked for; return how much that is."""
        count = self.look_ups.controller.depth
        for _ in range(count):
            key = await self.look_ups.controller.take()
            await self.look_ups.look_up(key)
        return f"{count} looked up"

    async def do_restart(self) -> None:
        self.bench.restart()

    async def do_show(self) -> None:
        """Caches catch up."""
        self.bench.show()

    async def do_wait(self, seconds: float) -> None:
        await VirtualClock().sleep(timedelta(seconds=seconds))

    async def do_step(self, count: str = "1") -> str:
        for _ in range(int(count)):
            result = await self.bench.step()
        return "" if result.again is None else f"again in {result.again.total_seconds():.3g}"

    async def do_rest(self) -> None:
        await self.bench.rest()

    async def do_say(self, *kinds: str) -> str:
        """Whole sentences of conditions, of the last event, or of all."""
        texts = [self.bench.condition(kind) for kind in kinds if kind[0].isupper()]
        first = {"event": -1, "events": 0}.get(kinds[-1], len(self.bench.events))
        notes = [f"{one.reason}: {one.note}" for one in self.bench.events[first:]]
        return "\n".join([*texts, *notes])


def _show_more(entry: Json) -> str:
    digest, retries = entry["version"].get("digest"), entry.get("retries")
    return f"{f'@{digest}' * bool(digest)}{f' retries {retries}' * bool(retries)}"


def _read(words: tuple[str, ...]) -> dict[str, Any]:
    pairs = (word.partition("=") for word in words if "=" in word)
    return {key: _value(text) for key, _, text in pairs}


def _value(text: str) -> object:
    return json.loads(text) if text[:1] in ("{", "[") or text.isdigit() else text


def _cut(text: str) -> str:
    return ascii(text)[1:-1] if len(text) < 40 else f"{text[0]}*{len(text)}"


def _shorten(call: str) -> str:
    for plural, short in SHORT.items():
        call = call.replace(plural, short)
    return call
