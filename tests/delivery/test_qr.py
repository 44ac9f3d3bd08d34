"""QR codes in a terminal, read again from its cells by another program's eyes."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import zxingcpp
from rich.console import Console

from askfirst.delivery import Ended, Notice, QRDelivery
from askfirst.delivery.qr import print_qr

pytestmark = pytest.mark.anyio

LINK = "https://reviews.example.com/review/review_ca6f65a1fb0a75ba0d638b0303e33459?token=" + "t" * 43
CELLS = re.compile(r"^\x1b\[30;107m([ ▀▄█]+)\x1b\[0m$", re.MULTILINE)
HALVES = {"█": (0, 0), "▀": (0, 255), "▄": (255, 0), " ": (255, 255)}
DOTS = 4


def terminal(**options: object) -> Console:
    usual = {"force_terminal": True, "color_system": "standard", "width": 80, "no_color": False}
    return Console(file=io.StringIO(), **{**usual, **options})


def output(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def decoded(text: str) -> list[str]:
    """What a camera reads in the dark-on-light cells of a terminal."""
    rows: list[list[int]] = []
    for line in CELLS.findall(text):
        rows += [[HALVES[cell][half] for cell in line] for half in (0, 1)]
    picture = np.array(rows, dtype=np.uint8).repeat(DOTS, axis=0).repeat(DOTS, axis=1)
    around = np.pad(picture, 10 * DOTS, constant_values=40)  # a dark terminal around it
    return [found.text for found in zxingcpp.read_barcodes(around)]


@pytest.mark.parametrize("link", [LINK, "http://192.168.1.7:8000/review/r?token=" + "-_" * 21 + "A"])
async def test_the_code_is_the_link(link: str) -> None:
    console = terminal()
    await QRDelivery(console).send(Notice("review", "r1", "Please decide.", link))
    assert decoded(output(console)) == [link]
    assert "Please decide." in output(console)
    assert link in output(console)


@pytest.mark.parametrize("options", [{"width": 40}, {"force_terminal": False}, {"color_system": None}])
async def test_where_it_could_not_be_read_the_link_alone_is_there(options: dict[str, object]) -> None:
    console = terminal(**options)
    await QRDelivery(console).send(Notice("review", "r1", "Please decide.", LINK))
    assert LINK in output(console)
    assert "▀" not in output(console)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:8000"])
async def test_an_address_that_no_phone_can_reach_has_no_code(host: str) -> None:
    console = terminal()
    link = f"http://{host}/review/r?token=t"
    await QRDelivery(console).send(Notice("review", "r1", "Please decide.", link))
    assert link in output(console)
    assert "▀" not in output(console)
    assert "A phone cannot reach" in output(console)
    assert not print_qr(console, link)


async def test_what_has_no_link_has_no_code() -> None:
    console = terminal()
    delivery = QRDelivery(console)
    sent = await delivery.send(Notice("progress", "r1", "Somebody opened the page."))
    await delivery.update(sent, Ended("r1", "completed", "Approved by Ada."))
    assert "▀" not in output(console)
    assert "Approved by Ada." in output(console)
