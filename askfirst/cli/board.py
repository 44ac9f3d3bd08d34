"""``askfirst`` without a command, in a terminal: the open requests, to be chosen with the arrow keys."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from prompt_toolkit import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from askfirst.checkpointer.encoding import stored_request
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.find import AgentRequest, NotOpen
from askfirst.cli.output import given_url, on_database, risk_patterns, say
from askfirst.cli.pending import Line, open_lines, table
from askfirst.cli.show import find_whole, print_item
from askfirst.delivery.terminal_answers import answer_in_terminal
from askfirst.service.risk_patterns import RiskPatterns
from askfirst.store.inspect import look

_AGAIN_SECONDS = 1.0
_AROUND = 3
"""Lines of the screen that are not items: the table's head, a blank line, the hint."""
_HINT = "Arrow keys choose, Enter opens, q quits. askfirst --help lists all commands."


def show_board() -> None:
    """List what waits, and let the person open one after the other until they quit."""
    found = asyncio.run(look(given_url()))
    if found.version is None:  # to open the database would make one
        say(f"Nothing waits for a person: {found.where} is no database of Askfirst yet.")
        say("askfirst --help lists all commands.")
        return
    on_database(partial(_board, risk_patterns()), acts=True)


async def _board(patterns: RiskPatterns, checkpointer: SqlCheckpointer) -> None:
    while (chosen := await _choose(checkpointer, patterns)) is not None:
        try:
            found, told, came_of = await find_whole(chosen.id, checkpointer)
        except NotOpen:  # it was settled and deleted at this moment
            continue
        if isinstance(found, AgentRequest):
            await answer_in_terminal(checkpointer, stored_request(found.row))
        else:
            await asyncio.to_thread(partial(print_item, found, told, came_of))


async def _choose(checkpointer: SqlCheckpointer, patterns: RiskPatterns) -> Line | None:
    """The item that the person opens; None if they quit, or nothing waits."""
    menu = _Menu(await open_lines(checkpointer, patterns))
    if not menu.lines:
        say(table([], 0, None)[0].text)
        return None
    application: Application[Line | None] = Application(
        Layout(Window(FormattedTextControl(lambda: menu.text(application)), always_hide_cursor=True)),
        key_bindings=menu.keys(),
        output=_output(),
        erase_when_done=True,
    )

    async def look_again() -> None:
        while True:
            await asyncio.sleep(_AGAIN_SECONDS)
            menu.lines = await open_lines(checkpointer, patterns)
            application.invalidate()

    looking = asyncio.create_task(look_again())
    try:
        return await application.run_async()
    finally:
        looking.cancel()


def _output() -> Output:
    output = create_output()
    if isinstance(output, Vt100_Output):
        output.enable_cpr = (
            False  # not every terminal tells where its cursor is, and a warning would be printed
        )
    return output


class _Menu:
    """The items, one of which is chosen; it stays chosen while others come and go."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self._chosen = lines[0].id if lines else ""

    @property
    def _place(self) -> int:
        return next((place for place, line in enumerate(self.lines) if line.id == self._chosen), 0)

    def text(self, application: Application[Line | None]) -> StyleAndTextTuples:
        """The table as far as it fits the screen, around the chosen item."""
        size = application.output.get_size()
        room = max(size.rows - _AROUND, 1)
        first = min(max(self._place - room // 2, 0), max(len(self.lines) - room, 0))
        rows = table(self.lines, time.time(), size.columns)
        styled: StyleAndTextTuples = [("bold", f"{rows[0].text}\n")]
        for place, row in enumerate(rows[1:][first : first + room], first):
            style = "fg:ansired" if row.is_urgent else ""
            chosen = " reverse" if place == self._place and self.lines else ""
            styled.append((f"{style}{chosen}", f"{row.text}\n"))
        return [*styled, ("", f"\n{_HINT}")]

    def keys(self) -> KeyBindings:
        """The keys: none of them decides anything."""
        keys = KeyBindings()

        def move(by: int, _: KeyPressEvent) -> None:
            if self.lines:
                self._chosen = self.lines[min(max(self._place + by, 0), len(self.lines) - 1)].id

        def leave(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

        def choose(event: KeyPressEvent) -> None:
            event.app.exit(result=self.lines[self._place] if self.lines else None)

        keys.add("up")(partial(move, -1))
        keys.add("down")(partial(move, 1))
        keys.add("enter")(choose)
        for key in ("q", "c-c", "c-d"):
            keys.add(key)(leave)
        return keys
