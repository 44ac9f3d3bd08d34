"""``askfirst slack``: the manifest, and what is missing of an app."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from askfirst.cli.commands import askfirst
from askfirst.delivery.slack_check import CHAT_NEEDED, EVENTS, NEEDED, manifest, missing
from examples.local_slack import APP_TOKEN, BOT_TOKEN, CHANNEL, local_slack
from examples.local_slack.server import SCOPES

pytestmark = pytest.mark.anyio


async def test_nothing_is_missing_of_an_app_made_from_the_manifest() -> None:
    made = manifest()
    assert set(made["oauth_config"]["scopes"]["bot"]) == {*NEEDED, *CHAT_NEEDED} == set(SCOPES)
    assert made["settings"]["event_subscriptions"]["bot_events"] == list(EVENTS)
    assert made["settings"]["socket_mode_enabled"]
    async with local_slack() as slack:
        slack.scopes = set(made["oauth_config"]["scopes"]["bot"])
        assert await missing(BOT_TOKEN, APP_TOKEN, CHANNEL, base_url=slack.url) == []
        assert {name for name, _ in slack.calls} == {
            "auth.test",
            "conversations.info",
            "apps.connections.open",
        }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"bot": None}, "SLACK_BOT_TOKEN is not set"),
        ({"bot": "xoxb-another-token"}, "does not know this token"),
        ({"bot": APP_TOKEN}, "xoxb-"),
        ({"app": None}, "Buttons do not work"),
        ({"app": "xapp-another-token"}, "does not know this token"),
        ({"channel": None}, "SLACK_CHANNEL is not set"),
        ({"channel": "C0NONE"}, "there is no such channel"),
        ({"channel": "#ops"}, "is a name"),
        ({"scopes": {"chat:write"}}, "The scope commands is missing"),
        ({"scopes": set(NEEDED)}, "For agents in a chat these scopes are missing"),
        ({"socket": False}, "Socket Mode is switched off"),
        ({"member": False}, "not a member of C0OPS"),
        ({"archived": True}, "is archived"),
    ],
)
async def test_each_thing_that_is_missing_is_a_sentence(change: dict[str, Any], says: str) -> None:
    async with local_slack() as slack:
        slack.scopes = change.get("scopes", slack.scopes)
        slack.has_socket_mode = change.get("socket", True)
        slack.channels[CHANNEL]["is_member"] = change.get("member", True)
        slack.channels[CHANNEL]["is_archived"] = change.get("archived", False)
        told = await missing(
            change.get("bot", BOT_TOKEN),
            change.get("app", APP_TOKEN),
            change.get("channel", CHANNEL),
            base_url=slack.url,
        )
    assert says in "\n".join(told)
    assert BOT_TOKEN not in str(told)
    assert APP_TOKEN not in str(told)


def test_the_command_prints_a_manifest_and_what_is_missing() -> None:
    made = json.loads(
        CliRunner().invoke(askfirst, ["slack", "manifest", "--request-url", "https://a.example/s"]).output
    )
    assert made["settings"]["interactivity"]["request_url"] == "https://a.example/s"
    assert not made["settings"]["socket_mode_enabled"]
    refused = CliRunner().invoke(askfirst, ["slack", "manifest", "--request-url", "a.example/s"])
    assert refused.exit_code == 2
    assert "--request-url is an https URL that Slack can reach, not 'a.example/s'" in refused.output
    said = subprocess.run(
        [sys.executable, "-m", "askfirst.cli", "slack", "check"],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 1
    assert "SLACK_BOT_TOKEN is not set" in said.stderr


async def test_the_command_checks_what_the_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_slack() as slack:
        file = tmp_path / "askfirst.toml"
        monkeypatch.setenv("BOT", BOT_TOKEN)
        monkeypatch.setenv("SLACK_APP_TOKEN", APP_TOKEN)
        for name in ("SLACK_BOT_TOKEN", "SLACK_CHANNEL"):
            monkeypatch.delenv(name, raising=False)

        async def said(code: int, *places: str) -> str:
            table = 'kind = "slack"\nbot_token_env = "BOT"\n'
            file.write_text(
                "".join(
                    f'[delivery.{at.lower()}]\n{table}channel = "{at}"\napi_url = "{slack.url}"\n'
                    for at in places
                )
            )
            command = ["slack", "check", "--config", str(file)]
            result = await asyncio.to_thread(CliRunner().invoke, askfirst, command)
            assert result.exit_code == code, result.output
            assert BOT_TOKEN not in result.output
            return result.output

        assert await said(0, CHANNEL) == "Slack: messages can be sent, and buttons are heard.\n"
        assert (await said(1, "C0NONE")).startswith("The channel C0NONE: there is no")
        assert (await said(1, CHANNEL, "C0NONE")).startswith("c0none: The channel C0NONE")
        monkeypatch.delenv("BOT")
        assert "the variable BOT is not set" in await said(1, CHANNEL)
