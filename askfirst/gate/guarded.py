"""Guarded functions: inspected once, shown to people, and called with the arguments that were decided on."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, cast

from pydantic import BaseModel

from askfirst.agent.emitter import logger
from askfirst.agent.tools import Effect, Signature, Tool, ToolContext, display_of, read_signature
from askfirst.display import Display, Risk
from askfirst.errors import Denied, HitlError, InvalidTool, Pending
from askfirst.gate.outcomes import Ran, Stored
from askfirst.gate.results import Results, failure
from askfirst.messages import JsonObject
from askfirst.requests import approval_seconds
from askfirst.wording import Wording

if TYPE_CHECKING:
    from askfirst.gate.gate import Gate
    from askfirst.gate.portal import Portal

_REMEMBERED = 1_000

Approval = bool | Callable[[Mapping[str, Any]], bool]
"""Whether a person has to approve: always, as the policy says, or as a function of the arguments says."""


class GuardOptions(TypedDict, total=False):
    """The options of ``@gate.guarded``: who decides, and what people read."""

    title: Wording | None
    sentence: Wording | None
    approve: Wording | None
    done_sentence: Wording | None
    labels: Mapping[str, Wording] | None
    formats: Mapping[str, str] | None
    important: Sequence[str]
    risk: Risk | Callable[[Mapping[str, Any]], Risk] | None
    consequences: Sequence[Wording]
    undo: Wording | None
    help_url: str | None
    requires_approval: Approval
    effect: Effect
    timeout: float | str | None
    to: str | None
    wait: float | None
    key: Callable[..., str] | None
    resumer: str | None


@dataclass(frozen=True, slots=True)
class Guarded:
    """A guarded function, and how people are asked about it."""

    tool: Tool
    results: Results
    requires_approval: Approval
    timeout: float | None
    to: str | None
    signature: Signature
    wait: float | None = None
    key: Callable[..., str] | None = None
    resumer: str | None = None

    @property
    def display(self) -> Display:
        """How a call is shown."""
        return self.tool.display

    def call(self, args: BaseModel) -> Any:
        """Call the function with the arguments that were decided on."""
        positional, keywords = self.signature.arguments(args, None)
        return self.tool.function(*positional, **keywords)

    def key_for(self, args: Mapping[str, Any]) -> str:
        """The key of a call with these arguments, for a function whose options have a ``key``."""
        return _checked_key(None if self.key is None else self.key(**args))

    def requires(self, args: JsonObject) -> bool:
        """Whether a person is asked about a call with these arguments. If ``requires_approval`` is a function and
        fails, a person is asked."""
        if not callable(self.requires_approval):
            return self.requires_approval
        try:
            return bool(self.requires_approval(args))
        except Exception:
            logger.exception("requires_approval of %s failed, so a person is asked", self.tool.name)
            return True


@dataclass(frozen=True, slots=True)
class Entered:
    """A call whose body may run now, once, with these arguments."""

    key: str
    args: BaseModel
    attempt: int = 1
    is_recorded: bool = True
    """Whether the ledger has recorded the beginning, and needs the end; False for an effect of ``"none"``."""


def guard(
    function: Callable[..., Any],
    localns: Mapping[str, Any],
    *,
    requires_approval: Approval = True,
    effect: Effect = "once",
    timeout: float | str | None = None,
    to: str | None = None,
    wait: float | None = None,
    key: Callable[..., str] | None = None,
    resumer: str | None = None,
    name: str | None = None,
    **words: Any,
) -> Guarded:
    """Inspect a function for the gate; raises `InvalidTool` for a function that cannot be shown or called."""
    named = name or getattr(function, "__name__", type(function).__name__)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTool(
            named, "it is a generator, whose result could not be kept: return a list, or guard what it calls"
        )
    signature = read_signature(function, named, ToolContext, localns)
    tool = Tool(
        name=named,
        parameters=signature.parameters,
        function=function,
        description=signature.description,
        effect=effect,
        display=display_of(words),
    )
    seconds = approval_seconds(timeout)
    results = Results(function)
    return Guarded(tool, results, requires_approval, seconds, to, signature, wait, key, resumer)


class GuardedFunctions:
    """A cache of inspected functions; those that were not called for long are dropped."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Guarded] = OrderedDict()

    def get(self, function: Callable[..., Any], shown: Mapping[str, Any]) -> Guarded:
        """An inspected function; a function that is guarded already keeps its own options."""
        already = getattr(function, "__askfirst__", None)
        if isinstance(already, Guarded):
            return already
        name = (function, tuple(sorted(shown.items())))
        try:
            known = self._known.get(name)
        except TypeError:  # a list or a mapping among the options
            return guard(function, {}, **shown)
        if known is None:
            known = self._known[name] = guard(function, {}, **shown)
        self._known.move_to_end(name)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return known


async def run_body(guarded: Guarded, args: BaseModel) -> Any:
    """Run a body: in the event loop if it is async, else in a thread."""
    if inspect.iscoroutinefunction(guarded.tool.function):
        return await guarded.call(args)
    returned: Any = await asyncio.to_thread(guarded.call, args)
    return await returned if inspect.isawaitable(returned) else returned


def guarded_function(
    gate: Gate, function: Callable[..., Any], localns: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    """The decorated function: it calls the original through the gate, and has the same signature."""
    if isinstance(function, classmethod | staticmethod):  # decorated in the other order
        inner = cast("staticmethod[..., Any]", function).__func__
        made = guarded_function(gate, inner, localns, options)
        return staticmethod(made) if isinstance(function, staticmethod) else classmethod(made)
    if _is_method(function):
        return _Method(gate, function, localns, options)
    guarded = guard(function, localns, **options)
    made = (
        _async_call(gate, guarded, function) if _is_async(function) else _sync_call(gate, guarded, function)
    )
    made.__askfirst__ = guarded
    return made


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function)


def _is_method(function: Callable[..., Any]) -> bool:
    """Whether a function is written in a class, and takes an instance or a class first."""
    parameters = list(inspect.signature(function).parameters.values())
    first = parameters[0] if parameters else None
    return first is not None and first.name in ("self", "cls") and first.annotation is first.empty


def _async_call(gate: Gate, guarded: Guarded, function: Callable[..., Any]) -> Any:
    @functools.wraps(function)
    async def called(*args: Any, **kwargs: Any) -> Any:
        outcome = await gate.call(called, _given(function, args, kwargs), **_how(guarded, args, kwargs))
        if isinstance(outcome, Ran):
            return outcome.result
        raise outcome

    return called


def _sync_call(gate: Gate, guarded: Guarded, function: Callable[..., Any]) -> Any:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        outcome = call_here(
            gate.portal, guarded, _given(function, args, kwargs), **_how(guarded, args, kwargs)
        )
        if isinstance(outcome, Ran):
            return outcome.result
        raise outcome

    return called


def call_here(
    portal: Portal, guarded: Guarded, args: Mapping[str, Any], *, key: str | None, wait: float | None
) -> Ran[Any] | Denied | Pending:
    """Call a function that is not async through the gate: its body runs in this thread, everything else in the
    portal's thread."""
    entered = portal.run(lambda gate: gate.enter(guarded, args, key=key, wait=wait))
    if not isinstance(entered, Entered):
        return entered
    ended: Stored | None = None
    try:
        result = guarded.call(entered.args)
        ended = guarded.results.encode(result)
        return Ran(result)
    except Exception as error:
        ended = failure(error)
        raise
    finally:  # also if the body was interrupted, which leaves its effect in doubt
        portal.run(lambda gate: gate.leave(guarded, entered, ended))


def _given(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{getattr(function, '__name__', function)}(): {error}") from None
    return dict(bound.arguments)


def _how(guarded: Guarded, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    key = None if guarded.key is None else _checked_key(guarded.key(*args, **kwargs))
    return {"key": key, "wait": guarded.wait}


def _checked_key(key: Any) -> str:
    if not (isinstance(key, str) and key):
        raise HitlError(f"the key of a call is a text, not {key!r}")
    return key


class _Method:
    """A guarded method or class method. The instance is not shown as an argument."""

    def __init__(
        self,
        gate: Gate,
        function: Callable[..., Any],
        localns: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self._gate, self._function = gate, function
        self._localns, self._options = localns, options
        self._read: Guarded | None = None
        functools.update_wrapper(self, function)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        bound = self._function.__get__(instance, owner)
        if self._read is None:
            self._read = guard(bound, self._localns, **self._options)
        guarded = replace(self._read, tool=_bound(self._read.tool, bound))
        made = (
            _async_call(self._gate, guarded, bound)
            if _is_async(bound)
            else _sync_call(self._gate, guarded, bound)
        )
        made.__askfirst__ = guarded
        return made

    def __call__(self, instance: object, /, *args: Any, **kwargs: Any) -> Any:
        """As a class method is called by Python 3.13 and later: with the class first."""
        return self.__get__(instance, None)(*args, **kwargs)


def _bound(tool: Tool, function: Callable[..., Any]) -> Tool:
    """The same tool, with its words, and with the method of another instance as its function."""
    return Tool(
        name=tool.name,
        parameters=tool.parameters,
        function=function,
        description=tool.description,
        effect=tool.effect,
        display=tool.display,
    )
