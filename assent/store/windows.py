"""How much of something was used lately, in a few numbers however much it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic_core import from_json, to_json

PARTS = 60
"""In so many parts of a window uses are told apart: what falls into one part counts as its first use does."""

Used = Sequence[tuple[int, int]]
"""When, and how much then; oldest first."""


class Window(NamedTuple):
    """What may be used: ``most`` within so many ``milliseconds``, whenever these begin."""

    most: int
    milliseconds: int

    def recent(self, used: Used, now: int) -> list[tuple[int, int]]:
        """What counts still; clocks of several machines differ a little."""
        return [(at, amount) for at, amount in used if abs(now - at) < self.milliseconds]

    def wait(self, used: Used, now: int, amount: int = 1) -> int | None:
        """None if so much more may be used; else after how many milliseconds that may be."""
        recent = self.recent(used, now)
        left = sum(each for _, each in recent) + amount
        if left <= self.most:
            return None
        for at, each in recent:
            left -= each
            if left <= self.most:
                return max(1, at + self.milliseconds - now)
        return self.milliseconds

    def after(self, used: Used, now: int, amount: int = 1) -> list[tuple[int, int]]:
        """What counts once so much more is used."""
        recent = self.recent(used, now)
        if recent and abs(now - recent[-1][0]) < self.milliseconds // PARTS:
            at, before = recent.pop()
            return [*recent, (at, before + amount)]
        return [*recent, (now, amount)]


def read_used(text: str) -> list[tuple[int, int]]:
    """What a column says was used."""
    return [(at, amount) for at, amount in from_json(text)]


def write_used(used: Used) -> str:
    """What was used, as a column has it."""
    return to_json(used).decode()
