"""The commands of stories of one Rollout: what people set, what fails, and what its process does.

A Rollout `app`, its policy and its OCIRepositories are given before the process runs. What is
shown is new: calls but for lists and watches, `try` for a trial and a `!` where one was refused;
the history; tags of OCIRepositories; the condition `Ready`; Events, `!` for a warning, and how many
of them were counted again.
"""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, Final

from rollout_lab.model.history import Called
from rollout_lab.network.faults import Failure, FaultOutcome

from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import JsonObject, Resource
from tests.controllers.releases.sandbox_stage import KINDS, OTHERS, OURS, SandboxStage

PREFIX: Final = "rollout.kuberik.com/"
HURRY: Final = "reconcile.fluxcd.io/requestedAt"
LONG: Final = re.compile(r"(\w)\*(\d+)")
SHORT: Final = {"ocirepositories": "oci", "kustomizations": "ks"}
SLOW: Final = FaultOutcome(after=timedelta(seconds=2))
POLICY: Final = {"releasesImagePolicy": {"name": "app"}}


class PassStage(SandboxStage):
    """A process that is shown call by call."""

    told = 0
    shows_events = True

    def look(self) -> list[str]:
        calls = [one for one in self.world.sandbox.history.list_all(Called) if one.actor == OURS]
        new, self.told = calls[self.told :], len(calls)
        before, self.shown = self.shown, dict(self._describe())
        changed = [f"{key} {text}" for key, text in self.shown.items() if text != before.get(key)]
        runs = [(text, len([*same])) for text, same in groupby(filter(None, map(_tell, new)))]
        counted = [_count(*each) for each in runs]
        events = _list_events(new)
        assert {one["regarding"]["kind"] for one in events} <= {"Rollout"}
        signs = [f"{one['reason']}{'!' * (one['type'] == 'Warning')}" for one in events]
        again = sum(
            (one.request.resource, one.request.verb) == (kinds.EVENTS, "patch") for one in new
        )
        failed = [_count(*each) for each in self.trouble.failed.items()]
        self.trouble.failed.clear()
        return [
            *[f"fails {', '.join(failed)}"] * bool(failed),
            *[f"calls {', '.join(counted)}"] * bool(counted),
            *changed,
            *[f"events {' '.join(signs)}"] * bool(signs),
            *[f"{again} events again"] * bool(again),
        ]

    def _describe(self) -> Iterator[tuple[str, str]]:
        for body in self.world.list_all(kinds.ROLLOUTS):
            name, status = body["metadata"]["name"], body.get("status", {})
            yield f"history{_of(name)}", " ".join(map(_show_entry, status.get("history", ())))
            ready = [one for one in status.get("conditions", ()) if one["type"] == "Ready"]
            yield f"Ready{_of(name)}", "".join(f"{one['status']} {one['reason']}" for one in ready)
            pairs = body["metadata"].get("annotations", {}).items()
            texts = [f"{key.removeprefix(PREFIX)}={_cut(text)}" for key, text in pairs]
            yield f"annotated{_of(name)}", " ".join(texts) or "none"
        for body in self.world.list_all(kinds.OCI_REPOSITORIES[0]):
            ref = [*body["spec"].get("ref", {}).values()]
            hurried = ["hurried"] * (HURRY in body["metadata"].get("annotations", {}))
            yield f"oci/{body['metadata']['name']}", " ".join([*ref, *hurried])

    def get(self, resource: Resource, name: str) -> Any:
        """Return an object as the store has it, also after the end of the world."""
        return self.api.get(resource, "prod", name)

    async def do_given(self, *fields: str) -> None:
        """A Rollout with these fields in its spec, and what it depends on."""
        await self.do_policy()
        await self.do_announce("1.0.0")
        await self.do_oci()
        await self._create("rollout", "app", POLICY | _read(fields))
        self.look()

    async def do_rest(self, *fields: str) -> None:
        """As `given`, with a process that has deployed 1.0.0."""
        await self.do_given(*fields)
        await self.do_run()
        await self.world.sleep(10)
        self.look()

    async def do_spec(self, *fields: str) -> None:
        await self._patch("rollout", "app", {"spec": _read(fields)})

    async def do_mended(self, *fields: str) -> str:
        """Announce two versions while the spec is invalid, then mend it, and request the first."""
        for tag in ("1.1.0", "1.2.0"):
            await self.do_announce(tag)
            await self.world.sleep(5)
        invalid = "; ".join(self.look())
        await self.do_spec(*fields)
        await self.do_annotate("force-deploy=1.1.0")
        await self.world.sleep(5)
        return invalid

    async def do_again(self) -> None:
        """Another Rollout of the same name."""
        await self._create("rollout", "app", POLICY)

    async def do_elsewhere(self, namespace: str, tag: str) -> None:
        """A policy in another namespace."""
        await self.world.create(kinds.IMAGE_POLICIES[0], "app", OTHERS, namespace=namespace)
        await self.world.sandbox.flux.announce(namespace, "app", tag)

    async def do_annotate(self, *words: str) -> None:
        """Set annotations: `annotate retry=1 deploy-user=x*5000` has one of 5000 characters."""
        pairs = [word.partition("=") for word in words]
        await self._annotate({key: _lengthen(text) for key, _, text in pairs})

    async def _annotate(self, texts: dict[str, str]) -> None:
        given: JsonObject = {PREFIX + key: text for key, text in texts.items()}
        await self._patch("rollout", "app", {"metadata": {"annotations": given}})

    async def do_ask(self, tag: str, text: str) -> str:
        """A person requests a new version, with this name and this message, in JSON."""
        await self.do_announce(tag)
        await self.world.sleep(5)
        said = json.loads(_lengthen(text))
        await self._annotate({"force-deploy": tag, "deploy-user": said, "deploy-message": said})
        await self.world.sleep(5)
        status = await self.world.get_status(kinds.ROLLOUTS, "app")
        entry = status["history"][0]
        return f"{_cut(entry['message'])} by {_cut(entry['triggeredBy']['name'])}"

    async def do_fail(self, call: str, *outcomes: str) -> None:
        """Script the next calls: `fail "patch ocirepositories" - conflict*3`, `-` succeeds."""
        known = {"-": FaultOutcome(), "slow": SLOW}
        for word in outcomes:
            one, _, count = word.partition("*")
            outcome = known.get(one) or FaultOutcome(fails=Failure(one))
            self.trouble.script(call, [outcome] * int(count or 1))

    async def do_lag(self, seconds: str, *kinds: str) -> None:
        """Have caches of these kinds show what was so long ago."""
        self.trouble.lags = dict.fromkeys(kinds, timedelta(seconds=float(seconds)))

    async def do_freeze(self, seconds: str, *kinds: str) -> None:
        """With the next event of these kinds have nothing of them come for so long."""
        self.trouble.freezes = dict.fromkeys(kinds, timedelta(seconds=float(seconds)))

    async def do_also(self) -> None:
        """Another OCIRepository of the Rollout."""
        tagged = {f"{PREFIX}rollout": "app"}
        source = {"interval": "1m", "url": "oci://registry.example/app"}
        await self._create("oci", "also", source, annotations=tagged)

    async def do_absent(self, *groups: str) -> None:
        """Have the cluster lack API groups, or none."""
        self.api.absent = {f"{group}.toolkit.fluxcd.io" for group in groups}

    async def do_tag(self, name: str, ref: str) -> None:
        """Another writer changes what an OCIRepository runs: a tag, or fields in JSON."""
        fields = json.loads(ref) if ref.startswith("{") else {"tag": ref}
        await self._patch("oci", name, {"spec": {"ref": fields}})

    async def do_contest(self, count: str) -> None:
        """Another writer puts a digest beside the tag, each second, so often."""
        for _ in range(int(count)):
            await self.do_tag("app", '{"digest": "sha256:0"}')
            await self.world.sleep(1)

    async def do_say(self, *kinds_: str) -> str:
        """Whole sentences of conditions, of the last event, or of all."""
        status = await self.world.get_status(kinds.ROLLOUTS, "app")
        texts = {one["type"]: one["message"] for one in status.get("conditions", ())}
        events = _list_events(self.world.sandbox.history.list_all(Called))
        first = {"event": -1, "events": 0}.get(kinds_[-1], len(events))
        return "\n".join(
            [
                *[texts[one] for one in kinds_ if one[0].isupper()],
                *[f"{one['reason']}: {one['note']}" for one in events[first:]],
            ]
        )


def _list_events(calls: Sequence[Called]) -> list[Any]:
    return [
        one.request.body
        for one in calls
        if (one.request.resource, one.request.verb) == (kinds.EVENTS, "create")
    ]


def _tell(called: Called) -> str:
    request = called.request
    plural = request.resource.plural
    if request.verb not in ("get", "patch") or plural not in _SHOWN:
        return ""
    is_applied = request.content_type.startswith("application/apply-patch")
    verb = "try" if request.query.get("dryRun") else "apply" if is_applied else request.verb
    what = request.subresource or SHORT.get(plural, plural)
    return f"{verb} {what}/{request.name}{'!' * (called.status >= 400)}"


_SHOWN: Final = {one.plural for one in KINDS.values()} | {"imagepolicies", "imagerepositories"}


def _count(text: str, count: int) -> str:
    return text if count == 1 else f"{text} x{count}"


def _of(name: str) -> str:
    return "" if name == "app" else f" of {name}"


def _show_entry(entry: Any) -> str:
    digest, retries = entry["version"].get("digest"), entry.get("retries")
    of = f"@{digest}" if digest else ""
    retried = f" retries {retries}" if retries else ""
    return f"{entry['version']['tag']}:{entry['bakeStatus']}#{entry['id']}{of}{retried}"


def _read(words: tuple[str, ...]) -> dict[str, Any]:
    pairs = (word.partition("=") for word in words)
    return {key: _value(text) for key, _, text in pairs}


def _value(text: str) -> object:
    is_json = text[:1] in ("{", "[") or text.isdigit() or text == "null"
    return json.loads(text) if is_json else text


def _lengthen(text: str) -> str:
    return LONG.sub(lambda found: found[1] * int(found[2]), text)


def _cut(text: str) -> str:
    return ascii(text)[1:-1] if len(text) < 40 else f"{text[0]}*{len(text)}"
