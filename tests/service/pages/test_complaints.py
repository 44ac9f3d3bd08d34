"""The complaints about the page before this one (sections A, B and D): each has a test that fails on that page."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from kit import page_cases as cases
from kit.page_cases import NOW
from kit.page_scenes import SCRIPT, Scene, doubt, refund, scenes, shell
from kit.page_text import Page

from askfirst.service.pages import Reader, languages

ALL = scenes()


def page(name: str) -> Page:
    return Page(ALL[name].html())


def h1(page: Page) -> str:
    return page.all("h1")[0].text


def css(rule: str) -> str:
    """The declarations of a rule of the style sheet."""
    from askfirst.service.assets import STATIC

    found = re.search(rf"^{re.escape(rule)} \{{(.*?)^\}}", (STATIC / "page.css").read_text(), re.M | re.S)
    assert found is not None, rule
    return found[1]


# A. Dangerous.


def test_a1_nothing_below_200_lines_is_folded_and_lines_have_numbers() -> None:
    shown = Page(Scene(shell()).html())
    assert SCRIPT in shown.texts(), "40 lines stand there, from the first to the last"
    (lines,) = shown.all("ol", class_="lines")
    assert lines.attrs["start"] == "1"
    assert "text-indent: -2ch" in css(".lines > li"), "what is broken over lines hangs"
    long = Page(Scene(shell("\n".join(f"echo {n}" for n in range(300)))).html())
    (bar,) = long.all("section", class_="decide")
    assert "150 lines not opened" in bar.text
    (tick,) = long.all("input", name="unread")
    assert tick.attrs["value"] == "accepted"


def test_a2_a_decision_can_be_undone_and_what_is_of_high_risk_asks_again() -> None:
    held = page("held")
    assert h1(held).startswith("You approved: ")
    (form,) = held.all("form")
    assert "/undo?" in str(form.attrs["action"])
    assert [each.text for each in held.all("button")] == ["Undo"]
    assert not page("held-elsewhere").all("button")
    (go,) = page("approval-high").all("button", id="go")
    assert "data-second" in go.attrs
    assert go.text.endswith("…")


def test_a3_red_is_what_cannot_be_undone_and_reject_is_neutral() -> None:
    assert "danger" in str(page("approval-high").all("button", id="go")[0].attrs["class"])
    assert "yes" in str(page("approval").all("button", id="go")[0].attrs["class"])
    for name in ("approval", "approval-high"):
        for each in page(name).all("button"):
            if "Reject" in each.text:
                assert "danger" not in str(each.attrs.get("class"))


def test_a4_an_effect_in_doubt_asks_what_the_person_found() -> None:
    shown = Page(Scene(doubt()).html())
    assert h1(shown) == "Transfer: it may or may not have happened"
    (banner,) = shown.all("div", class_="banner")
    assert "Running it again may do it twice" in banner.text
    assert [each.attrs["value"] for each in shown.all("input", name="action")] == ["skip", "retry", "abort"]
    for said in ("What did you find?", "It happened", "It did not happen", "I cannot tell"):
        assert said in shown.all("main")[0].text


def test_a5_silence_that_approves_is_said_at_the_top() -> None:
    case = dataclasses.replace(refund(default_action="approve"), expires_at=NOW + 720)
    (pill,) = Page(Scene(case).html()).all("p", id="state")
    assert pill.text == "12 min left, then approved"
    assert "soon" in str(pill.attrs["class"])


def test_a6_no_button_is_called_cancel() -> None:
    for name, scene in ALL.items():
        for each in Page(scene.html()).all("button"):
            assert each.text.strip() != "Cancel", name
    assert "Confirm none" in page("confirmation").all("section", class_="decide")[0].text


# B. Confusing.


def test_b1_who_asks_on_whose_behalf_whose_page_and_as_whom() -> None:
    shown = page("approval")
    assert shown.all("header")[0].text.split("\n")[1] == "Shop GmbH"
    asker = shown.all("div", class_="asker")[0].text
    assert "refund-desk asks, 1 min ago" in asker
    assert "for bo@example.com · thread ticket-7" in asker
    assert "You decide as Ada Ngo" in shown.all("section", class_="decide")[0].text
    assert "billing asks" in page("selection").all("div", class_="asker")[0].text


def test_b2_the_heading_and_the_tab_are_the_decision() -> None:
    shown = page("approval")
    assert h1(shown) == "Pay back 49.00 EUR for order A-1042"
    assert shown.all("title")[0].text == "Pay back 49.00 EUR for order A-1042 · Shop GmbH"
    assert shown.all("button", id="go")[0].text == "Pay 49.00 EUR"
    headings = [
        h1(page(name)) for name in ("approval", "approval-high", "approval-plain", "approval-service")
    ]
    assert len(set(headings)) == 4


def test_b3_values_are_written_for_who_decides() -> None:
    act = page("approval").all("section", class_="act")[0].text
    for said in ("Amount", "49.00 EUR", "4900", "Order"):
        assert said in act
    mail: dict[str, Any] = {"to": ["ada@example.com"], "cc": None, "urgent": False}
    plain = Page(Scene(cases.approval(mail)).html()).all("section", class_="act")[0].text
    assert "ada@example.com" in plain
    assert "not given" in plain
    assert "No" in plain
    for word in ("[", "null", "false", "yes or no", "list"):
        assert word not in plain
    hidden = Page(Scene(cases.approval({"to": "pay\u200bpal"})).html())
    assert "1 hidden character. It is shown in yellow." in hidden.all("main")[0].text


def test_b5_what_is_left_is_exact() -> None:
    for seconds, left in ((14_340, "3 h 59 min left"), (72 * 3600, "3 days left")):
        case = dataclasses.replace(refund(), expires_at=NOW + seconds)
        (pill,) = Page(Scene(case).html()).all("p", id="state")
        assert pill.text == left
        assert pill.attrs["data-until"] == str(int(NOW + seconds)), "a script counts on from there"
    assert "/live?" in ALL["approval"].html()


def test_b6_what_came_of_it_is_told() -> None:
    done = page("done")
    text = done.all("main")[0].text
    for said in ("Paid 40.00 EUR to ada@example.com", "How to undo it", "Void the payment", "It ran"):
        assert said in text
    assert len(done.all("section", class_="act")) == 0, (
        "one card tells the amount, and not another one the old"
    )
    assert "It was approved and failed" in page("failed").all("main")[0].text
    assert "The agent has not picked it up yet" in page("sent").all("main")[0].text


def test_b7_rounds_lead_on_and_show_what_is_new() -> None:
    (new,) = page("approval-round").all("section", class_="round")
    assert "Say what is broken." in new.text
    assert [each.text for each in page("approval-round").all("ins")]
    asked = ALL["changes-asked"]
    assert asked.standing is not None
    follows = dataclasses.replace(asked.standing, has_next=True)
    case = dataclasses.replace(asked.case, next_case_id="case_2")
    links = [each.attrs["href"] for each in Page(Scene(case, follows).html()).all("a")]
    assert any("/next?" in str(link) for link in links)


def test_b8_why_you_are_asked_is_a_sentence() -> None:
    (why,) = page("approval").all("section", class_="why")
    assert "Refunds above 5.00 EUR need a person." in why.text
    assert why.text.count("refunds") == 1


def test_b9_errors_are_sentences_beside_their_fields() -> None:
    shown = page("form-faults")
    assert [each.text for each in shown.all("p", class_="fault")] == ["Fill this in."]
    html = ALL["form-faults"].html()
    assert 0 < html.index('id="f-name-fault"') - html.index('id="f-name"') < 400


def test_b10_editing_shows_the_fields_alone_and_no_json_for_a_list() -> None:
    shown = Page(
        Scene(cases.approval({"to": ["a@b.example", "c@d.example"]}), given={"stage": "edit"}).html()
    )
    (field,) = shown.all("textarea", id="arg.0")
    assert field.text == "\na@b.example\nc@d.example"
    assert not shown.all("dl", class_="tree")
    assert len(shown.all("section", class_="act")) == 1, "the call does not stand there twice"
    assert "Reject" in shown.all("section", class_="decide")[0].text
    check = page("edit-check")
    assert [(each.text) for each in check.all("del")] == ["49.00", "cracked"]
    assert [(each.text) for each in check.all("ins")] == ["40.00", "broken"]


# D. Ugly.


def test_d1_d2_d3_one_family_of_type_one_grid_no_rules_under_headings() -> None:
    from askfirst.service.assets import STATIC

    sheet = (STATIC / "page.css").read_text()
    assert "serif" not in sheet.replace("sans-serif", "")
    assert "italic" not in sheet
    assert "border" not in css("h1")


def test_d4_the_note_is_folded_and_nothing_stands_before_the_decision() -> None:
    shown = page("approval")
    for each in shown.all("textarea"):
        assert "sheet" in each.inside
    assert "Your decision" not in [each.text for each in shown.all("h2")]


def test_d5_ids_and_digests_are_folded() -> None:
    for name, scene in ALL.items():
        html = scene.html()
        digest = scene.case.digest
        if digest and f">{digest}<" in html and not scene.sight.get("view"):
            assert html.index('<details class="details fold">') < html.index(f">{digest}<"), name


def test_d6_d8_no_type_words() -> None:
    for name in ("approval-plain", "edit", "edit-check"):
        dts = " ".join(each.text for each in page(name).all("dt"))
        for word in ("yes or no", "number", "nothing", "object"):
            assert word not in dts, name


# C6, and the words that are nobody's.


def test_every_catalogue_has_every_sentence_with_the_same_places() -> None:
    english = languages()["en"].sentences
    for tag, language in languages().items():
        assert set(language.sentences) == set(english), tag
        for key, said in english.items():
            places = {frozenset(re.findall(r"\{\w+\}", form)) for form in _forms(said)}
            others = {frozenset(re.findall(r"\{\w+\}", form)) for form in _forms(language.sentences[key])}
            if key not in ("time.at",):  # a month's name, or its number
                assert others <= places, (tag, key)


def _forms(said: Any) -> list[str]:
    return [said] if isinstance(said, str) else list(said.values())


@pytest.mark.parametrize("name", ALL)
def test_every_word_is_the_case_s_or_the_catalogue_s(name: str) -> None:
    """In a pseudo-locale every sentence of ours is in brackets; what is outside of them is the case's."""
    from askfirst.service.pages.language import Language

    pseudo = {
        key: f"⟦{said}⟧" if isinstance(said, str) else {form: f"⟦{text}⟧" for form, text in said.items()}
        for key, said in languages()["en"].sentences.items()
    }
    html = ALL[name].html(Reader(Language("en", pseudo)))
    body = re.sub(r"(?s)^.*?<body[^>]*>|<svg.*?</svg>", "", html)
    text = re.sub(r"<[^>]+>", "\n", body)
    for _ in range(6):
        text = re.sub(r"⟦[^⟦⟧]*⟧", "", text)
    ours = {
        word
        for said in languages()["en"].sentences.values()
        for form in _forms(said)
        for word in re.findall(r"[A-Z][a-z]{3,}(?: [a-z]+)+", form)
    }
    known = " ".join(
        str(value) for value in (ALL[name].case, ALL[name].sight, ALL[name].given, ALL[name].standing)
    )
    found = [said for said in ours if said in text and said not in known]
    assert found == []
