"""Release rollouts on the real control plane, for stories; Flux is played."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import yaml

from tests.system.releasing import (
    CHECKS,
    Actor,
    annotate,
    create,
    create_targets,
    patch_status,
    prepare,
    read_annotations,
    read_status,
    read_tags,
    run_flux,
    show_condition,
    show_history,
)
from tests.system.stage import PlaneStage
from tests.world.api import Json, Resource
from tests.world.budgets import FOLDER, install_kinds
from tests.world.flux import KUSTOMIZATIONS, OCI_REPOSITORIES, install_flux, remove_flux
from tests.world.world import World, beside, bind, granting, permit_following

# What makes a namespace of the cluster one to serve.
FOLLOWED: Final = (
    ("apps", "statefulsets"),
    ("rollout-operator.grafana.com", "zoneawarepoddisruptionbudgets"),
    ("rollout.grafana.com", "multiazrollouts"),
    ("kuberik.com", "rollouts"),
)


class ReleaseStage(PlaneStage):
    """Has the commands of `Actor`, which take the rest of the line as it is."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.there = world
        """Where objects are."""
        self.actor = Actor(world.api, world.namespace)

    async def close(self) -> None:
        await self.actor.leave()
        await super().close()

    def find_command(self, word: str, rest: Sequence[str]) -> Callable[..., Awaitable[str | None]]:
        if not hasattr(self.actor, f"_{word}"):
            return super().find_command(word, rest)

        async def do(*words: str) -> None:
            await self.actor.do(" ".join((word, *words)))

        return do

    # What is there

    async def do_kinds(self) -> None:
        await install_kinds(self.world.api, FOLDER / "releases")

    async def do_prepared(self) -> None:
        """Create what announces releases, and what they are written into."""
        await prepare(self.world)
        await create_targets(self.world)

    async def do_beside(self) -> None:
        """Prepare one more namespace."""
        self.other = await self.running.enter_async_context(beside(self.world))
        await prepare(self.other)
        await bind(self.other, self.world)
        await create_targets(self.other)

    def _fill_in(self, part: str) -> str:
        other = self.other.namespace if "OTHER" in part else ""
        return super()._fill_in(part).replace("OTHER", other)

    async def do_elsewhere(self) -> None:
        """From now on act and look in the other namespace."""
        self.there = self.other
        self.actor = Actor(self.other.api, self.other.namespace)

    async def do_following(self) -> None:
        """Let the operator find namespaces by what is in them."""
        self.world.may_be_forbidden = True
        rules = [permit_following(*one) for one in FOLLOWED]
        await self.running.enter_async_context(granting(self.world, *rules))

    async def do_flux(self, what: str = "run", source: str = "app", applied: str = "app") -> None:
        """Have Flux do its work, go, or come back as an older one that has selected 1.1.0."""
        match what:
            case "run":
                await run_flux(self.world, source, applied)
            case "remove":
                await remove_flux(self.world.api)
            case "older":
                await install_flux(self.world.api, without="v1")
                older = Resource("image.toolkit.fluxcd.io/v1beta2", "imagepolicies")
                spec: Json = {"imageRepositoryRef": {"name": "app"}}
                await create(self.world, older, "ImagePolicy", "app", spec)
                await patch_status(self.world, older, "app", {"latestImage": "registry/app:1.1.0"})

    async def do_bypass(self, name: str, tag: str, length: str) -> None:
        """Let a version through by name, with a long message."""
        message = "x" * int(length)
        await annotate(self.world, name, bypass_gates=tag, deploy_message=message)

    # What shows

    async def do_history(self, name: str = "app") -> str:
        return show_history(await read_status(self.there, name)) or "-"

    async def do_condition(self, kind: str, name: str = "app") -> str:
        return show_condition(await read_status(self.there, name), kind) or "-"

    async def do_ready(self, *parts: str) -> str:
        """Say whether the condition Ready of `app` says all of this."""
        conditions = (await read_status(self.there))["conditions"]
        (message,) = (one["message"] for one in conditions if one["type"] == "Ready")
        return "yes" if all(part in message for part in parts) else str(message)

    async def do_newest(self, name: str, *path: str) -> str:
        """Return the start of a field of the newest entry of a history, without a time in it."""
        found = (await read_status(self.there, name))["history"][0]
        for key in path:
            found = found[key]
        return re.sub(r"\d{4}-.*", "TIME", str(found)[:75])

    async def do_candidates(self) -> str:
        status = await read_status(self.there)
        return " ".join(one["tag"] for one in status["releaseCandidates"])

    async def do_tags(self) -> str:
        return " ".join(await read_tags(self.there))

    async def do_written(self, source: str, applied: str) -> str:
        """Return the whole `spec` of an OCIRepository, and all variables of a Kustomization."""
        found = (await self.there.get(OCI_REPOSITORIES, source))["spec"]
        build = (await self.there.get(KUSTOMIZATIONS, applied))["spec"]["postBuild"]
        both = [found, build["substitute"]]
        return yaml.safe_dump(both, default_flow_style=True, width=1000).strip()

    async def do_notes(self, name: str) -> str:
        return " ".join(await read_annotations(self.there, name)) or "-"

    async def do_farhealth(self, name: str) -> str:
        """Return what a HealthCheck beside this namespace says, without the time of a reset."""
        where = (CHECKS, f"{self.world.namespace}-far", name)
        status = (await self.world.api.get(*where))["status"]
        return f"{status['status']} {str(status.get('message', '')).partition(' for')[0]}"
