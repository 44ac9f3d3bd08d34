"""How an action is shown: declared words are checked at once, and filled with the values of the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import Field

from askfirst import Gate, tool
from askfirst.adapters.gated_call import GatedTools
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.display import Display, Risk, button_text, filled, is_link, step_args, steps_before
from askfirst.errors import InvalidTool
from askfirst.formats import CHINESE

ARGS = {"cents": 4900, "order_id": "A-1042"}


def test_a_tools_words_are_filled_with_its_arguments() -> None:
    @tool(
        sentence="Pay back {cents:money:EUR} for order {order_id}",
        approve="Pay {cents:money:EUR}",
        labels={"cents": "Amount"},
        important=["cents"],
        consequences=["money", "irreversible", "people:3", "custom:leaves the country"],
        undo="Void it in the bank's page",
        help_url="https://wiki.example/refunds",
    )
    def pay_refund(order_id: str, cents: int) -> str:
        """Pay money back."""
        return order_id

    words = pay_refund.words_for(ARGS)
    assert words is not None
    assert words["sentence"] == "Pay back 49.00 EUR for order A-1042"
    assert words["approve"] == "Pay 49.00 EUR"
    assert words["risk"] == "high"  # it cannot be undone
    assert words["description"] == "Pay money back."
    assert words["formats"] == {"cents": "money:EUR"}, "the sentence's format counts for the value's own row"
    assert words["templates"] == {
        "sentence": "Pay back {cents:money:EUR} for order {order_id}",
        "approve": "Pay {cents:money:EUR}",
    }


def test_a_format_of_its_own_goes_before_that_of_the_sentence() -> None:
    @tool(sentence="Use {key:secret} for {cents:money:EUR}", formats={"cents": "number"})
    def use(key: str, cents: int) -> str:
        return key

    words = use.words_for({"key": "k-1", "cents": 4900})
    assert words is not None
    assert words["sentence"] == "Use … for 49.00 EUR"
    assert words["formats"] == {"key": "secret", "cents": "number"}


def test_titles_and_formats_of_parameters_are_labels_and_formats() -> None:
    @tool(labels={"to": "Recipient"})
    def pay(
        cents: Annotated[int, Field(title="Amount", json_schema_extra={"format": "money:EUR"})],
        to: Annotated[str, Field(title="Account", json_schema_extra={"format": "no such format"})],
    ) -> str:
        return to

    words = pay.words_for({"cents": 1, "to": "a"})
    assert words is not None
    assert words["labels"] == {"cents": "Amount", "to": "Recipient"}
    assert words["formats"] == {"cents": "money:EUR"}
    assert "hints" not in words


def test_the_descriptions_of_parameters_are_hints_in_one_line() -> None:
    @tool
    def pay(cents: Annotated[int, Field(description="In cents,\n at most what was paid.")], to: str) -> str:
        """Pay."""
        return to

    @tool
    def send(to: str) -> str:
        """Send.

        Args:
            to: Whom to write to.
        """
        return to

    assert (pay.words_for({"cents": 1, "to": "a"}) or {})["hints"] == {
        "cents": "In cents, at most what was paid."
    }
    assert (send.words_for({"to": "a"}) or {})["hints"] == {"to": "Whom to write to."}
    long = Display().with_defaults({}, {}, {f"p{n}": "word " * 100 for n in range(50)}, "")
    assert len(long.hints) == 20
    assert {len(it) for it in long.hints.values()} == {200}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"sentence": "Pay {amount}"}, "sentence names 'amount', but the arguments are: cents"),
        ({"approve": "Pay {amount}"}, "approve names 'amount'"),
        ({"labels": {"amount": "Amount"}}, "labels names 'amount'"),
        ({"formats": {"amount": "number"}}, "formats names 'amount'"),
        ({"important": ["amount"]}, "important names 'amount'"),
        ({"sentence": "Pay {cents:moneys}"}, "'moneys', which does not exist"),
        ({"formats": {"cents": "moneys"}}, "'moneys', which does not exist"),
        ({"sentence": "Pay {cents!r}"}, "a brace that is not a placeholder"),
        ({"sentence": "Pay {}"}, "a brace that is not a placeholder"),
        ({"risk": "huge"}, "risk is one of low, normal, high, critical"),
        ({"consequences": ["doom"]}, "consequences are some of money"),
        ({"help_url": "http://wiki.example"}, "help_url is an https address"),
        ({"help_url": 'https://wiki.example/"onclick=x'}, "help_url is an https address"),
    ],
)
def test_words_that_cannot_be_shown_are_an_error_at_import(words: Mapping[str, Any], said: str) -> None:
    def pay(cents: int) -> None: ...

    with pytest.raises(InvalidTool) as raised:
        tool(**words)(pay)
    assert said in str(raised.value)
    with pytest.raises(InvalidTool) as raised:
        Gate(MemoryCheckpointer()).guarded(**words)(pay)
    assert said in str(raised.value)


def test_another_frameworks_tool_is_checked_as_far_as_it_is_known() -> None:
    gate = Gate(MemoryCheckpointer())
    words = {"sentence": "Pay {cents:money:EUR}", "risk": "high", "consequences": ["money"]}
    gated = GatedTools.of(gate, "langgraph", {"pay": words})
    call = gated.call("pay", {"cents": 4900}, thread="t", call_id="1")
    assert call.action.display is not None
    assert call.action.display["sentence"] == "Pay 49.00 EUR"
    with pytest.raises(InvalidTool, match="does not exist"):
        GatedTools.of(gate, "langgraph", {"pay": {"sentence": "Pay {cents:moneys}"}})


def test_a_risk_may_be_a_function_and_fails_closed(caplog: pytest.LogCaptureFixture) -> None:
    def by_amount(args: Mapping[str, Any]) -> Risk:
        return "high" if args["cents"] > 1000 else "low"

    display = Display(risk=by_amount)
    assert (display.shown({"cents": 2000}) or {})["risk"] == "high"
    assert (display.shown({"cents": 1}) or {})["risk"] == "low"
    assert not caplog.messages
    assert (display.shown({}) or {})["risk"] == "critical"
    assert caplog.messages == ["the function for a call's risk failed (KeyError); it is critical"]
    strange: Any = lambda args: "whatever"  # noqa: E731
    assert (Display(risk=strange).shown({}) or {})["risk"] == "critical"
    assert "returned none of its levels" in caplog.messages[-1]


@pytest.mark.parametrize(
    ("effect", "consequences", "risk"),
    [("once", (), None), ("none", (), "low"), ("idempotent", (), "low"), ("none", ("production",), "high")],
)
def test_the_risk_of_what_was_not_declared(
    effect: str, consequences: tuple[str, ...], risk: str | None
) -> None:
    said = Display(consequences=consequences).shown({}, effect) or {}
    assert said.get("risk") == risk


def test_a_value_in_a_sentence_is_visible_in_one_line_and_cut() -> None:
    long = filled("To {a}", {"a": "x" * 100}, {})
    assert long == f"To {'x' * 39}…{'x' * 20}"
    assert filled("To {a}", {"a": "a\u202eb\nc"}, {}) == "To a<U+202E>b<U+000A>c"
    assert filled("To {a}", {"a": "{b}", "b": "no"}, {}) == "To {b}"  # what a value holds is no placeholder
    assert filled("{a} {b} {c}", {"a": None, "b": True, "c": [1, 2]}, {}) == "– Yes 1, 2"
    assert filled("{a}", {"a": list(range(9))}, {}) == "0, 1, 2, 3, 4, 5, 6 and 2 more"
    assert filled("{a}", {"a": list(range(9))}, {}, CHINESE) == "0、1、2、3、4、5、6等共 9 项"
    assert filled("{a:bytes}", {"a": 1023}, {}, CHINESE) == "1,023 字节"
    assert filled("{a}", {"a": 10**5000}, {}) == "…"
    assert filled("The code is {a}", {"a": "hunter2"}, {"a": "secret"}) == "The code is …"


def test_a_button_that_is_too_long_is_none() -> None:
    assert button_text("Pay {a}", {"a": "x" * 20}, {}) == f"Pay {'x' * 20}"
    assert button_text("Pay {a}", {"a": "x" * 21}, {}) is None


@pytest.mark.parametrize(
    "address",
    [
        "http://a.example",
        "https://",
        "javascript:alert(1)",
        "https://user:pw@a.example",
        "https://a b",
        "https://é.example",
    ],
)
def test_what_is_no_link(address: str) -> None:
    assert not is_link(address)


def test_steps_before_are_few_and_short() -> None:
    kept = steps_before([{"who": "tool", "text": "y" * 1000}] * 50)
    assert len(kept) == 20
    assert all(len(str(step["text"])) <= 400 for step in kept)
    assert steps_before([{"text": "Well.", "tool": "", "failed": False}]) == [
        {"who": "agent", "text": "Well."}
    ]
    failed = {"who": "tool", "text": "no", "tool": "find", "failed": True}
    assert steps_before([failed]) == [failed]


def test_a_call_as_a_step_is_one_short_line() -> None:
    args = {"order": "A-1", "deep": {"a": [1]}, "long": "y" * 500, **{f"n{n}": n for n in range(20)}}
    said = step_args(args)
    assert said.startswith('order: A-1, deep: {"a": [1]}, long: y')
    assert len(said) < 400
    assert "n7" not in said
