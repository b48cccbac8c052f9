"""The commands of a process behind a faulty link: what is planned to go wrong, calls, watches."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import msgspec
from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.model.history import Called, Commit, Fault, History
from rollout_lab.model.request import ApiRequest
from rollout_lab.network.client import SimulatedClient, SimulatedPodClient
from rollout_lab.network.faults import CrashPoint, Failure, FaultOutcome, OccasionKind
from rollout_lab.network.link import Link

from rollout_operator.aio.tasks import race
from rollout_operator.kube.api import OCI_REPOSITORIES, SECRETS, JsonObject, Precondition
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.model.names import OperatorError, Uid
from rollout_operator.model.objects import Endpoint
from tests.simulation.faults import Planned, ScriptedFaults
from tests.stories import Steps
from tests.virtual_time import EPOCH, elapsed

ACTOR: Final = "operator-1"
NAMESPACE: Final = "default"
REPOSITORIES: Final = OCI_REPOSITORIES[0]
_SPANS: Final = ("freeze", "before", "after", "waits", "takes", "age")
_OF_SECRETS: Final = ("event", "list")
_ENDPOINT: Final = Endpoint(
    pod="a-0", uid=Uid("1"), ip="10.0.0.1", host="a-0.a", port=80, path="prepare-downscale"
)


def read_plan(kind: str, number: str, *words: str) -> Planned:
    """Read `call 2 crash=AFTER_COMMIT`, `event 1 DROP`, `list 2 age=30`."""
    fields: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key in _SPANS:
            fields[key] = timedelta(seconds=float(value))
        elif key == "crash":
            fields[key] = CrashPoint[value or "BEFORE_SEND"]
        else:
            fields["fails"] = Failure((value or key).lower())
    is_review = kind in ("question", "answer")
    return Planned(
        kind=OccasionKind.REVIEW if is_review else OccasionKind(kind),
        actor=ACTOR,
        number=int(number),
        of=kind if is_review else "secrets" if kind in _OF_SECRETS else "",
        outcome=FaultOutcome(**fields),
    )


class NetworkStage(Steps):
    """One process, whose faults are planned before its world begins.

    The world is an API server with some Secrets, and pods that all act and answer 200.
    """

    def __init__(self, seed: int = 1) -> None:
        self.plans: list[Planned] = []
        self.limits = RateLimiter(0, 0)
        self.seed = seed
        self.version = 0
        self.shown = 0
        self.reported: list[Fault] = []
        self.told: list[str] = []
        self.ends: list[str] = []
        self.seen: list[str] = []
        self.history = History()
        self.api = SimulatedApi(self.history, elapsed=elapsed, epoch=EPOCH, rng=random.Random(seed))
        self.opened: dict[str, SimulatedClient] = {}

    def open(self) -> None:
        """Connect the process, under the faults that are planned by now."""
        faults = ScriptedFaults(self.plans, self.reported.append)
        self.link = Link(ACTOR, faults=faults, rng=random.Random(self.seed))
        self.link.on_crash = lambda: self.ends.append(f"crash at {loop_time():.0f}")
        self.opened = {
            name: SimulatedClient(self.api, self.link, name=name, limits=self.limits)
            for name in ("acting", "following")
        }
        self.pods = SimulatedPodClient(self.link, self)

    def find_command(self, word: str, rest: Any) -> Callable[..., Awaitable[str | None]]:
        if word not in ("plan", "limit") and not self.opened:
            self.open()
        return super().find_command(word, rest)

    @property
    def client(self) -> SimulatedClient:
        return self.opened["acting"]

    @property
    def following(self) -> SimulatedClient:
        return self.opened["following"]

    def look(self) -> list[str]:
        """Return what the process has written, what pods did, and which faults came true."""
        commits = [one for one in self.history.list_all(Commit) if one.actor == ACTOR]
        new, self.shown = commits[self.shown :], len(commits)
        shown = [f"wrote {one.name} at {one.at.total_seconds():.0f}" for one in new]
        shown += [*self.told, *(f"fault: {one.text}" for one in self.reported)]
        self.told.clear()
        self.reported.clear()
        return shown

    async def do_plan(self, *words: str) -> None:
        """Plan what becomes of the n-th call, event, list, pod_call, question or answer."""
        self.plans.append(read_plan(*words))

    async def do_limit(self, rate: str, burst: str) -> None:
        """Limit how often the process calls."""
        self.limits = RateLimiter(float(rate), int(burst))

    async def do_put(self, *names: str) -> None:
        """Let another client create or change Secrets, four seconds apart."""
        for number, name in enumerate(names):
            self._put(name, number)
            await asyncio.sleep(4 * (number + 1 < len(names)))

    def _put(self, name: str, number: int) -> None:
        is_there = self.api.get(SECRETS, NAMESPACE, name) is not None
        answer = self.api.call_now(
            ApiRequest(
                verb="update" if is_there else "create",
                resource=SECRETS,
                namespace=NAMESPACE,
                name=name if is_there else "",
                body=secret(name, **{f"key-{number}": "MQ=="}),
            )
        )
        assert answer.is_ok, answer.message

    async def do_cut(self, seconds: str) -> None:
        """Have the link cut in a while, with the next `commit`, or to `pods` alone."""
        if seconds == "pods":
            self.link.cut_pods = True
        elif seconds == "commit":
            self.api.on_commit(lambda _: setattr(self.link, "is_cut", True))
        else:
            asyncio.get_running_loop().call_later(
                float(seconds), setattr, self.link, "is_cut", True
            )

    async def do_heal(self, seconds: str) -> None:
        """Have everything heal in a while."""
        asyncio.get_running_loop().call_later(float(seconds), self.link.heal)

    async def do_kill(self, seconds: str = "") -> None:
        """Let the process die, in a while."""
        if seconds:
            asyncio.get_running_loop().call_later(float(seconds), self.link.kill)
        else:
            self.link.kill()

    async def do_ground(self) -> str:
        """End what is still on its way; show what is left of it."""
        await self.link.ground()
        return f"{len(asyncio.all_tasks()) - 1} left"

    async def do_compact(self) -> None:
        """Let the server forget."""
        self.api.compact()

    async def do_pages(self, size: str) -> None:
        """Let the server give so many objects of a list at a time."""
        self.api.largest_page = int(size)

    # Calls

    async def do_create(self) -> str:
        return await self._attempt(self.client.create(SECRETS, NAMESPACE, secret("new")))

    async def do_leave(self) -> str:
        """Begin to create a Secret, and go away before that has arrived."""

        async def leave() -> None:
            async with asyncio.timeout(0.0005):
                await self.client.create(SECRETS, NAMESPACE, secret("new"))

        return await self._attempt(leave())

    async def do_patch(self, name: str) -> str:
        body: JsonObject = {"data": {"key": "MQ=="}}
        return await self._attempt(self.client.patch(SECRETS, NAMESPACE, name, body))

    async def do_delete(self, name: str = "old", within: str = "") -> str:
        """Delete a Secret, to be sent within so many seconds."""
        found: Any = self.api.get(SECRETS, NAMESPACE, name)
        metadata = found["metadata"]
        wanted = Precondition(
            uid=Uid(metadata["uid"]), resource_version=metadata["resourceVersion"]
        )
        limit = {"sent_within": timedelta(seconds=float(within))} if within else {}
        return await self._attempt(
            self.client.delete(SECRETS, NAMESPACE, name, precondition=wanted, **limit)
        )

    async def do_fetch(self, name: str) -> str:
        return await self._attempt(self.client.fetch(SECRETS, NAMESPACE, name))

    async def do_list(self, who: str = "") -> str:
        """List Secrets, as informers do or live."""
        client = self.following if who else self.client
        return await self._attempt(client.fetch_page(SECRETS, NAMESPACE))

    async def do_keys(self) -> str:
        """List Secrets; show what is in each."""
        page = await self.client.fetch_page(SECRETS, NAMESPACE)
        items = map(msgspec.json.decode, page.items)
        return ", ".join(f"{one['metadata']['name']} {' '.join(one['data'])}" for one in items)

    async def do_spans(self, times: str) -> str:
        """Fetch a Secret so often; show how long that takes at least and at most."""
        spans = []
        for _ in range(int(times)):
            begun = loop_time()
            await self.client.fetch(SECRETS, NAMESPACE, "a")
            spans.append(loop_time() - begun)
        return f"{min(spans):.3f} to {max(spans):.3f} s"

    async def do_repository(self, tag: str) -> None:
        """Create an object whose fields have managers."""
        await self.client.create(REPOSITORIES, NAMESPACE, _repository(tag))

    async def do_apply(self, tag: str, force: str = "") -> str:
        """Apply another tag, by force or not; show which is stored then."""
        client, body = self.client, _repository(tag)
        said = await self._attempt(
            client.apply(REPOSITORIES, NAMESPACE, "a", body, manager="team", is_forced=bool(force))
        )
        stored: Any = self.api.get(REPOSITORIES, NAMESPACE, "a")
        return f"{said}; the tag is {stored['spec']['ref']['tag']}"

    async def do_arrived(self) -> str:
        """Show how many requests of the process have come to the server."""
        return f"{sum(one.actor == ACTOR for one in self.history.list_all(Called))} arrived"

    async def _attempt(self, call: Awaitable[Any]) -> str:
        found: list[str] = []

        async def work() -> None:
            try:
                answer = await call
            except (OperatorError, OSError) as error:
                wait = getattr(error, "retry_after", None)
                after = f", wait {wait.total_seconds():g}s" if wait else ""
                found.append(f"{type(error).__name__}{after}: {error}".removesuffix(": "))
            else:
                found.append(_describe(answer))

        begun = loop_time()
        if await race(work=work(), limit=asyncio.sleep(3600)) == "limit":
            return "; ".join(["never returns", *self.ends])
        return f"{found[0]} ({loop_time() - begun:.0f}s)"

    # Pods, and reviews

    async def do_pod(self, method: str) -> str:
        """Send a request to a pod, whose answer counts for five seconds."""

        async def send() -> Any:
            async with asyncio.timeout(5):
                answer = await self.pods.send(method, _ENDPOINT)
                return answer if method == "POST" else answer[0]

        return await self._attempt(send())

    async def do_call(self) -> str:
        """Send a request to a pod, and wait for ever."""

        async def send() -> int:
            return (await self.pods.send("POST", _ENDPOINT))[0]

        return await self._attempt(send())

    async def serve(
        self, method: str, endpoint: Endpoint, actor: str, takes: timedelta
    ) -> tuple[int, bytes]:
        """Act, and answer. Implements `network.client.Endpoints`."""
        self.told.append(f"{endpoint.pod} has acted on {method} of {actor}")
        await asyncio.sleep(takes.total_seconds())
        return 200, b"said"

    async def do_close(self) -> None:
        """Close the client for pods."""
        await self.pods.close()

    async def do_review(self) -> str:
        """Call the process as the API server calls a webhook."""

        async def review() -> None:
            await self.link.let_in()
            await self.link.let_out()

        return await self._attempt(review())

    # Watches

    async def do_follow(self, *words: str) -> str:
        """Watch like an informer that never lists, while Secrets are put, one a second."""
        names = [word for word in words if "=" not in word]
        given = dict(word.split("=") for word in words if "=" in word)
        self.version = self.version or self.api.revision
        self.seen.clear()
        self.ends.clear()
        lasts = timedelta(seconds=float(given.get("lasts", 40)))
        puts = asyncio.create_task(self._put_each_second(names))
        follows = asyncio.create_task(self._follow(int(given.get("streams", 1)), lasts))
        await puts
        if not (await asyncio.wait([follows], timeout=1000))[0]:
            follows.cancel()
            await asyncio.wait([follows])
        return f"{', '.join(self.seen) or 'nothing'}, ends: {', '.join(self.ends)}"

    async def _put_each_second(self, names: list[str]) -> None:
        for number, name in enumerate(names):
            await asyncio.sleep(1)
            self._put(name, number)

    async def _follow(self, streams: int, lasts: timedelta) -> None:
        for _ in range(streams):
            try:
                async with self.following.watch(
                    SECRETS, NAMESPACE, resource_version=f"{self.version}", lasts=lasts
                ) as events:
                    async for event in events:
                        metadata = msgspec.json.decode(event.object)["metadata"]
                        self.version = int(metadata["resourceVersion"])
                        self.seen.append(f"{event.type} {metadata['name']} at {loop_time():.0f}")
            except OperatorError as error:
                self.ends.append(f"{type(error).__name__} at {loop_time():.0f}: {error}")
            else:
                self.ends.append(f"end at {loop_time():.0f}")

    async def do_open(self) -> str:
        """Show how many watches the API server believes to be open."""
        streams = self.api._streams._open.values()
        return f"{sum(not one.is_closed for each in streams for _, one in each)} open"


def _describe(answer: Any) -> str:
    match answer:
        case int(status):
            return f"{status}"
        case (status, bytes(body)):
            return f"{status} {body.decode()}"
    if (items := getattr(answer, "items", None)) is None:
        return "done"
    names = [json.loads(bytes(one))["metadata"]["name"] for one in items]
    return f"listed {' '.join(names) or 'none'}{', and there is more' * bool(answer.next_token)}"


def loop_time() -> float:
    """Return the seconds since the world began."""
    return elapsed().total_seconds()


def secret(name: str, **data: str) -> JsonObject:
    head = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": head, "data": data}


def _repository(tag: str) -> JsonObject:
    return {
        "apiVersion": f"{REPOSITORIES.group}/{REPOSITORIES.version}",
        "kind": REPOSITORIES.kind,
        "metadata": {"name": "a", "namespace": NAMESPACE},
        "spec": {"ref": {"tag": tag}},
    }
