"""Hostile text through Slack's blocks: inert and whole, or link only."""

from __future__ import annotations

from typing import Any

import pytest
from kit.hostile_text import CORPUS, everywhere
from kit.slack_rig import LINK

from askfirst.delivery.base import Ended
from askfirst.delivery.fields import Field
from askfirst.delivery.slack import SlackDelivery
from askfirst.delivery.slack_modals import fits, modal
from askfirst.delivery.text import shown
from askfirst.service.notices import notice_of
from examples.local_slack import APP_TOKEN, BOT_TOKEN, CHANNEL, local_slack
from examples.local_slack.limits import check_view, elements_of, text_of

pytestmark = pytest.mark.anyio
MESSENGER = {
    "mentions": "<!channel> <!here> <@U0ADA> <#C0OPS> @channel @here",
    "slack links": "<https://evil.example|https://good.example> <mailto:a@b.example|mail>",
    "slack markup": "*bold* _it_ ~no~ `code` ```block``` > quote :white_check_mark: &lt;!channel&gt;",
}


def texts(part: Any) -> list[dict[str, Any]]:
    """Every text object within a message or modal."""
    if isinstance(part, dict):
        found = [part] if part.get("type") in ("plain_text", "mrkdwn") and "text" in part else []
        return found + [each for value in part.values() for each in texts(value)]
    return [each for value in part for each in texts(value)] if isinstance(part, list) else []


@pytest.mark.parametrize("name", [*CORPUS, *MESSENGER])
async def test_hostile_text_is_inert_and_whole_or_link_only(name: str) -> None:
    hostile = {**CORPUS, **MESSENGER}[name]
    async with local_slack() as slack:
        delivery = SlackDelivery(BOT_TOKEN, CHANNEL, app_token=APP_TOKEN, base_url=slack.url)
        for where, case in everywhere(hostile).items():
            notice = notice_of(case, "review", service=hostile[:300] or "s", link=LINK, with_buttons=True)
            sent = await delivery.send(notice)
            key = (CHANNEL, str(sent.place["ts"]))
            message = slack.messages[key]
            assert all(each["type"] == "plain_text" and each["emoji"] is False for each in texts(message)), (
                where
            )
            assert not set("<>") & set(message["text"]), where
            assert "evil.example" not in {each.get("url") for each in elements_of(message)}
            assert {each.get("url") for each in elements_of(message)} <= {None, LINK}
            assert message["unfurl_links"] is message["unfurl_media"] is False
            actions = [each for each in elements_of(message) if "url" not in each]
            says = text_of(message)
            if any(each.get("style") == "primary" for each in actions):
                assert notice.contents is not None
                for _, value in notice.contents.facts:
                    for line in shown(value).split("\n"):
                        assert line in says, where
            await delivery.update(sent, Ended(case.case_id, "completed", hostile, by=hostile[:200]))
            message = slack.messages[key]
            assert all(each["type"] == "plain_text" for each in texts(message))
            assert list(elements_of(message)) == []
            slack._recent.clear()


@pytest.mark.parametrize("name", [*CORPUS, *MESSENGER])
def test_hostile_text_in_a_form_is_inert_or_left_to_the_page(name: str) -> None:
    hostile = {**CORPUS, **MESSENGER}[name]
    for kind in ("text", "lines", "json"):
        field = Field("key", hostile[:500], kind, hostile, hint=hostile[:500])
        if not fits([field]):
            assert hostile != shown(hostile) or len(hostile) > 3000
            continue
        view = modal(hostile[:100], "Send", {"key": "k"}, [field], note=hostile)
        check_view(view)
        assert all(each["type"] == "plain_text" and each["emoji"] is False for each in texts(view))
        [block] = [each for each in view["blocks"] if each["type"] == "input"]
        assert block["element"]["initial_value"] == hostile
    choice = Field("key", "Choose", "choice", options=((hostile[:150] or "x", hostile),))
    if fits([choice]):
        check_view(modal("Choose", "Send", {}, [choice]))
