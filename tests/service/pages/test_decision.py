"""What a page tells of a case: from the real arguments and trusted words, and never more than a page can hold."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.page_scenes import Scene

from askfirst.display import Display
from askfirst.formats import CHINESE
from askfirst.requests import (
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Option,
    Question,
)
from askfirst.service.case import Case
from askfirst.service.pages.decision import Decision, decision_of, readable
from askfirst.service.pages.frame import chip_texts
from askfirst.service.pages.language import languages
from askfirst.service.pages.row import Row, View
from askfirst.service.risk_patterns import NO_PATTERNS, shipped_patterns

REFUND = Display(
    sentence="Pay back {cents:money:EUR} for order {order_id}",
    approve="Pay {cents:money:EUR}",
    labels={"cents": "Amount"},
    formats={"cents": "money:EUR"},
    important=["cents"],
    consequences=["money", "people:3", "custom:abroad"],
    undo="Void it",
    help_url="https://wiki.example/refunds",
)


def case_of(payload: HitlPayload | None = None, **fields: Any) -> Case:
    request = None if payload is None else HitlRequest(question_id="c1", payload=payload, created_at=0)
    plain: dict[str, Any] = {
        "type": "approval",
        "prompt": "Pay?",
        "thread_id": None if payload is None else "t",
    }
    return Case(
        case_id="c",
        status="pending",
        version=1,
        created_at=0,
        expires_at=1e10,
        request=request,
        **plain | fields,
    )


def approving(args: dict[str, Any], display: Display = REFUND, **details: Any) -> Case:
    return case_of(
        ApproveRequest(
            tool_name="pay_refund",
            tool_call_id="c1",
            args=args,
            digest="d" * 64,
            display=display.shown(args),
            details=details or None,
        )
    )


def row(decision: Decision, key: str) -> Row:
    [found] = [row for row in decision.rows if row.key == key]
    return found


def test_the_first_line_is_the_decision() -> None:
    decision = decision_of(approving({"order_id": "A-1042", "cents": 4900}, agent_path=["desk", "refunds"]))
    assert decision.sentence.text == "Pay back 49.00 EUR for order A-1042"
    assert [text for text, is_value in decision.sentence.parts if is_value] == ["49.00 EUR", "A-1042"]
    assert decision.sentence.source == "sentence"
    assert decision.approve == "Pay 49.00 EUR"
    assert [(chip.name, chip.count, chip.text) for chip in decision.chips] == [
        ("money", None, None),
        ("people", 3, None),
        ("custom", None, "abroad"),
    ]
    assert decision.asker.name == "refunds"
    assert decision.asker.path == ("desk", "refunds")
    assert decision.undo == "Void it"
    assert decision.help_url is not None
    assert decision.help_url.host == "wiki.example"
    amount = row(decision, "cents")
    assert decision.rows[0] is amount
    assert (amount.kind, amount.label, amount.text, amount.raw) == ("amount", "Amount", "49.00 EUR", "4900")


def test_edited_arguments_have_their_own_words() -> None:
    case = approving({"order_id": "A-1042", "cents": 4900})
    decision = decision_of(case, args={"order_id": "A-1042", "cents": 4000})
    assert decision.sentence.text == "Pay back 40.00 EUR for order A-1042"
    assert decision.approve == "Pay 40.00 EUR"
    assert row(decision, "cents").text == "40.00 EUR"


def test_a_readers_language_writes_its_own_values() -> None:
    display = Display(sentence="{on:date}", formats={"on": "date"})
    decision = decision_of(approving({"on": "2026-11-17"}, display), style=CHINESE)
    assert decision.sentence.text == "2026年11月17日"


@pytest.mark.parametrize(
    "evil", ["<script>x</script>", "a\u202eb", "\u0440\u0430ypal.com", "x" * 500, "\n\n\nApproved"]
)
def test_a_value_in_the_sentence_is_inert_marked_and_cut(evil: str) -> None:
    decision = decision_of(approving({"order_id": evil, "cents": 1}))
    [value] = [text for text, is_value in decision.sentence.parts if is_value][1:]
    assert "<script" not in value
    assert "\n" not in value
    assert len(decision.sentence.text) < 120
    if "\u202e" in evil:
        assert 'title="right-to-left override">U+202E</abbr></mark>' in value


@pytest.mark.parametrize(
    ("display", "text", "source"),
    [(Display(title="Refund"), "Refund", "title"), (Display(), "Pay refund", "name")],
)
def test_without_a_sentence_the_title_or_the_name_is_said(display: Display, text: str, source: str) -> None:
    sentence = decision_of(approving({}, display)).sentence
    assert (sentence.text, sentence.source, sentence.is_trusted) == (text, source, True)


def test_words_of_a_service_or_a_model_are_not_trusted() -> None:
    said = decision_of(case_of(None, prompt="Refund <b>49</b>?", key_id="k"), key_name="billing")
    assert (said.sentence.source, said.sentence.is_trusted) == ("words", False)
    assert said.sentence.html == "Refund &lt;b&gt;49&lt;/b&gt;?"
    assert (said.asker.kind, said.asker.name) == ("service", "billing")
    question = Question(key="q", prompt="Which?", options=[Option(label="A", value="a")])
    asked = decision_of(case_of(AskRequest(questions=[question]), type="selection"))
    assert not asked.sentence.is_trusted
    assert asked.may_decline


def test_a_service_says_how_its_facts_are_shown() -> None:
    case = case_of(
        None,
        context={"cents": 4900, "note": "x", "form": {}},
        shown={
            "labels": {"cents": "Amount"},
            "formats": {"cents": "money:EUR"},
            "risk": "high",
            "approve": "Pay",
            "reject": "Keep",
            "links": [
                {"title": "The order", "url": "https://shop.example/A?x=1"},
                {"title": "x", "url": "http://a"},
            ],
        },
    )
    decision = decision_of(case)
    assert [row.key for row in decision.rows] == ["cents", "note"]
    assert row(decision, "cents").text == "49.00 EUR"
    assert (decision.risk, decision.approve, decision.reject) == ("high", "Pay", "Keep")
    assert [(link.title, link.host) for link in decision.links] == [("The order", "shop.example")]


def test_every_reason_is_kept() -> None:
    more = [{"reason": "Large.", "matched_rule_id": "g"}, {"reason": "Refunds need a person."}]
    case = approving({"cents": 1}, reason="Refunds need a person.", matched_rule_id="refunds", reasons=more)
    assert [(why.text, why.rule) for why in decision_of(case).why] == [
        ("Refunds need a person.", "refunds"),
        ("Large.", "g"),
        ("Refunds need a person.", None),
    ]


def test_a_rule_without_a_reason_is_named_once_and_not_quoted() -> None:
    said = "rule 'no-erase' requires approval"
    [why] = decision_of(approving({"cents": 1}, reason=said, matched_rule_id="no-erase")).why
    assert (why.text, why.rule) == (None, "no-erase")


@pytest.mark.parametrize(
    ("declared", "least", "risk"),
    [
        (None, "high", "high"),
        ("critical", "low", "critical"),
        ("low", "normal", "normal"),
        (None, None, "normal"),
    ],
)
def test_a_rule_raises_the_risk_and_never_lowers_it(declared: Any, least: Any, risk: str) -> None:
    case = approving({"cents": 1}, Display(risk=declared), **({} if least is None else {"risk": least}))
    assert decision_of(case).risk == risk
    assert decision_of(case).rows[0].key == "cents"


def test_a_detail_that_is_no_level_of_risk_raises_nothing() -> None:
    case = approving({"cents": 1}, Display(), risk="of rain: 40 %")
    assert decision_of(case).risk == "normal"


@pytest.mark.parametrize(
    ("value", "form", "kind"),
    [
        (None, "", "absent"),
        ("", "", "empty"),
        ([], "", "empty"),
        ("x", "secret", "secret"),
        ("https://a.example/x", "url", "url"),
        (["a", "b"], "list", "list"),
        ([{"a": 1}, {"b": 2}], "table", "table"),
        ([{"a": 1}], "", "tree"),
        ({"owner": {"mail": "a@b.example"}}, "", "tree"),
        ("ls -l", "code:sh", "lines"),
        ("one\ntwo", "", "lines"),
        (True, "bool", "value"),
        (1.5, "amount:EUR", "amount"),
        (1.5, "money:EUR", "value"),  # it does not fit
    ],
)
def test_a_value_is_laid_out_by_its_kind(value: Any, form: str, kind: str) -> None:
    display = Display(formats={"v": form} if form else {})
    shown = row(decision_of(approving({"v": value}, display)), "v")
    assert shown.kind == kind
    assert "x" not in (shown.text or "") or kind != "secret"


def test_what_a_row_holds() -> None:
    display = Display(formats={"t": "table", "u": "url"})
    args = {
        "t": [{"a": 1, "b": None}],
        "o": {"owner": {"mail": "m"}, "l": [1]},
        "u": "https://a.example/x",
        "b": False,
    }
    decision = decision_of(approving(args, display))
    table = row(decision, "t").table
    assert table is not None
    assert (table.columns, table.cells) == (("a", "b"), (("1", "–"),))
    assert [(leaf.path, leaf.text) for leaf in row(decision, "o").leaves] == [
        ("owner.mail", "m"),
        ("l[0]", "1"),
    ]
    address = row(decision, "u").url
    assert address is not None
    assert address.host == "a.example"
    assert (row(decision, "b").text, row(decision, "b").raw) == ("No", None)


def test_a_risky_line_is_tinted_wherever_it_stands() -> None:
    """A banner that counts lines, and a tick that they were looked at, mean lines that can be seen."""
    args = {
        "commands": ["ls", "rm -rf /data"],
        "steps": [{"run": "ls", "then": "rm -rf /srv"}],
        "owner": {"run": {"last": "rm -rf /srv"}, "first": "ls"},
        "key": ["rm -rf /secret"],
    }
    display = Display(formats={"steps": "table", "key": "secret"})
    decision = decision_of(approving(args, display), patterns=shipped_patterns())
    why = "deletes files without asking"
    table = row(decision, "steps").table
    assert row(decision, "commands").risks == (None, why)
    assert table is not None
    assert table.risks == ((None, why),)
    assert [leaf.risk for leaf in row(decision, "owner").leaves] == [why, None]
    assert [(it.text, it.risk) for it in decision.risky] == [
        ("rm -rf /data", why),
        ("rm -rf /srv", why),
        ("rm -rf /srv", why),
    ]
    html = Scene(approving(args, display)).html()
    assert html.count(f'data-why="{why}"') == decision.marked_lines - 1 + len(decision.risky)
    assert "/secret" not in html


def test_the_lines_of_a_diff_are_tinted_and_keep_their_signs() -> None:
    text = "--- a\n+++ b\n@@ -1 +1 @@\n-takes 3 days\n+takes 5 days\n+rm -rf /srv\n same"
    html = Scene(approving({"d": text, "other": text}, Display(formats={"d": "diff"}))).html()
    assert re.findall(r'<li class="(in|out|risky)"[^>]*>([^<]*)', html)[:3] == [
        ("out", "-takes 3 days\n"),
        ("in", "+takes 5 days\n"),
        ("risky", "+rm -rf /srv\n"),
    ]
    assert html.count('class="in"') == 1  # nothing but a diff is


# Nothing unseen is approved.


def script(lines: int) -> str:
    return "\n".join(f"echo {number}" for number in range(1, lines + 1))


def test_no_fold_up_to_two_hundred_lines() -> None:
    decision = decision_of(approving({"command": script(200)}, Display(formats={"command": "code:sh"})))
    shown = row(decision, "command").lines
    assert shown is not None
    assert [line.number for line in shown.lines] == list(range(1, 201))
    assert decision.unopened == ()
    assert shown.language == "sh"


def test_above_that_the_beginning_and_the_end_and_what_was_left_out() -> None:
    case = approving({"command": script(1000)}, Display(risk="high"))
    decision = decision_of(case)
    shown = row(decision, "command").lines
    assert shown is not None
    assert [line.number for line in shown.lines] == [*range(1, 101), *range(951, 1001)]
    assert shown.gap is not None
    assert (shown.gap.first, shown.gap.last, shown.gap_at) == (101, 950, 100)
    assert decision.friction.tick
    rest = decision_of(case, view=View(row=0, start=shown.gap.start))
    following = row(rest, "command").lines
    assert following is not None
    assert [line.number for line in following.lines] == list(range(101, 1001))


def test_a_chunk_leads_to_the_next_until_all_was_shown() -> None:
    case = approving({"text": "y" * 1_000_000}, Display())
    start, shown = 0, ""
    for _ in range(20):
        lines = row(decision_of(case, view=View(row=0, start=start)), "text").lines
        assert lines is not None
        shown += "".join(line.text for line in lines.lines)
        if lines.gap is None:
            break
        assert lines.gap.start > start
        start = lines.gap.start
    assert shown == "y" * 1_000_000


def test_risky_lines_are_named_and_raise_normal_to_high() -> None:
    args = {"command": "ls\nrm -rf /", "other": {"deep": ["DROP TABLE a"]}}
    decision = decision_of(approving(args, Display()), patterns=shipped_patterns())
    lines = row(decision, "command").lines
    assert lines is not None
    assert [line.risk for line in lines.lines] == [None, "deletes files without asking"]
    assert (decision.marked_lines, decision.line_count) == (2, 3)
    assert (decision.declared_risk, decision.risk) == ("normal", "high")
    low = decision_of(approving(args, Display(risk="low")), patterns=shipped_patterns())
    assert low.risk == "low"  # its author has said so
    assert decision_of(approving(args, Display()), patterns=NO_PATTERNS).risk == "normal"


@pytest.mark.parametrize(
    ("risk", "friction"),
    [
        ("low", (False, False, False, False)),
        ("normal", (False, False, False, False)),
        ("high", (True, False, False, False)),
        ("critical", (True, True, True, False)),
    ],
)
def test_friction_follows_risk(risk: Any, friction: tuple[bool, ...]) -> None:
    asked = decision_of(approving({"a": 1}, Display(risk=risk))).friction
    assert (asked.second_step, asked.reason, asked.step_up, asked.tick) == friction


def test_a_risk_that_cannot_be_read_is_critical() -> None:
    payload = ApproveRequest(
        tool_name="x", tool_call_id="c1", args={}, digest="d" * 64, display={"risk": "odd"}
    )
    assert decision_of(case_of(payload)).risk == "critical"


def test_a_call_in_doubt_has_its_facts_and_its_sentence() -> None:
    details = {"tool_name": "wire", "tool_call_id": "c1", "args": {"cents": 1}, "attempt": 2}
    words = Display(sentence="Wire {cents:money:EUR}").shown({"cents": 1}) or {}
    payload = EscalateRequest(
        prompt="It may have run.",
        choices=["retry", "skip"],
        details=details,
        display={**words, "idempotency_key": "k"},
    )
    decision = decision_of(case_of(payload, type="escalation"), begun_at=5.0)
    assert decision.sentence.text == "Wire 0.01 EUR"
    assert decision.doubt is not None
    assert (decision.doubt.attempt, decision.doubt.begun_at, decision.doubt.idempotency_key) == (2, 5.0, "k")
    assert [row.key for row in decision.rows] == ["cents"]


HOSTILE = {
    "one line": "a" * 1_000_000,
    "only newlines": "\n" * 1_000_000,
    "hidden characters": "\u202e\u200b" * 500_000,
    "markup": "<&>" * 300_000,
    "risky lines": "rm -rf /\n" * 100_000,
    "long items": ["x" * 1000] * 1000,
    "many names": {f"k{number}": "v" * 50 for number in range(20_000)},
    "hidden items": ["\u202e" * 3] * 5_000,
    "deep": [[[[number]]] for number in range(20_000)],
    "wide table": [{f"c{number}": "\u200b" for number in range(300)}] * 100,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_values_of_a_page_stay_below_its_limit(name: str) -> None:
    for display in (Display(formats={"v": "table"}), Display()):
        decision = decision_of(approving({"v": HOSTILE[name]}, display), patterns=shipped_patterns())
        assert _size(decision) < 160_000
        assert decision.unopened


def test_many_arguments_are_shown_in_pages() -> None:
    case = approving({f"k{number}": "v" * 400 for number in range(5_000)}, Display())
    decision = decision_of(case)
    shown = len(decision.rows)
    assert 50 < shown <= 100
    assert decision.row_count == 5_000
    assert _size(decision) < 80_000
    rest = decision.unopened[-1]
    assert (rest.unit, rest.first, rest.last) == ("rows", shown + 1, 5_000)
    assert decision_of(case, view=View(rows_from=rest.start)).rows[0].key == f"k{shown}"


def _size(decision: Decision) -> int:
    """The characters of everything that a template would put on the page."""
    total = 0
    for each in decision.rows:
        texts = [each.name, each.label, each.text, each.raw, *each.items]
        texts += [text for leaf in each.leaves for text in (leaf.path, leaf.text)]
        if each.table is not None:
            texts += [*each.table.columns, *(cell for cells in each.table.cells for cell in cells)]
        if each.lines is not None:
            texts += [text for line in each.lines.lines for text in (line.text, line.risk)]
        total += sum(len(text) for text in texts if text is not None)
    return total


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=40)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FORMATS = st.sampled_from(
    [
        "money:EUR",
        "amount:EUR",
        "date",
        "datetime",
        "bytes",
        "list",
        "table",
        "url",
        "code:sh",
        "iban",
        "secret",
    ]
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5), st.dictionaries(st.text(max_size=8), FORMATS))
def test_any_arguments_in_any_format_are_shown(args: dict[str, Any], formats: dict[str, str]) -> None:
    words = Display(formats={**dict.fromkeys(args, "money:EUR"), **formats})
    for view in (View(), View(row=0), View(row=0, start=5)):
        decision = decision_of(approving(args, words), patterns=shipped_patterns(), view=view)
        assert len(decision.rows) == (len(args) if view.row is None else min(1, len(args)))


def test_a_secret_is_nowhere() -> None:
    args = {"token": "hunter2-hunter2", "cents": 1}
    display = Display(sentence="Use {token}", formats={"token": "secret"})
    for view in (View(), View(row=0)):
        assert "hunter2" not in repr(decision_of(approving(args, display), view=view))


def test_names_are_readable() -> None:
    assert [readable(name) for name in ("pay_refund", "delete-user", "x", "__")] == [
        "Pay refund",
        "Delete user",
        "X",
        "__",
    ]


@pytest.mark.parametrize(
    ("display", "texts"),
    [
        (Display(risk="high"), ["High risk"]),
        (Display(risk="critical", consequences=("money",)), ["Moves money", "Critical risk"]),
        (Display(risk="high", consequences=("irreversible",)), ["Cannot be undone"]),
        (Display(risk="critical", consequences=("irreversible",)), ["Cannot be undone", "Critical risk"]),
        (
            Display(risk="high", consequences=("access", "data")),
            ["Changes access", "Changes data", "High risk"],
        ),
        (Display(risk="normal"), []),
    ],
)
def test_a_red_button_never_stands_without_a_word_of_the_risk(display: Display, texts: list[str]) -> None:
    chips = chip_texts(decision_of(approving({"a": 1}, display)), languages()["en"])
    assert [str(it.text) for it in chips] == texts


def test_a_question_names_the_agent_that_asks_as_its_call_does() -> None:
    asked = ConfirmRequest(prompt="Go on?")
    case = case_of(asked, type="confirmation")
    assert decision_of(case).asker.name is None
    assert case.request is not None
    path = ["desk", "<b>refunds</b>"]
    named = dataclasses.replace(case, request=case.request.model_copy(update={"agent_path": path}))
    assert decision_of(named).asker.name == "&lt;b&gt;refunds&lt;/b&gt;"
    assert len(decision_of(named).asker.path) == 2


def test_what_a_tool_does_stands_below_a_heading_that_is_no_sentence() -> None:
    args = {"order_id": "A-1042", "cents": 4900}
    said = "Pay money back.\n\nThe bank takes <b>a day</b>."
    plain = decision_of(approving(args, Display(description=said)))
    assert (plain.sentence.source, plain.lead) == ("name", "Pay money back.")
    titled = decision_of(approving(args, Display(title="Pay refund", description=said)))
    assert (titled.sentence.source, titled.lead) == ("title", "Pay money back.")
    same = decision_of(approving(args, Display(title="Pay money back", description=said)))
    assert same.lead is None
    told = decision_of(approving(args, dataclasses.replace(REFUND, description=said)))
    assert (told.lead, told.description) == (
        None,
        "Pay money back.\n\nThe bank takes &lt;b&gt;a day&lt;/b&gt;.",
    )


def test_letters_of_another_script_are_not_called_hidden() -> None:
    decision = decision_of(approving({"order_id": "r\u0430ypal", "cents": 1, "note": "a\u200bb"}))
    assert (decision.foreign, decision.hidden) == (1, 1)
    html = Scene(approving({"order_id": "r\u0430ypal", "cents": 1})).html()
    assert "which may look like their own" in html
    assert "hidden character" not in html
    assert "which may look" not in Scene(approving({"order_id": "paypal", "cents": 1})).html()


@pytest.mark.parametrize(
    ("values", "is_broad"),
    [
        ({"command": "echo 1\necho 2"}, False),
        ({"command": "echo 1\n" + "x" * 77}, True),
        ({"note": "word " * 40}, False),
        ({"rows": [dict.fromkeys("abcd", 1)]}, False),
        ({"rows": [dict.fromkeys("abcde", 1)]}, True),
    ],
)
def test_code_and_tables_that_need_it_take_more_than_the_column(
    values: dict[str, Any], is_broad: bool
) -> None:
    case = approving(values, Display(formats={"command": "code:sh", "rows": "table"}))
    assert decision_of(case).is_broad is is_broad
    assert (' class="act card broad"' in Scene(case).html()) is is_broad
