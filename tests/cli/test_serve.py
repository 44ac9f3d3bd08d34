"""What ``askfirst serve`` says in a terminal before its log."""

from __future__ import annotations

import sys

import pytest

from askfirst.cli.serve import greet

LACK = "ASKFIRST_SMTP_URL is not set"


@pytest.mark.parametrize("can_mail", [True, False])
def test_a_terminal_is_told_what_cannot_be_approved_for_want_of_mail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], can_mail: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    greet("http://127.0.0.1:8000", 2, can_mail=can_mail)
    said = capsys.readouterr().out
    assert "2 requests wait for a person" in said
    assert (LACK in said) is not can_mail


def test_a_program_reads_the_log_alone(capsys: pytest.CaptureFixture[str]) -> None:
    greet("http://127.0.0.1:8000", 2, can_mail=False)
    assert capsys.readouterr().out == ""
