"""HitlClientSync: the client for scripts, with an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar, cast

import httpx2

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.client.client import HitlClient
from askfirst.client.outcome import ReviewOutcome
from askfirst.delivery.base import Deliver, PressAnswer
from askfirst.delivery.registry import given_deliveries
from askfirst.messages import JsonObject
from askfirst.protocol import Discovery, SubmittedBy, VerificationEvidence

T = TypeVar("T")
_LOOK_UP = 0.5
"""How often a waiting thread checks for Ctrl-C, on systems that do not wake it."""

_LAST_WORDS = 10.0
_CLOSED = "the client was closed meanwhile"


class HitlClientSync:
    """`HitlClient` without ``await``, for scripts: ``with HitlClientSync(deliver=print) as client: ...``.

    It takes what `HitlClient` takes by keyword, but for ``http``. ``store`` is the URL of a database, such as
    ``sqlite:///waits.db``. Any thread may call it, several at once, except one that runs an event loop, which
    would stand still meanwhile: there it raises ``RuntimeError``. Ctrl-C stops the call that the main thread
    waits in; with a store and a key, the same call goes on with the wait later.
    """

    def __init__(
        self, *, deliver: Deliver | Sequence[Deliver], store: str | None = None, **options: Any
    ) -> None:
        self._options: dict[str, Any] = {"deliver": given_deliveries(deliver), **options}
        self._store = store
        self._doing: set[asyncio.Task[Any]] = set()
        self._thread: threading.Thread | None = None
        self._opened: concurrent.futures.Future[tuple[HitlClient, asyncio.AbstractEventLoop]]
        self._close: Callable[[], None] = _nothing

    def __enter__(self) -> Self:
        _check_no_loop()
        self._opened = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name="askfirst-client", daemon=True)
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._close()
        if self._thread is not None:
            self._thread.join()

    def request(
        self,
        method: str,
        url: str,
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        repeatable: bool | None = None,
        max_bytes: int | None = None,
        **options: Any,
    ) -> httpx2.Response | ReviewOutcome:
        """Send a request: its response, or how the review ended; see `HitlClient.request`."""
        return self._wait(
            lambda client: client.request(
                method,
                url,
                key=key,
                idempotency_key=idempotency_key,
                repeatable=repeatable,
                max_bytes=max_bytes,
                **options,
            )
        )

    def handle(self, response: T, *, key: str | None = None) -> T | ReviewOutcome:
        """As `request`, for a response of your own; see `HitlClient.handle`."""
        return self._wait(lambda client: client.handle(response, key=key))

    def submit(
        self,
        case: str,
        action: str,
        *,
        submitted_via: str,
        submitted_by: SubmittedBy | Mapping[str, Any],
        data: JsonObject | None = None,
        evidence: Sequence[VerificationEvidence] | None = None,
    ) -> PressAnswer:
        """Answer a case that another thread waits for, after a person's press; see `HitlClient.submit`."""
        return self._wait(
            lambda client: client.submit(
                case,
                action,
                submitted_via=submitted_via,
                submitted_by=submitted_by,
                data=data,
                evidence=evidence,
            )
        )

    def discover(self, base_url: str) -> Discovery:
        """What a service says about itself; see `HitlClient.discover`."""
        return self._wait(lambda client: client.discover(base_url))

    # The thread with the event loop.

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)

    async def _main(self) -> None:
        closing, loop = asyncio.Event(), asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            store = None
            if self._store is not None:
                store = await stack.enter_async_context(checkpointer_from_url(self._store))
            client = await stack.enter_async_context(HitlClient(store=store, **self._options))
            self._close = lambda: _call_if_open(loop, closing.set)
            self._opened.set_result((client, loop))
            await closing.wait()
            await _stop(self._doing)

    def _wait(self, work: Callable[[HitlClient], Awaitable[T]]) -> T:
        """Run a coroutine on the loop, and wait for it. A KeyboardInterrupt cancels it there first."""
        _check_no_loop()
        if self._thread is None or not self._thread.is_alive():
            raise RuntimeError("this client is not open; use it in a with statement")
        client, loop = self._opened.result()
        doing: list[asyncio.Task[Any]] = []

        async def do() -> T:
            doing.append(cast("asyncio.Task[Any]", asyncio.current_task()))
            self._doing.add(doing[0])
            try:
                return await work(client)
            finally:
                self._doing.discard(doing[0])

        done = asyncio.run_coroutine_threadsafe(do(), loop)
        try:
            while not concurrent.futures.wait([done], timeout=_LOOK_UP).done:
                if not self._thread.is_alive():
                    raise RuntimeError(_CLOSED)
            return done.result()
        except concurrent.futures.CancelledError:
            raise RuntimeError(_CLOSED) from None
        except KeyboardInterrupt:
            _call_if_open(loop, lambda: [task.cancel() for task in doing])
            concurrent.futures.wait(
                [done], timeout=_LAST_WORDS
            )  # so that the lease on a stored wait is released
            raise


def request(
    method: str,
    url: str,
    *,
    deliver: Deliver | Sequence[Deliver],
    auth: Any = None,
    token: str | None = None,
    **options: Any,
) -> httpx2.Response | ReviewOutcome:
    """Send one request from a script, and wait for a person where the service asks for one.

    ``deliver``, ``auth`` and ``token`` are as in `HitlClient`; ``deliver=print`` writes the link to the terminal.
    The other options are those of httpx2. For more requests than one, use `HitlClientSync`.
    """
    with HitlClientSync(deliver=deliver, auth=auth, token=token) as client:
        return client.request(method, url, **options)


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("this thread runs an event loop, which would stand still; use HitlClient and await it")


def _call_if_open(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


async def _stop(tasks: set[asyncio.Task[Any]]) -> None:
    """Stop what other threads still wait for."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _nothing() -> None:
    """There is nothing to close yet."""
