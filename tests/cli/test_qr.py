"""A link as a QR code in a terminal."""

from __future__ import annotations

import io
import sys

import pytest
import segno
from rich.console import Console

from askfirst.cli.qr import print_qr
from askfirst.errors import MissingExtra

LINK = "https://reviews.example.com/review/review_ca6f65a1fb0a75ba0d638b0303e33459?token=" + "t" * 43
DARK = {"█": (1, 1), "▀": (1, 0), "▄": (0, 1), " ": (0, 0)}


def console(**options: object) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    usual = {"force_terminal": True, "color_system": "standard", "width": 80, "no_color": False}
    return Console(file=file, **{**usual, **options}), file


def test_what_is_printed_is_the_code() -> None:
    terminal, file = console()
    assert print_qr(terminal, LINK)
    lines = file.getvalue().splitlines()
    assert all(
        line.startswith("\x1b[30;107m") and line.endswith("\x1b[0m") for line in lines
    )  # dark on light
    halves = [[DARK[char] for char in line[len("\x1b[30;107m") : -len("\x1b[0m")]] for line in lines]
    rows = [[pair[half] for pair in line] for line in halves for half in (0, 1)]
    wanted = [list(row) for row in segno.make(LINK, error="l").matrix_iter(border=2)]
    assert rows[: len(wanted)] == wanted
    assert all(not any(row) for row in rows[len(wanted) :])


@pytest.mark.parametrize(
    "options",
    [{"force_terminal": False}, {"width": 40}, {"color_system": None}],
    ids=["pipe", "narrow", "plain"],
)
def test_nothing_is_printed_where_it_could_not_be_read(options: dict[str, object]) -> None:
    terminal, file = console(**options)
    assert not print_qr(terminal, LINK)
    assert file.getvalue() == ""


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "segno", None)
    with pytest.raises(MissingExtra, match=r"askfirst\[cli\]"):
        print_qr(console()[0], LINK)
