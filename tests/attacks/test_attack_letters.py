"""Letters that pass for others, marks that strike through, and blanks that print: pointed out on every surface."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.post_office import post_office
from rich.console import Console

from askfirst.cli.main import main
from askfirst.cli.output import exact_json, say
from askfirst.delivery.apprise import AppriseTarget, targets_of
from askfirst.delivery.base import Notice
from askfirst.delivery.email import EmailDelivery
from askfirst.delivery.telegram_messages import asking_text
from askfirst.delivery.terminal import Column
from askfirst.delivery.text import cut
from askfirst.service.pages.inert_text import has_hidden, marked
from askfirst.visible_text import MOST_MARKS, NOTE, pieces, visible

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
KIND = "letters that deceive"
BLANKS = "\U0001d159\U00016fe4\U0001107f\u2d7f\U00013441\U00013442"
MIXED = {
    "p\u0430ypal.com": "p<Cyrillic \u0430>ypal.com",
    "G\u03bf\u03bfgle": "G<Greek \u03bf\u03bf>gle",
    "\u0430\u0440\u0440\u04cf\u0435.com": "<Cyrillic \u0430\u0440\u0440\u04cf\u0435>.com",
    "mail@\u0441\u043e\u0440.com": "mail@<Cyrillic \u0441\u043e\u0440>.com",
    "\u0430\u0440\u0440le\u0430": "\u0430\u0440\u0440<Latin le>\u0430",
    "c\u0585py": "c<Armenian \u0585>py",
    "\u13a2nvoice": "<Cherokee \u13a2>nvoice",
    "a1\u04302b": "a1<Cyrillic \u0430>2b",
    "\u03b1\u0430": "\u03b1<Cyrillic \u0430>",
    "\u4f7f\u7528p\u0430y": "\u4f7f\u7528p<Cyrillic \u0430>y",
}
MARKED = {
    "p\u0336a\u0336y": "p<U+0336>a<U+0336>y",
    "5\u20e0 EUR": "5<U+20E0> EUR",
    "1\u20d20": "1<U+20D2>0",
    "a" + "\u0301" * 200: "a" + "\u0301" * MOST_MARKS + "<U+0301>" * (200 - MOST_MARKS),
    **{f"pay{blank}ed": f"pay<U+{ord(blank):04X}>ed" for blank in BLANKS},
}
POINTED_OUT = {**MIXED, **MARKED}
ORDINARY = [
    "naïve Straße Łódź Ångström \u212b \u00b5m",
    "5 \u03bcm, 10\u03bcg, 4.7 k\u03a9, 3 M\u2126, \u0394T, 2\u03c0r",
    "日本語のテキスト、カタカナとABCとひらがな。α版",
    "한국어와 漢字와 ABC를",
    "使用GPU加速，β粒子",
    "ใช้GPUทำงาน",
    "Привет, мир! SMS-сообщение, файл.txt, IT-рынок, e-mail",
    "Καλημέρα κόσμε, e-mail: α@β.gr",
    "हिन्दी में लिखा गया पाठ",
    "שלום עולם Google",
    "مرحبا بالعالم",
    "Tie\u0302\u0301ng Vie\u0323\u0302t",
    "a \u2260 b, =\u0338",
    "❤️ 👍🏽",
    "x² + y₁ = ½ №5 ™",
]


@pytest.mark.attack("L4", KIND)
def test_what_deceives_is_written_as_what_it_is(attacks_tried: Callable[[int], None]) -> None:
    attacks_tried(len(POINTED_OUT))
    assert {text: visible(text) for text in POINTED_OUT} == POINTED_OUT


def test_ordinary_text_of_any_language_stays_as_it_is() -> None:
    assert [visible(text) for text in ORDINARY] == ORDINARY
    assert [marked(text) for text in ORDINARY] == [html.escape(text) for text in ORDINARY]
    assert not any(has_hidden(text) for text in ORDINARY)


@given(st.text() | st.text(alphabet="a\u0430\u03b1\u0301\u0336\u20e0\ufe0f❤1 .\u05d0日\u202e<>"))
def test_nothing_of_a_text_is_lost_and_what_is_shown_is_shown_so_again(text: str) -> None:
    assert "".join(part.text for part in pieces(text)) == text
    assert all(part.note is None or re.fullmatch(NOTE, f"<{part.note}>") for part in pieces(text))
    assert visible(visible(text)) == visible(text)


@pytest.mark.attack("L4", KIND)
@pytest.mark.parametrize("text", POINTED_OUT)
def test_a_page_marks_it(text: str) -> None:
    shown = re.sub(r"</?abbr[^>]*>", "", marked(text))
    said = re.sub(r"<mark>(.*?)</mark>", lambda found: _bracketed(found[1]), shown)
    assert html.unescape(said) == POINTED_OUT[text]
    assert has_hidden(text)


def _bracketed(mark: str) -> str:
    name, _, times = mark.partition(" &times; ")
    return f"<{name}>" * int(times or 1)


@pytest.mark.attack("L4", KIND)
@pytest.mark.parametrize("text", POINTED_OUT)
def test_a_terminal_a_messenger_and_json_show_it(text: str) -> None:
    out = io.StringIO()
    Column(Console(file=out, width=4000, force_terminal=False)).block("asks", text)
    assert POINTED_OUT[text] in out.getvalue()
    notice = Notice("review", "case_1", text)
    assert asking_text(notice) == POINTED_OUT[text]
    assert _apprise()._within_limits(notice)[1] == POINTED_OUT[text]  # pyright: ignore[reportPrivateUsage]
    exact = exact_json({"to": text})
    assert json.loads(exact) == {"to": text}
    assert "\\u" in exact


def _apprise() -> AppriseTarget:
    [place] = targets_of(["json://localhost"])
    return place


@pytest.mark.anyio
@pytest.mark.attack("L4", KIND)
async def test_a_mail_shows_it() -> None:
    async with post_office() as office:
        for text in POINTED_OUT:
            facts = {"service": "a.example", "prompt": text}
            link = "https://a.example/r?token=t"
            await EmailDelivery(office.url(), to="ann@a.example").send(
                Notice("review", "case_1", text, link, facts=facts)
            )
    for mail, shown in zip(office.mails, POINTED_OUT.values(), strict=True):
        body = mail.get_body(("plain",))
        assert body is not None
        assert shown in body.get_content()
        assert mail["Subject"].startswith(shown[:40])


def test_a_note_is_not_cut_apart() -> None:
    whole = visible("p\u0430ypal " * 20)
    for limit in range(40, len(whole)):
        before, _, _ = cut(whole, limit).partition("…")
        assert before.count("<") == before.count(">")


@pytest.mark.attack("L5", "raw characters on a terminal")
def test_no_command_writes_a_character_that_acts(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "x\x9b2J\u202e\u200b\x1b]0;y\x07p\u0430y"
    say(f"{hostile}\nnext line")
    say(hostile, err=True)
    for arguments in (["show", hostile], ["answer", hostile, "--approve"], [hostile], ["--x" + hostile]):
        with pytest.raises(SystemExit):
            main(arguments)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert "<U+009B>2J<U+202E><U+200B><U+001B>]0;y<U+0007>p<Cyrillic \u0430>y" in text
        assert all(char.isprintable() or char == "\n" for char in text)
