"""A watch of one process as its client sees it: requested, opened, read event by event.

Which events come through is decided in `delayed_watches`, how the request gets there in `requests`.
"""

from collections.abc import AsyncGenerator
from datetime import timedelta

import msgspec

from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.apiserver.streams import Stream, StreamEvent
from rollout_lab.model.request import ApiAnswer, ApiRefusal, ApiRequest
from rollout_lab.network.delayed_watches import Delivery, Expired, Silent
from rollout_operator.kube.api import Call, WatchEvent
from rollout_operator.kube.responses import Status, error_of, read_status
from rollout_operator.model.names import Unreachable


class Opening:
    """A watch that is requested: a client that gives up before it is opened leaves none open."""

    def __init__(self, api: SimulatedApi) -> None:
        self._api = api
        self._is_closed = False
        self.stream: Stream | None = None

    async def open(self, request: ApiRequest) -> ApiAnswer:
        """Open it, as the API server does."""
        try:
            self.stream = self._api.open_watch(request)
        except ApiRefusal as refusal:
            return refusal.answer()
        if self._is_closed:
            self.stream.close()
        return ApiAnswer(status=200, body={})

    def close(self) -> None:
        """Need it no more."""
        self._is_closed = True
        if self.stream is not None:
            self.stream.close()


async def read_events(
    call: Call, delivery: Delivery, silence: timedelta
) -> AsyncGenerator[WatchEvent, None]:
    """Yield the events of a watch. Raises as `kube.api.Watcher.watch` says of its iterator."""
    while (event := await _next_event(call, delivery, silence)) is not None:
        if event.type == "ERROR":
            status = read_status(event.body)
            raise error_of(call, status.code, status)
        yield WatchEvent(type=event.type, object=msgspec.Raw(event.body))


async def _next_event(call: Call, delivery: Delivery, silence: timedelta) -> StreamEvent | None:
    seconds = silence.total_seconds()
    try:
        return await delivery.next_event(seconds)
    except Silent as error:
        raise Unreachable.of(call.text, f"silent for {seconds:g}s") from error
    except ConnectionResetError as error:
        raise Unreachable.of(call.text, f"no answer: {error}") from error
    except Expired as error:
        message = "The resourceVersion for the provided watch is too old."
        status = Status(kind="Status", message=message, reason="Expired", code=410)
        raise error_of(call, 410, status) from error
