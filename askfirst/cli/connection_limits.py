"""Limits of ``askfirst serve`` on slow connections and on the number of connections, below HTTP.

uvicorn waits without a limit for the rest of a request, and counts a connection only when its request is complete.
Here each connection has a time limit for its request, and a new connection may replace one that has not sent a
request yet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, ClassVar, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from askfirst import limits

logger = logging.getLogger("askfirst.service")
LINGER_SECONDS = 2.0
"""How long a client may go on sending a body after it was answered. Closing the connection at once could lose the
answer on its way."""
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)
_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

Phase = Literal["head", "body", "unwanted", "served"]
"""What a connection waits for: a request, a body, the end of an unwanted body, or the service."""


class Doorkeeper:
    """Counts the connections of one server, and admits new ones.

    ``per_address`` is the limit for one address. None is the default limit, from which this machine's own addresses
    are exempt: all clients behind a local proxy share one.
    """

    def __init__(
        self,
        *,
        most: int = limits.CONNECTIONS,
        per_address: int | None = None,
        header_seconds: float = limits.HEADER_SECONDS,
        body_seconds: float = limits.BODY_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._per_address = per_address
        self._seconds = {"head": header_seconds, "body": body_seconds, "unwanted": LINGER_SECONDS}
        self._open: dict[GuardedConnection, str] = {}
        self._addresses: Counter[str] = Counter()
        self._waiting: OrderedDict[GuardedConnection, None] = OrderedDict()
        """The connections without a request, in the order in which they began to wait."""
        self._said = OncePerSecond(now)

    def admit(self, connection: GuardedConnection, address: str) -> bool:
        """Admit a connection; a full server closes one that has no request yet. False if there is no room."""
        if self._addresses[address] >= self._most_from(address):
            self._make_room(address)
        elif len(self._open) >= self._most:
            self._make_room(None)
        if self._addresses[address] >= self._most_from(address) or len(self._open) >= self._most:
            self._said.warn("a connection was refused: there are too many")
            return False
        self._open[connection] = address
        self._addresses[address] += 1
        return True

    def left(self, connection: GuardedConnection) -> None:
        """A connection has ended."""
        self._waiting.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is not None:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

    def entered(self, connection: GuardedConnection, phase: Phase) -> float | None:
        """A connection has entered another phase, which may last so many seconds."""
        self._waiting.pop(connection, None)
        if phase != "served":
            self._waiting[connection] = None
        return self._seconds.get(phase)

    def too_slow(self) -> None:
        """A connection was closed because it exceeded its time limit."""
        self._said.warn("a connection was ended: it took too long")

    def _make_room(self, address: str | None) -> None:
        """Close the connection that has waited longest without a request; only one of this address, if one is
        named."""
        for connection in self._waiting:
            if address is None or self._open.get(connection) == address:
                self._said.warn("a connection without a request was ended, to make room")
                self.left(connection)
                connection.end(_BUSY)
                return

    def _most_from(self, address: str) -> int:
        if self._per_address is not None:
            return self._per_address
        return self._most if _is_own(address) else limits.ADDRESS_CONNECTIONS


class GuardedConnection(H11Protocol):
    """A connection of uvicorn with a time limit for each thing that the client has to do."""

    keeper: ClassVar[Doorkeeper]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._phase: Phase | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """The client has connected."""
        super().connection_made(transport)
        if self.keeper.admit(self, self.client[0] if self.client else ""):
            self._look()
        else:
            self.end(_BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected."""
        self.keeper.left(self)
        for timer in (self._timer, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The client has sent something."""
        if not self.transport.is_closing():
            super().data_received(data)
            self._look()

    def on_response_complete(self) -> None:
        """The client was answered."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """The client does not read the response."""
        super().pause_writing()
        self._reading = self.loop.call_later(limits.READING_SECONDS, self._not_reading)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def end(self, said: bytes = b"") -> None:
        """Close the connection, with an error response if no other response has begun."""
        if said and self._phase in (None, "head", "body") and not self._is_answered():
            self.transport.write(said)
        self.transport.close()

    def _look(self) -> None:
        """Determine the phase of the connection, and start its time limit if the phase is new."""
        if self.transport.is_closing():
            return
        phase = self._now_in()
        if phase == self._phase:
            return
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
        seconds = self.keeper.entered(self, phase)
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._too_slow)

    def _now_in(self) -> Phase:
        theirs = self.conn.their_state
        if theirs is h11.SEND_BODY:
            return "unwanted" if self._is_answered() else "body"
        return "head" if theirs is h11.IDLE else "served"

    def _is_answered(self) -> bool:
        return self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            if self._phase != "unwanted":
                self.keeper.too_slow()
            self.end(_SLOW)

    def _not_reading(self) -> None:
        self.keeper.too_slow()
        self.transport.abort()


def guarded(keeper: Doorkeeper) -> type[GuardedConnection]:
    """A connection class for uvicorn's ``http``, bound to a `Doorkeeper`."""
    return type("GuardedConnection", (GuardedConnection,), {"keeper": keeper})


class OncePerSecond(logging.Filter):
    """Limits log lines that strangers can cause to one a second for each kind, and says how many were left out."""

    KINDS = (
        "Exceeded concurrency limit",
        "Invalid HTTP request received",
        "Unsupported upgrade request",
        "socket.accept() out of system resource",
    )

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._last: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record of another's logger is written."""
        kind = next((each for each in self.KINDS if str(record.msg).startswith(each)), None)
        if kind is None:
            return True
        more = self._let(kind)
        if more:
            record.msg = f"{record.msg} ({more} more like it)"
        return more is not None

    def warn(self, said: str) -> None:
        """Log a line of our own, unless one like it was written within the second."""
        more = self._let(said)
        if more is not None:
            logger.warning("%s%s", said, f" ({more} more like it)" if more else "")

    def _let(self, kind: str) -> int | None:
        """How many lines were left out before this one; None if this one is left out, too."""
        now = self._now()
        if now - self._last.get(kind, float("-inf")) < 1:
            self._left_out[kind] += 1
            return None
        self._last[kind] = now
        return self._left_out.pop(kind, 0)


def _is_own(address: str) -> bool:
    """Whether an address is this machine's own. A missing address, as of a Unix socket, counts as own."""
    try:
        return ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return True
