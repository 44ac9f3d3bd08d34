"""Progress bars of running tools."""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from assent.delivery.column import Column
from assent.events import ToolProgressEvent

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
        """Show how far a tool is."""
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
