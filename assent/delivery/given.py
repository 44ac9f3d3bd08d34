"""What a client was given as ``deliver=``, as deliveries."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from assent.delivery.base import Deliver, Delivery, Ended, Notice, Sent
from assent.delivery.choosing import NAMES, delivery_named

_MEMBERS = ("name", "shows_buttons", "send", "update")


class PlainFunction:
    """A plain function of the notice, as a delivery. It is told of an end only if nobody decided.

    One that is not async is called in a thread, so that it may wait. Each notice is told once; only where the
    function raised, again.
    """

    shows_buttons = False

    def __init__(self, function: Callable[[Notice], object]) -> None:
        self.name = getattr(function, "__name__", "function")
        self._function = function
        call = getattr(function, "__call__", None)  # noqa: B004  (its kind is wanted, not whether it is there)
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)

    async def send(self, notice: Notice) -> Sent:
        """Call the function."""
        await self._call(notice)
        return Sent(self.name, notice.case_id)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Call the function once more, if nobody decided."""
        if ended.kind != "completed":
            await self._call(Notice(ended.kind, ended.case_id, ended.text))

    async def _call(self, notice: Notice) -> None:
        said = self._function(notice) if self._is_async else await asyncio.to_thread(self._function, notice)
        if inspect.isawaitable(said):
            await cast("Awaitable[object]", said)


def given_deliveries(deliver: Deliver | Sequence[Deliver]) -> list[Delivery]:
    """The deliveries that ``deliver=`` names. Raises ``TypeError`` for what is none.

    It is a delivery, a name such as ``"telegram"`` (see `delivery_named`), a function of the notice, async or
    not, or a list of these.
    """
    if isinstance(deliver, list | tuple):
        return [_delivery(each) for each in cast("Sequence[Any]", deliver)]
    return [_delivery(deliver)]


def _delivery(given: Any) -> Delivery:
    if isinstance(given, str):
        return delivery_named(given)
    if not isinstance(given, type):
        missing = [name for name in _MEMBERS if not hasattr(given, name)]
        if not missing:
            return given
        if "send" not in missing:
            raise TypeError(f"{_named(given)} is no delivery: it has no {' and no '.join(missing)}")
        if callable(given):
            return PlainFunction(given)
    hint = "; make one of it first" if isinstance(given, type) else ""
    raise TypeError(
        f"deliver= is a delivery, a name ({', '.join(NAMES)}), a function of the notice, or a list of these, "
        f"not {_named(given)}{hint}"
    )


def _named(given: Any) -> str:
    """What was given, without its ``repr``: that may hold a secret."""
    return f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
