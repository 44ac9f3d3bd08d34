"""Which delivery is chosen where, and by which name."""

from __future__ import annotations

import io
import logging
import subprocess
import sys

import pytest
from rich.console import Console

from askfirst import delivery
from askfirst.delivery import Several, auto, delivery_named, registry
from askfirst.errors import DeliveryError

TELEGRAM = {"TELEGRAM_BOT_TOKEN": "123456:a-token-that-is-secret", "TELEGRAM_CHAT_ID": "-1001"}
APPRISE = {"ASKFIRST_APPRISE_URL": "json://localhost/a json://localhost/b"}
MAIL = {
    "ASKFIRST_MAIL_TO": "ada@a.example, bob@a.example",
    "ASKFIRST_SMTP_URL": "smtp://u:p@a.example?from=x@a.example",
}
SSH = {"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"}
DISPLAY = {"DISPLAY": ":0"}


def names(environ: dict[str, str]) -> list[str]:
    chosen = auto(environ)
    return [each.name for each in chosen.deliveries] if isinstance(chosen, Several) else [chosen.name]


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, ["terminal"]),
        (DISPLAY, ["desktop", "terminal"]),
        ({"WAYLAND_DISPLAY": "wayland-0"}, ["desktop", "terminal"]),
        (SSH, ["qr"]),
        (SSH | DISPLAY, ["qr"]),
        (TELEGRAM | SSH | DISPLAY, ["telegram"]),
        (APPRISE, ["apprise"]),
        (MAIL | DISPLAY, ["email"]),
        (TELEGRAM | APPRISE | MAIL, ["telegram", "apprise", "email"]),
    ],
)
def test_auto_follows_the_environment(
    environ: dict[str, str], wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert names(environ) == wanted


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_always_have_a_display(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert names({}) == ["desktop", "terminal"]


def test_half_a_configuration_is_said_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert names({"TELEGRAM_BOT_TOKEN": TELEGRAM["TELEGRAM_BOT_TOKEN"], **SSH}) == ["qr"]
    assert caplog.messages == ["telegram is not used: TELEGRAM_CHAT_ID is not set"]


def test_a_mail_server_alone_is_the_services_own_business(caplog: pytest.LogCaptureFixture) -> None:
    assert names({"ASKFIRST_SMTP_URL": MAIL["ASKFIRST_SMTP_URL"], **SSH}) == ["qr"]
    assert caplog.messages == []


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in TELEGRAM.items():
        monkeypatch.setenv(variable, value)
    assert auto().name == "telegram"
    assert delivery_named("auto").name == "telegram"


def test_every_name_makes_a_delivery_of_that_name() -> None:
    everything = TELEGRAM | APPRISE | MAIL | DISPLAY | {"ASKFIRST_TEAMS_URL": "https://a.example/?sig=secret"}
    for name in registry.NAMES:
        made = delivery_named(name, everything)
        assert made.name == ("several" if name == "auto" else name)
        assert "secret" not in repr(made)


def test_an_unknown_name_and_missing_settings_are_one_sentence() -> None:
    with pytest.raises(
        DeliveryError, match="pigeon: there is no such delivery; there are auto, terminal, qr"
    ):
        delivery_named("pigeon", {})
    with pytest.raises(DeliveryError, match="telegram: TELEGRAM_BOT_TOKEN and TELEGRAM_CHAT_ID must be set"):
        delivery_named("telegram", {})


def test_the_console_is_handed_on() -> None:
    console = Console(file=io.StringIO())
    made = delivery_named("terminal", {}, console=console)
    assert getattr(made, "console", None) is console


# The package.


def test_exports_are_there_and_documented() -> None:
    assert list(delivery._HOMES) == delivery.__all__
    assert set(delivery.__all__) <= set(dir(delivery))
    for name in delivery.__all__:
        assert name == "Deliver" or getattr(delivery, name).__doc__, name
    with pytest.raises(AttributeError, match=r"'askfirst\.delivery' has no attribute 'Pigeon'"):
        delivery.Pigeon  # noqa: B018


def test_libraries_are_loaded_when_they_are_wanted() -> None:
    code = (
        "import sys; from askfirst.delivery import DesktopDelivery, Several, Notice, auto;"
        "print(*{'rich', 'prompt_toolkit', 'segno', 'apprise', 'aiosmtplib', 'httpx2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.split() == []
