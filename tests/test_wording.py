"""Texts in several languages: which one a reader gets, what is stored, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from askfirst import Gate, tool
from askfirst.adapters.gated_call import GatedTools
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.display import Display
from askfirst.errors import InvalidPolicy, InvalidTool
from askfirst.permissions import Decision, PendingAction, StaticPermissionPolicy
from askfirst.permissions.guardrails import tighten
from askfirst.permissions.rules import Rule
from askfirst.wording import matching_tag, wording_in, words_in

pytestmark = pytest.mark.anyio
ARGS = {"cents": 4900, "order": "A-1", "day": "2026-11-17"}
PAY = Display(
    title={"en": "Pay refund", "zh-Hans": "退款"},
    sentence={"en": "Pay {cents:money:EUR} on {day:date}", "zh-Hans": "{day:date}退款 {cents:money:EUR}"},
    approve={"en": "Pay {cents:money:EUR}", "zh-Hans": "退款 {cents:money:EUR}"},
    labels={"cents": {"en": "Amount", "zh-Hans": "金额"}, "order": "Order"},
    formats={"cents": "money:EUR"},
    consequences=["money", {"en": "custom:leaves the country", "zh-Hans": "custom:汇往境外"}],
    undo={"en": "Void it.", "zh-Hans": "作废即可。"},
)


def test_a_reader_gets_the_words_of_their_language_and_formats_of_it() -> None:
    words = PAY.shown(ARGS)
    assert words is not None
    english, chinese = words_in(words, "en"), words_in(words, "zh-Hans")
    assert english["sentence"] == "Pay 49.00 EUR on 17 Nov 2026"
    assert chinese["sentence"] == "2026年11月17日退款 49.00 EUR"
    assert chinese["approve"] == "退款 49.00 EUR"
    assert chinese["labels"] == {"cents": "金额", "order": "Order"}
    assert chinese["consequences"] == ["money", "custom:汇往境外"]
    assert chinese["undo"] == "作废即可。"
    assert chinese["formats"] == english["formats"]
    assert "in" not in english | chinese


def test_who_reads_a_language_that_was_not_given_gets_the_first() -> None:
    words = PAY.shown(ARGS)
    assert words is not None
    assert words_in(words, "de") == words_in(words, None) == words_in(words, "en")


def test_programs_that_know_of_no_languages_read_the_first_one_as_before() -> None:
    words = PAY.shown(ARGS)
    assert words is not None
    assert words["sentence"] == "Pay 49.00 EUR on 17 Nov 2026"
    assert words["labels"] == {"cents": "Amount", "order": "Order"}
    plain = Display(sentence="Pay {cents:money:EUR}", labels={"cents": "Amount"}).shown(ARGS)
    assert plain is not None
    assert "in" not in plain, "words in one language are stored as they always were"


def test_a_button_that_is_too_long_in_one_language_is_left_out_in_that_one_alone() -> None:
    said = {"en": "Pay it back to the customer at once", "zh-Hans": "退款"}
    words = Display(approve=said).shown({})
    assert words is not None
    assert "approve" not in words_in(words, "en")
    assert words_in(words, "zh-Hans")["approve"] == "退款"
    words = Display(approve={"en": "Pay", "de": "Der Kundschaft alles zurückzahlen"}).shown({})
    assert words is not None
    assert "approve" not in words_in(words, "de"), "not the English word among German ones"


def test_the_risk_of_a_consequence_holds_in_every_language() -> None:
    words = Display(consequences=[{"en": "money", "zh-Hans": "irreversible"}]).shown({})
    assert words is not None
    assert words_in(words, "en")["risk"] == words_in(words, "zh-Hans")["risk"] == "high"


@pytest.mark.parametrize(
    ("tag", "known", "found"),
    [
        ("zh-Hans", ["en", "zh-Hans"], "zh-Hans"),
        ("zh-Hans", ["en", "zh-CN"], "zh-CN"),
        ("ZH-hans", ["zh-Hans"], "zh-Hans"),
        ("zh-Hans", ["zh-Hant", "zh-TW"], None),
        ("zh-TW", ["zh-Hans", "zh-Hant"], "zh-Hant"),
        ("en", ["de", "en-GB"], "en-GB"),
        ("en", ["de", "fr"], None),
    ],
)
def test_the_language_that_serves_a_reader(tag: str, known: list[str], found: str | None) -> None:
    assert matching_tag(tag, known) == found
    assert wording_in({it: it for it in known}, tag) == (found or known[0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"sentence": {}}, "sentence must be a text, or one for each language"),
        ({"sentence": {"en": ""}}, "sentence must be a text, and not empty, in the language 'en'"),
        ({"undo": {"en": 5}}, "undo must be a text, and not empty, in the language 'en'"),
        ({"title": ["a"]}, "title must be a text, or one for each language, .* not list"),
        ({"labels": {"cents": {"English": "Amount"}}}, r"labels\['cents'\] has the language 'English'"),
        ({"sentence": {"en": "Pay {cents}", "zh-Hans": "退款 {sum}"}}, "sentence names 'sum'"),
        ({"sentence": {"en": "Pay", "zh-Hans": "退款 {cents:mony}"}}, "format 'mony', which does not exist"),
        ({"sentence": {"en": "Pay", "zh-Hans": "退款 }"}}, "a brace that is not a placeholder"),
        ({"consequences": [{"en": "money", "zh-Hans": "钱"}]}, "consequences are some of"),
        ({"sentence": {f"a{chr(97 + it)}": "x" for it in range(21)}}, "at most 20 languages"),
    ],
)
def test_words_that_cannot_be_shown_in_some_language_are_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidTool, match=said):

        @tool(**words)
        def pay(cents: int) -> str:  # pyright: ignore[reportUnusedFunction]
            return str(cents)


def test_adapters_take_them_too() -> None:
    gate = Gate(MemoryCheckpointer())
    options = {"pay": {"sentence": {"en": "Pay {cents}", "zh-Hans": "付款 {cents}"}}}
    words = (
        GatedTools.of(gate, "f", options).call("pay", {"cents": 5}, thread="t", call_id="c").action.display
    )
    assert words is not None
    assert words_in(words, "zh-Hans")["sentence"] == "付款 5"
    with pytest.raises(InvalidTool, match="must be a text"):
        GatedTools.of(gate, "f", {"pay": {"sentence": {"en": ["Pay"]}, "undo": 5}})


# Reasons.

REASON = {"en": "Refunds need a person.", "zh-Hans": "退款须由人批准。"}
TOML = """
[[rules]]
id = "refunds"
effect = "require_approval"
reason = {en = "Refunds need a person.", zh-Hans = "退款须由人批准。"}
"""


def test_a_rules_reason_in_several_languages_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(TOML, "utf-8")
    policy = StaticPermissionPolicy.from_file(file)
    decision = policy.evaluate(PendingAction(tool="pay"))
    assert decision.reason == "Refunds need a person.", "what a model reads, and the log"
    assert decision.reason_in == REASON
    assert "Refunds need a person." in str(policy.explain(PendingAction(tool="pay")))


@pytest.mark.parametrize("reason", [{}, {"en": ""}, {"english": "x"}, {"en": 5}])
def test_reasons_that_cannot_be_shown_are_refused(reason: Any) -> None:
    for make in (
        lambda: Rule(id="r", effect="require_approval", reason=reason),
        lambda: StaticPermissionPolicy([{"id": "r", "effect": "require_approval", "reason": reason}]),
        lambda: Decision.ask(reason),
        lambda: Decision.of({"allowed": False, "requires_approval": True, "reason": reason}),
    ):
        with pytest.raises(InvalidPolicy, match="reason"):
            make()


async def test_all_reasons_are_kept_in_all_their_languages() -> None:
    action = PendingAction(tool="pay")
    rule = Rule(id="refunds", effect="require_approval", reason=REASON)
    more = {"zh-Hans": "金额较大。", "en": "A large amount."}
    [decision] = await tighten(
        [StaticPermissionPolicy([rule]).evaluate(action)], [action], [lambda _: Decision.ask(more)]
    )
    assert decision.reason_in == REASON
    assert [(it.reason, it.matched_rule_id, it.reason_in) for it in decision.also] == [
        ("金额较大。", None, more)
    ]


def test_a_decision_in_one_language_is_stored_as_it_always_was() -> None:
    assert Decision.ask("Why not?").reason_in == {}
    assert (
        json.dumps(Decision.of({"allowed": True, "requires_approval": True, "reason": "x"}).reason) == '"x"'
    )
