"""Pods over HTTP: who listens where, what a call makes them do, which of them are prepared.

A pod answers as its behaviour says, from its start to its end. Once it has begun, it acts whether
or not its caller still waits. A good pod says since when it is prepared, for each path by itself.
Whether a call gets here and back is left to its caller's link.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_lab.model.fields import child, name_of, text
from rollout_lab.model.history import History, PodCalled
from rollout_lab.model.request import ApiServer
from rollout_lab.nodes.behaviour import Behaviour, PodReply, Response
from rollout_lab.schemas.kinds import NODES
from rollout_lab.schemas.metadata import labels_of
from rollout_lab.virtual_loop.pace import Timers
from rollout_operator.kube.api import PODS, JsonObject
from rollout_operator.model.objects import Endpoint


@dataclass(slots=True, eq=False, kw_only=True)
class _TakenCall:
    """A call that a pod has taken: its caller waits for `done`."""

    begun: timedelta
    actor: str
    method: str
    path: str
    response: Response
    done: asyncio.Future[tuple[int, bytes]]
    timer: int = 0


class _LivingPod(msgspec.Struct):
    name: str
    uid: str
    behaviour: Behaviour
    calls: list[_TakenCall] = []
    since: dict[str, datetime] = {}
    """When it was prepared, by path; a pod that starts again has forgotten."""


class PodEndpoints:
    """The pods of a world that listen, by address; needs a running loop."""

    def __init__(
        self,
        history: History,
        *,
        elapsed: Callable[[], timedelta],
        now: Callable[[], datetime],
        timers: Timers,
    ) -> None:
        """`now` is the API server's time."""
        self._history = history
        self._elapsed = elapsed
        self._now = now
        self._timers = timers
        self._listeners: dict[str, dict[str, _LivingPod]] = {}
        """By address and UID: pods of a host's network share one, and copied pods may."""
        self._prepared: dict[str, set[str]] = {}
        self._overrides: dict[tuple[str, str], Response] = {}

    async def serve(
        self, method: str, endpoint: Endpoint, actor: str, takes: timedelta = timedelta(0)
    ) -> tuple[int, bytes]:
        """Return the HTTP status and the body that the pod at `endpoint.ip` answers.

        The pod `takes` at least that long, whatever its behaviour says, and acts then all the same.
        Waits for ever where it hangs. Raises ConnectionRefusedError where nothing listens, and
        ConnectionResetError where the pod breaks the connection or ends.
        """
        here = self._listeners.get(endpoint.ip)
        if not here:
            raise ConnectionRefusedError(f"{endpoint.ip}:{endpoint.port}: nothing listens")
        listener = here.get(endpoint.uid) or next(iter(here.values()))
        response = self._choose(listener, method)
        if response.reply is PodReply.REFUSES:
            raise ConnectionRefusedError(f"{endpoint.ip}:{endpoint.port}: refused")
        call = _TakenCall(
            begun=self._elapsed(),
            actor=actor,
            method=method,
            path=f"/{endpoint.path}",
            response=response,
            done=asyncio.get_running_loop().create_future(),
        )
        listener.calls.append(call)
        after = max(response.after, takes)
        call.timer = self._timers.after(after, lambda: self._act(listener, call))
        return await call.done

    def prepared(self, uid: str) -> bool:
        """Return whether the pod of that UID acted on a POST and, on its path, no DELETE since."""
        return bool(self._prepared.get(uid))

    def answer(self, pod: str, method: str, response: Response | None) -> None:
        """Let pods of that name, now and later, answer so; None: as their behaviour says.

        An empty method stands for all that have no word of their own.
        """
        if response is None:
            self._overrides.pop((pod, method), None)
        else:
            self._overrides[pod, method] = response

    def enter(self, ip: str, *, pod: str, uid: str, behaviour: Behaviour) -> None:
        self._listeners.setdefault(ip, {}).setdefault(uid, _LivingPod(pod, uid, behaviour))

    def leave(self, ip: str, uid: str) -> None:
        """Let a pod listen there no more, and break off what was being answered."""
        here = self._listeners.get(ip, {})
        listener = here.pop(uid, None)
        if not here:
            self._listeners.pop(ip, None)
        if listener is None:
            return
        for call in listener.calls:
            self._timers.cancel(call.timer)
            self._end(call, ConnectionResetError(f"{listener.name} has ended"))
            if call.timer:  # a call that hangs was written down when it had acted
                self._record(listener, call, status=0, acted=False)

    def _choose(self, listener: _LivingPod, method: str) -> Response:
        for key in ((listener.name, method), (listener.name, "")):
            if key in self._overrides:
                return self._overrides[key]
        return listener.behaviour.cancel if method == "DELETE" else listener.behaviour.prepare

    def _act(self, listener: _LivingPod, call: _TakenCall) -> None:
        response = call.response
        if response.does_act and call.method in ("POST", "DELETE"):
            self._prepare(listener, call)
        is_answered = response.reply is PodReply.ANSWERS and not call.done.done()
        status = response.status if is_answered else 0
        self._record(listener, call, status=status, acted=response.does_act)
        call.timer = 0
        if response.reply is PodReply.HANGS:
            return  # stays in the list of calls, so that the end of the pod breaks it off
        listener.calls.remove(call)
        if response.reply is PodReply.RESETS:
            self._end(call, ConnectionResetError(f"{listener.name} has reset the connection"))
        elif is_answered:
            call.done.set_result((status, self._say(listener, call)))

    def _prepare(self, listener: _LivingPod, call: _TakenCall) -> None:
        """Prepare the pod, or un-prepare it, for the path that was called."""
        paths = self._prepared.setdefault(listener.uid, set())
        if call.method == "POST":
            paths.add(call.path)
            listener.since.setdefault(call.path, self._now())
        else:
            paths.discard(call.path)
            listener.since.pop(call.path, None)

    def _say(self, listener: _LivingPod, call: _TakenCall) -> bytes:
        response = call.response
        if response.body is not None:
            return response.body
        if call.method != "POST" or response.status // 100 != 2:
            return b""
        since = listener.since.get(call.path, self._now()) + response.clock_offset
        return json.dumps({"timestamp": int(since.timestamp())}).encode()

    def _record(self, listener: _LivingPod, call: _TakenCall, *, status: int, acted: bool) -> None:
        self._history.add(
            PodCalled(
                at=self._elapsed(),
                begun=call.begun,
                actor=call.actor,
                method=call.method,
                pod=listener.name,
                uid=listener.uid,
                path=call.path,
                status=status,
                acted=acted,
            )
        )

    @staticmethod
    def _end(call: _TakenCall, error: OSError) -> None:
        if not call.done.done():  # else its caller has left
            call.done.set_exception(error)


LONE_NODE: Final = "node-1"
# The name of the node that a pod gets; None: it waits.
Place = Callable[[JsonObject], str | None]


def node(name: str, labels: Mapping[str, str]) -> JsonObject:
    """Return a node as the API takes it."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels)}}


def find_node(api: ApiServer, pod: JsonObject) -> str | None:
    """Return the name of the node that a pod gets: of those that fit, the emptiest.

    None where none fits that is not cordoned: the pod waits.
    """
    nodes = api.list(NODES, "")
    if not nodes:
        return LONE_NODE
    wanted = child(pod, "spec", "nodeSelector")
    fitting = [name_of(node) for node in nodes if not is_cordoned(node) and _fits(node, wanted)]
    if not fitting:
        return None
    pods = Counter(node_of(pod) for pod in api.list(PODS, ""))
    return min(fitting, key=lambda name: (pods[name], name))


def node_of(pod: JsonObject) -> str:
    """Return the name of the node that a pod is bound to, empty where it has none yet."""
    return text(pod, "spec", "nodeName")


def is_cordoned(found: JsonObject) -> bool:
    """Return whether a node takes no new pods."""
    return child(found, "spec").get("unschedulable") is True


def _fits(found: JsonObject, wanted: JsonObject) -> bool:
    labels = labels_of(found)
    return all(labels.get(key) == value for key, value in wanted.items())
