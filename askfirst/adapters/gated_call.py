"""GatedCall: one call of another framework's tool at the gate, with the steps that every adapter takes.

An adapter only translates: its framework's call into a `GatedCall`, and the outcome into its framework's types. The
store is the authority. So an adapter ignores the value with which a run is resumed, and asks the gate again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from askfirst.agent.tools import Effect, display_of, json_object
from askfirst.agent.verdicts import denial, edited_notice, failed, not_run
from askfirst.display import Display, steps_before
from askfirst.errors import KeyConflict, NotApproved, Pending
from askfirst.gate.action import Action
from askfirst.gate.gate import Gate
from askfirst.gate.outcomes import Approved, Finished, Granted, InDoubt, Ran, Refused, Stored
from askfirst.messages import JsonObject
from askfirst.requests import approval_seconds

T = TypeVar("T")
ToolsGiven = Iterable[str] | Mapping[str, Mapping[str, Any]] | None
"""The tools of an adapter: names, or names with options of `Gate.guarded`; None for all."""

_TRIES = 5
"""How often `GatedCall.enter` tries, because a request may be settled between two of its reads."""
_OTHER_ARGUMENTS = "its arguments are not those that a person was asked about"


@dataclass(frozen=True, slots=True)
class NotRun:
    """The call's body does not run now, and ``text`` is what the model gets in place of a result."""

    text: str


@dataclass(frozen=True, slots=True)
class Start:
    """The body runs now, once, with these arguments; `GatedCall.finish` or `GatedCall.fail` records its end."""

    args: JsonObject
    note: str | None = None
    """The text that the model gets before the result, if a person changed the arguments."""
    idempotency_key: str | None = None
    attempt: int = 1
    is_recorded: bool = True
    """Whether the ledger records the call; False for the effect ``"none"``."""


@dataclass(frozen=True, slots=True)
class Done:
    """The body ran before: ``value`` is its result, as the stored JSON."""

    value: Any
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How a framework's result is encoded as JSON for the ledger and decoded again."""

    encode: Callable[[T], Any]
    decode: Callable[[Any], T]


@dataclass(frozen=True, slots=True)
class GatedCall:
    """One call of a tool, under a key that stays the same when the framework runs the call again."""

    gate: Gate
    key: str
    action: Action
    pauses: tuple[type[BaseException], ...] = ()
    """The framework's exceptions by which a body pauses its run. The framework later runs the body again from its
    start."""
    before_asking: Callable[[], Awaitable[None]] | None = None
    """Stores what the framework needs to continue; awaited before a person is asked."""

    async def decided(self) -> Approved | NotRun | None:
        """Open the call's request, once, and return the decision; None while it is pending. The body does not
        begin."""
        try:
            verdict = await self.gate.open(self.key, self.action, before_asking=self.before_asking)
        except KeyConflict:
            return NotRun(not_run(self.action.tool, _OTHER_ARGUMENTS))
        return self._refused(verdict) if isinstance(verdict, Refused) else verdict

    async def enter(self) -> Start | Done | NotRun | Pending:
        """Take the call through the gate up to its body. `Pending`: a person has to decide first."""
        for _ in range(_TRIES):
            entered = await self._enter()
            if entered is not None:
                return entered
        return NotRun(not_run(self.action.tool, "its request was withdrawn"))

    async def enter_within(self, wait: float | None) -> Start | Done | NotRun | Pending:
        """`enter`, and wait in place for the decision, for at most ``wait`` seconds; None waits without limit."""
        entered = await self.enter()
        while isinstance(entered, Pending) and wait != 0:
            if await self.gate.ledger.wait(self.key, entered.request.question_id, wait) is None:
                break
            entered = await self.enter()
        return entered

    async def _enter(self) -> Start | Done | NotRun | Pending | None:
        """One try of `enter`; None if the request was settled between two reads, so that another try is needed."""
        tool = self.action.tool
        try:
            verdict = await self.gate.open(self.key, self.action, before_asking=self.before_asking)
            if verdict is None:
                return await self.gate.waiting(self.key)
            if isinstance(verdict, Refused):
                return self._refused(verdict)
            note = edited_notice(verdict.args) if verdict.is_edited else None
            if self.action.effect == "none":
                return Start(verdict.args, note, is_recorded=False)
            begun = await self.gate.begin(self.key, verdict.args)
        except (KeyConflict, NotApproved):
            return NotRun(not_run(tool, _OTHER_ARGUMENTS))
        match begun:
            case Granted(idempotency_key, attempt, edited):
                args, said = (verdict.args, note) if edited is None else (edited, edited_notice(edited))
                return Start(args, said, idempotency_key, attempt)
            case Finished(stored):
                return self._finished(stored, note)
            case InDoubt():
                if self.before_asking is not None:  # nobody was asked so far if the policy allowed the call
                    await self.before_asking()
                return await self.gate.waiting(self.key)
            case Refused():
                return self._refused(begun)
            case _:
                return NotRun(not_run(tool, "another process runs it just now"))

    async def finish(self, started: Start, value: Any) -> None:
        """Record the result of the body, as JSON. Raises `GrantLost`."""
        if started.is_recorded:
            await self.gate.finish(self.key, value)

    async def fail(self, started: Start, error: BaseException | str) -> None:
        """Record that the body raised. Raises `GrantLost`."""
        if started.is_recorded:
            await self.gate.fail(self.key, error)

    async def abandon(self, started: Start) -> None:
        """Release the grant of a body that was cancelled: its effect is in doubt from now on."""
        if started.is_recorded:
            await self.gate.ledger.abandon(self.key)

    async def stop(self, started: Start, error: BaseException) -> None:
        """Record how a body that raised has ended: it failed, it paused its run, or it was cancelled."""
        if isinstance(error, self.pauses):
            if started.is_recorded:
                await self.gate.pause(self.key)
        elif isinstance(error, Exception):
            await self.fail(started, error)
        else:
            await self.abandon(started)

    async def run(
        self, body: Callable[[Start], Awaitable[T]], codec: Codec[T]
    ) -> Ran[tuple[T, str | None]] | NotRun | Pending:
        """Take the call through the gate and run its body. Returns the result, and the note that the model gets
        before it."""
        entered = await self.enter()
        if isinstance(entered, Done):
            return Ran((codec.decode(entered.value), entered.note))
        if not isinstance(entered, Start):
            return entered
        try:
            result = await body(entered)
        except BaseException as error:
            await self.stop(entered, error)
            raise
        await self.finish(entered, codec.encode(result))
        return Ran((result, entered.note))

    def run_sync(
        self, body: Callable[[Start], T], codec: Codec[T]
    ) -> Ran[tuple[T, str | None]] | NotRun | Pending:
        """`run` for code without an event loop: the body runs in this thread. The gate has to be made with its
        store's URL."""
        portal = self.gate.portal
        entered = portal.run(lambda gate: self._on(gate).enter())
        if isinstance(entered, Done):
            return Ran((codec.decode(entered.value), entered.note))
        if not isinstance(entered, Start):
            return entered
        try:
            result = body(entered)
        except BaseException as raised:
            error = raised
            portal.run(lambda gate: self._on(gate).stop(entered, error))
            raise
        value = codec.encode(result)
        portal.run(lambda gate: self._on(gate).finish(entered, value))
        return Ran((result, entered.note))

    def _on(self, gate: Gate) -> GatedCall:
        """This call on the gate of the portal's event loop."""
        return replace(self, gate=gate)

    def _refused(self, refused: Refused) -> NotRun:
        tool = self.action.tool
        return NotRun(
            denial(tool, refused.reason) if refused.by is not None else not_run(tool, refused.reason)
        )

    def _finished(self, stored: Stored, note: str | None) -> Done | NotRun:
        tool = self.action.tool
        if stored.error is not None:
            return NotRun(failed(tool, stored.error))
        if stored.digest is not None:
            return NotRun(f"{tool} ran before, and its result was not kept: {stored.problem}.")
        return Done(stored.value, note)


@dataclass(frozen=True, slots=True)
class _Options:
    display: Display
    effect: Effect
    timeout: float | None
    to: str | None


@dataclass(frozen=True, slots=True)
class GatedTools:
    """Which tools of a framework go through the gate, and how requests about each of them are shown.

    ``tools`` are names, or a mapping from names to options of `Gate.guarded` (``sentence``, ``risk``, ``effect``,
    ``timeout``, ``to``, …): a person decides on every call of these tools. The gate's policy decides on all other
    tools. Without ``tools`` and without a policy, a person decides on every call.
    """

    gate: Gate
    framework: str
    resumer: str | None
    tools: Mapping[str, _Options] | None = field(default=None)
    pauses: tuple[type[BaseException], ...] = ()

    @classmethod
    def of(
        cls,
        gate: Gate,
        framework: str,
        tools: ToolsGiven,
        resumer: str | None = None,
        pauses: tuple[type[BaseException], ...] = (),
    ) -> GatedTools:
        """Read the arguments of an adapter; ``resumer`` is the name of its resumer, under which workers know it."""
        return cls(gate, framework, resumer, None if tools is None else _given(tools), pauses)

    def has(self, name: str) -> bool:
        """Whether calls of a tool go through the gate."""
        return self.tools is None or name in self.tools or self.gate.has_policy

    def call(
        self,
        name: str,
        args: Mapping[str, Any],
        *,
        thread: str,
        call_id: str,
        schema: Mapping[str, Any] | None = None,
        agent_path: Collection[str] = (),
        before: Sequence[Mapping[str, Any]] = (),
    ) -> GatedCall:
        """A call at the gate. ``thread`` is what a worker resumes, ``call_id`` names the call in it.

        ``before`` are the framework's last steps, for the person who decides (`askfirst.display.steps_before`).
        """
        options = (self.tools or {}).get(name, _PLAIN)
        listed = self.tools is not None and name in self.tools
        shown = json_object(args)
        words = options.display.shown(shown, options.effect)
        if before:
            words = cast(JsonObject, {**(words or {}), "before": steps_before(before)})
        action = Action(
            tool=name,
            args=shown,
            args_schema=None if schema is None else json_object(schema),
            requires_approval=listed or (self.tools is None and not self.gate.has_policy),
            effect=options.effect,
            timeout=options.timeout,
            agent_path=tuple(agent_path),
            to=options.to,
            display=words,
            resumer=self.resumer,
            resumes=thread,
        )
        return GatedCall(self.gate, f"{self.framework}:{thread}:{call_id}", action, self.pauses)


def with_defaults(args: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of a call with the defaults of the tool's JSON Schema, as a person sees them and as they run."""
    fields: Mapping[str, Any] = (schema or {}).get("properties", {})
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    return {**defaults, **args}


def _given(tools: Iterable[str] | Mapping[str, Mapping[str, Any]]) -> dict[str, _Options]:
    if isinstance(tools, str):
        raise TypeError(f"tools are several names, not one text: write [{tools!r}]")
    if not isinstance(tools, Mapping):
        return dict.fromkeys(tools, _PLAIN)
    named = cast("Mapping[str, Mapping[str, Any]]", tools)
    return {name: _read(name, options) for name, options in named.items()}


def _read(name: str, options: Mapping[str, Any]) -> _Options:
    words = dict(options)
    effect: Effect = words.pop("effect", "once")
    seconds = approval_seconds(words.pop("timeout", None))
    to: str | None = words.pop("to", None)
    display = display_of(words)
    display.check(name, None)  # only the words are checked: the arguments are known to the framework alone
    return _Options(display, effect, seconds, to)


_PLAIN = _Options(Display(), "once", None, None)
