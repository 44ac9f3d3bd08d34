"""Hostile text (markup, hidden characters) in every place of a page; and strategies for any text and any value."""

from __future__ import annotations

from hypothesis import strategies as st

from askfirst.requests import AskRequest, ConfirmRequest, EscalateRequest, Option, Question
from askfirst.service.case import Case
from kit import page_cases as cases

CORPUS = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(1)><style>*{display:none}</style>",
    "breaking out": '"></textarea></div></section></form></main><form action="https://evil.example">',
    "comment": "<!-- <details open> --> ]]> <![CDATA[ </html>",
    "link": '[Approve](https://evil.example) <a href="javascript:alert(1)">here</a> https://evil.example',
    "template": "{{ 7*7 }} {% include 'unknown.html' %} ${7*7}",
    "entities": "&lt;b&gt; &#x202e; &amp;amp; &nbsp;",
    "bidi": "invoice\u202efdp.exe \u2066a\u2069 \u200f",
    "zero width": "pay\u200bpal \u2060\ufeff\u00ad \u3164 \U000e0041",
    "controls": "a\x00b\x1b[2Jc\x7f\x85\u2028d\u2029\r\ne\tf",
    "spaces": "  before and after\u00a0\u2003 ",
    "blank lines": "nothing to see" + "\n" * 200 + "rm -rf /",
    "many spaces": "harmless" + " " * 5000 + "; rm -rf /",
    "banner": "\n\nAlready approved\nby your administrator.\n\nWhat will happen\nread_file",
    "zalgo": "Z" + "\u0335\u0322\u0353" * 40,
    "megabyte": "x" * 1_000_000 + "END",
    "marks": "<mark>U+202E</mark> U+202E ␣",
}
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
ANY_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)


def everywhere(text: str) -> dict[str, Case]:
    """The text in every place that an agent or a service can write to."""
    label = text[:200]
    option = {"value": text[:50], "label": text}
    fields = [
        {"key": "a", "type": "text", "label": label, "hint": text, "placeholder": text, "default": text},
        {"key": "b", "type": "select", "label": label, "options": [option]},
        {"key": "c", "type": "multiselect", "label": label, "options": [option] * 9},
    ]
    step = {"title": text, "description": text, "fields": fields}
    question = Question(
        key="k",
        prompt=text,
        options=[Option(label=text, value=text, description=text), Option(label="b", value="b")],
    )
    return {
        "arguments": cases.approval({"arg": text, text: "named"}, tool_name=text, details={"why": text}),
        "reasons": cases.approval(
            details={"reason": text, "matched_rule_id": text, "agent_path": [text], "principal": text}
        ),
        "service": cases.service_case("approval", {"fact": text, text: 1}, prompt=text, message=text),
        "form": cases.service_case("input", {"form": {"steps": [step, step]}}, prompt=text),
        "items": cases.service_case("selection", {"items": [{"id": text, "title": text, "more": text}]}),
        "confirm": cases.agent_case(ConfirmRequest(prompt=text, details={"fact": text})),
        "escalate": cases.agent_case(
            EscalateRequest(prompt=text, choices=["retry"], details={"tool_name": text, "args": {"a": text}})
        ),
        "ask": cases.agent_case(AskRequest(questions=[question])),
        "ask more": cases.agent_case(AskRequest(questions=[question, question])),
        "reason": cases.approval(status="cancelled", reason=text),
        "result": cases.service_case(
            "x-own",
            status="completed",
            result={"action": text, "data": {"answer": text}},
            responded_by={"name": text},
            next_case_id=text,
        ),
    }
