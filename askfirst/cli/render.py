"""An agent's events in a terminal, with progress bars of running tools."""

from __future__ import annotations

import json
from collections.abc import Sequence

from askfirst.errors import MissingExtra

try:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text
except ModuleNotFoundError as error:
    raise MissingExtra("the terminal view", "cli") from error

from askfirst.delivery.terminal import Column
from askfirst.delivery.terminal_dialogue import call_line, request_heading, request_text
from askfirst.events import (
    AgentAbortedEvent,
    AgentEvent,
    AgentSuspendedEvent,
    HitlAnswerEvent,
    HitlRequestEvent,
    MessageDeltaEvent,
    MessageEndedEvent,
    RunEndedEvent,
    RunStartedEvent,
    ToolEndedEvent,
    ToolProgressEvent,
    ToolStartedEvent,
)
from askfirst.messages import (
    AssistantMessage,
    Delta,
    FilePart,
    ImagePart,
    Message,
    TextDelta,
    TextPart,
    ThinkingDelta,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    Value,
    canonical_json,
)
from askfirst.requests import HitlRequest

# Progress bars of running tools.


_CELLS = 24


class Bars:
    """One bar for each tool that reports, below everything else.

    In a terminal they move in place and are gone once hidden. Elsewhere they are lines: one for every
    tenth of the way, or for every new text where no fraction is known.
    """

    def __init__(self, console: Console, column: Column) -> None:
        self._console = console
        self._column = column
        self._reports: dict[str, ToolProgressEvent] = {}
        self._live: Live | None = None

    def show(self, report: ToolProgressEvent) -> None:
        """Show the progress of a tool."""
        before = self._reports.get(report.tool_call_id)
        self._reports[report.tool_call_id] = report
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._draw()
        elif before is None or _step(before) != _step(report):
            self._column.block("", _line(report))

    def remove(self, tool_call_id: str) -> None:
        """Take a tool's bar away."""
        if self._reports.pop(tool_call_id, None) and self._live is not None:
            self._draw()

    def hide(self) -> None:
        """Make room for other output; the next report brings the bars back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> None:
        if not self._reports:
            self.hide()
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        names = max(len(report.tool_name) for report in self._reports.values())
        bars = [self._bar(report, names) for report in self._reports.values()]
        self._live.update(Group(*bars), refresh=True)

    def _bar(self, report: ToolProgressEvent, names: int) -> Text:
        shown = self._column.shown
        done, rest = ("━", "─") if self._column.unicode else ("=", "-")
        line = Text(self._column.margin, "dim", no_wrap=True)
        line.append(f"{shown(report.tool_name):<{names}} ", "not dim")
        if report.fraction is not None:
            cells = int(report.fraction * _CELLS)
            line.append(done * cells, "not dim green" if cells == _CELLS else "not dim magenta")
            line.append(f"{rest * (_CELLS - cells)} ")
            line.append(f"{report.fraction:>4.0%} ", "not dim")
        line.append(shown(report.text))
        line.truncate(self._console.width - 1, overflow="ellipsis" if self._column.unicode else "crop")
        return line


def _step(report: ToolProgressEvent) -> object:
    return report.text if report.fraction is None else int(report.fraction * 10)


def _line(report: ToolProgressEvent) -> str:
    percent = "" if report.fraction is None else f" {report.fraction:.0%}"
    return f"{report.tool_name}{percent} {report.text}".rstrip()


_Block = (
    RunStartedEvent
    | MessageEndedEvent
    | ToolStartedEvent
    | HitlRequestEvent
    | HitlAnswerEvent
    | AgentSuspendedEvent
    | AgentAbortedEvent
    | RunEndedEvent
)

RESULT_LIMIT = 2_000
"""A tool's result is shown up to this many characters, and the view says how many are left out."""


class TerminalView:
    """A listener that shows one agent at work: ``agent.subscribe(TerminalView())``.

    Text appears as the model says it. Every call is shown with its exact arguments, and once more where it
    runs with others than the model wrote. What a person is asked, and what came of it, has labels of its own.
    Progress is a live bar. Labels stand in a column of their own
    that no text can reach, and characters that act or hide are shown as code points. Where the output is
    no terminal, it is plain lines.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._column = Column(self._console)
        self._bars = Bars(self._console, self._column)
        self._streamed = ""
        self._asked: dict[str, ToolCall] = {}

    def __call__(self, event: AgentEvent) -> None:
        """Show an event."""
        match event:
            case ToolProgressEvent():
                self._column.close()
                self._bars.show(event)
            case ToolEndedEvent():
                self._bars.remove(event.tool_call_id)
            case MessageDeltaEvent():
                self._bars.hide()
                self._delta(event.delta)
            case _ if isinstance(event, _Block):
                self._bars.hide()
                self._column.close()
                self._block(event)
            case _:
                pass

    def _block(self, event: _Block) -> None:
        match event:
            case RunStartedEvent():
                self._column.block("run", f"{event.agent_id} {'goes on' if event.resumed else 'starts'}")
            case MessageEndedEvent():
                self._message(event.message)
            case ToolStartedEvent():
                self._started(event)
            case HitlRequestEvent():
                self._column.block("asks", self._asks(event.request), label_style="bold yellow")
            case HitlAnswerEvent():
                self._column.block("answer", _answered(event), label_style="bold yellow")
            case AgentSuspendedEvent():
                said = f"nobody waits for {event.pending_request.question_id} here; it can still be answered"
                self._column.block("waits", said, label_style="bold yellow")
            case AgentAbortedEvent():
                self._column.block("closed", event.reason, label_style="bold red", style="red")
            case RunEndedEvent():
                self._ended(event)

    def _asks(self, request: HitlRequest) -> str:
        """Show a request whole, below the id to answer it by."""
        return f"{request_heading(request)}\n{request_text(request.payload, self._column.room)}"

    def _delta(self, delta: Delta) -> None:
        match delta:
            case TextDelta():
                self._streamed += delta.text
                self._say("agent", delta.text)
            case ThinkingDelta():
                self._say("thinks", delta.text, "dim italic")
            case _ if delta.type == "restart":
                self._streamed = ""
                self._column.block("retry", f"the answer starts anew: {delta.reason}", label_style="bold red")
            case _:
                pass  # a call is shown once it is whole

    def _say(self, label: str, text: str, style: str = "") -> None:
        if self._column.label != label:
            self._column.open(label, label_style=style or "bold", style=style)
        self._column.write(text)

    def _message(self, message: Message) -> None:
        match message:
            case UserMessage():
                self._column.block("you", _shown(message.content), label_style="bold blue")
            case AssistantMessage():
                self._answer(message)
            case ToolResultMessage():
                self._result(message)

    def _answer(self, message: AssistantMessage) -> None:
        """Show the model's message if it differs from the text streamed before, and its calls."""
        if message.text != self._streamed:
            self._column.block("kept" if self._streamed else "agent", message.text or "(nothing)")
        self._streamed = ""
        self._asked = {call.id: call for call in message.tool_calls}
        for call in message.tool_calls:
            if call.malformed is None:
                said = call_line(call.name, call.args, self._column.room)
            else:
                said = f"{call.name} (no JSON object) {call.malformed}"
            self._column.block("call", said, label_style="bold magenta")

    def _started(self, event: ToolStartedEvent) -> None:
        asked = self._asked.get(event.tool_call_id)
        if asked is None or canonical_json(asked.args) != canonical_json(event.args):
            said = call_line(event.tool_name, event.args, self._column.room)
            self._column.block("runs", said, label_style="bold magenta")

    def _result(self, message: ToolResultMessage) -> None:
        text = _shown(message.content)
        if not text.startswith(message.tool_name):
            text = f"{message.tool_name}: {text}"
        label, colour = ("error", "red") if message.is_error else ("result", "green")
        style = colour if message.is_error else ""
        self._column.block(label, text[:RESULT_LIMIT], label_style=f"bold {colour}", style=style)
        if len(text) > RESULT_LIMIT:
            self._column.block("more", f"{len(text) - RESULT_LIMIT:,} characters are not shown", style="dim")

    def _ended(self, event: RunEndedEvent) -> None:
        colour = "green" if event.status == "completed" else "red"
        said = event.status + (f": {event.reason}" if event.reason else "") + _cost(event.usage)
        self._column.block("run", said, label_style=f"bold {colour}", style=colour)


def _answered(event: HitlAnswerEvent) -> str:
    if event.timed_out:
        return f"{event.question_id}: nobody answered in time"
    if event.cancelled:
        return f"{event.question_id}: cancelled"
    if event.answer is None:
        return f"{event.question_id}: no answer"
    return f"{event.question_id}: {json.dumps(event.answer, ensure_ascii=False)}"


def _shown(content: Sequence[Value]) -> str:
    """Content as text; what is no text is named."""
    return "".join(part.text if isinstance(part, TextPart) else _named(part) for part in content)


def _named(part: Value) -> str:
    if isinstance(part, ImagePart | FilePart):
        where = part.url if part.data is None else f"{len(part.data):,} bytes"
        return f"({part.media_type}, {where})"
    return f"({getattr(part, 'type', 'unknown')})"


def _cost(usage: Usage) -> str:
    if not usage.input_tokens + usage.output_tokens:
        return ""
    cached = f" ({usage.cache_read_tokens:,} from cache)" if usage.cache_read_tokens else ""
    return f" ({usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out)"
