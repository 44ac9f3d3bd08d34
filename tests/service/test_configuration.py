"""askfirst.toml and the environment: what is read, and every mistake with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit.paths import ROOT

from askfirst.delivery import EmailDelivery, TelegramDelivery
from askfirst.delivery.kinds import KINDS
from askfirst.errors import InvalidConfiguration
from askfirst.service.configuration import SERVICE_KEYS, configuration_file, read_configuration
from askfirst.service.places import Decider
from askfirst.service.schedule import Moment, Step
from examples.local_slack import APP_TOKEN, BOT_TOKEN

TOKEN = "123456:ABC-DEF_ghi"  # noqa: S105
SMTP = "smtp://desk%40a.example:secret@mail.a.example"
WHOLE = """\
[service]
base_url = "https://reviews.example.com"
links = "service"

[notify]
to = ["mail", "phone"]
remind = ["50 %", "1h before"]
warn = "30m"
then = "mail:boss@a.example at 75 %"

[delivery.mail]
kind = "email"
to = ["ann@a.example"]
smtp_url_file = "smtp-url"

[delivery.phone]
kind = "telegram"
chat = -1001
token_env = "BOT"

[delivery.phone.deciders]
"1001" = "Ada Lovelace <ada@a.example>"
"""


def written(folder: Path, text: str) -> Path:
    (folder / "smtp-url").write_text(f"{SMTP}\n")
    file = folder / "askfirst.toml"
    file.write_text(text)
    return file


def test_a_whole_configuration(tmp_path: Path) -> None:
    read = read_configuration(written(tmp_path, WHOLE), {"BOT": TOKEN})
    assert read.service == {"base_url": "https://reviews.example.com", "links": "service"}
    mail, phone = read.places
    assert (mail.name, type(mail.delivery), mail.has_buttons) == ("mail", EmailDelivery, False)
    assert (phone.name, type(phone.delivery), phone.has_buttons) == ("phone", TelegramDelivery, True)
    assert phone.deciders == {"telegram:1001": Decider("Ada Lovelace", "ada@a.example")}
    schedule = read.schedule
    assert schedule.to == ("mail", "phone")
    assert schedule.remind == (Moment("percent", 50), Moment("before", 3600))
    assert schedule.warn == 1800
    assert schedule.then == Step("mail:boss@a.example", Moment("percent", 75))


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    environ = {
        "BOT": TOKEN,
        "ASKFIRST_DELIVERY_PHONE_CHAT": "7",
        "ASKFIRST_DELIVERY_PHONE_DECIDERS": "1=Ann; 2=Bob <bob@a.example>",
        "ASKFIRST_NOTIFY_TO": "phone",
        "ASKFIRST_NOTIFY_WARN": "1h",
    }
    read = read_configuration(written(tmp_path, WHOLE), environ)
    assert read.schedule.to == ("phone",)
    assert read.schedule.warn == 3600
    assert read.places[1].deciders == {
        "telegram:1": Decider("Ann"),
        "telegram:2": Decider("Bob", "bob@a.example"),
    }


def test_without_a_file_the_environment_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert configuration_file({}) is None
    assert read_configuration(None, {}).places == ()
    environ = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_CHAT_ID": "-1", "TELEGRAM_REVIEWERS": "1001,1002"}
    [phone] = read_configuration(None, environ).places
    assert (phone.name, sorted(phone.deciders)) == ("telegram", ["telegram:1001", "telegram:1002"])
    named = {"ASKFIRST_DELIVERY_OPS_KIND": "teams", "ASKFIRST_DELIVERY_OPS_URL": "https://a.example/hook"}
    [ops] = read_configuration(None, named).places
    assert (ops.name, ops.delivery.name) == ("ops", "teams")
    written(tmp_path, WHOLE)
    assert configuration_file({}) == Path("askfirst.toml")
    assert configuration_file({"ASKFIRST_CONFIG": "other.toml"}) == Path("other.toml")
    with pytest.raises(InvalidConfiguration, match=r"other\.toml: cannot be read: No such file or directory"):
        read_configuration(None, {"ASKFIRST_CONFIG": "other.toml"})
    (tmp_path / "other.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(InvalidConfiguration, match=r"other\.toml: cannot be read: it is not UTF-8"):
        read_configuration(None, {"ASKFIRST_CONFIG": "other.toml"})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("[notify]", "[notify", "line 5: this is not valid TOML"),
        ("[notify]", "[notfy]", "line 5: there is no setting 'notfy' here; is notify meant?"),
        ('links = "service"', 'link = "service"', "line 3: there is no setting 'link' here; is links meant?"),
        (
            '"50 %"',
            '"150 %"',
            "line 7: '150 %' is not a time: a percentage must be between 0 and 100",
        ),
        ('"30m"', '"soon"', "line 8: 'soon' is not a duration: write 30m, 2h or 1d"),
        (" at 75 %", "", "line 9: 'mail:boss@a.example' is not a step: write a delivery and a time"),
        ("mail:boss", "post:boss", "line 9: post: there is no delivery of this name; there are: mail, phone"),
        ('"mail", "phone"', '"mial"', "line 6: mial: there is no delivery of this name"),
        (
            'kind = "email"',
            'kind = "fax"',
            "line 12: there is no kind 'fax'; the kinds are: terminal, telegram",
        ),
        (
            '"ann@a.example"',
            '"ann"',
            "line 11: to must be one or several e-mail addresses such as ann@a.example",
        ),
        ('"ann@a.example"', "7", "line 13: to must be a text or a list of texts"),
        ("chat = -1001", 'chat = "x"', "line 18: chat must be a whole number"),
        ("chat = -1001", "", "line 16: chat is missing: give chat, or set ASKFIRST_DELIVERY_PHONE_CHAT"),
        ('"BOT"', '"TOB"', "line 19: the variable TOB is not set"),
        (
            'token_env = "BOT"',
            f'token = "{TOKEN}"',
            "line 19: token is a secret and does not belong in this file: name a file with token_file or a",
        ),
        ('"smtp-url"', '"gone"', "line 14: the file gone cannot be read: No such file or directory"),
        ('"Ada Lovelace <ada@a.example>"', '"<"', "line 22: '<' names nobody"),
        (
            'smtp_url_file = "smtp-url"',
            'smtp_url_file = "smtp-url"\ndeciders = { "1" = "Ann" }',
            "line 15: nobody can press a button in a delivery of kind email",
        ),
        ('"1001" =', '"ada" =', "line 22: 'ada' is not a Telegram user"),
        ('"Ada Lovelace <ada@a.example>"', "5", "line 22: '' names nobody"),
        ('token_env = "BOT"', "token_file = 5", "line 19: token_file must be the name of a file"),
        ('token_env = "BOT"', 'token_env = ""', "line 19: token_env must be the name of a variable"),
        ('links = "service"', 'port = "many"', "line 3: port must be a whole number"),
        ('links = "service"', "link_days = [1]", "line 3: link_days must be a number"),
    ],
)
def test_every_mistake_has_its_line(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in WHOLE
    with pytest.raises(InvalidConfiguration) as caught:
        read_configuration(written(tmp_path, WHOLE.replace(before, after)), {"BOT": TOKEN})
    assert caught.value.mistakes[0].startswith(said)
    assert TOKEN not in str(caught.value)
    assert SMTP not in str(caught.value)


@pytest.mark.parametrize(
    ("account", "by_address", "said"),
    [
        ("T0LOCAL:U0ADA", "false", None),
        ("ada@a.example", "true", None),
        ("ada@a.example", "false", "an address counts only with by_address = true"),
        ("U0ADA", "true", "'U0ADA' is not a Slack user"),
    ],
)
def test_who_could_never_decide_on_slack_is_a_mistake(
    tmp_path: Path, account: str, by_address: str, said: str | None
) -> None:
    text = f'[delivery.slack]\nchannel = "C1"\nby_address = {by_address}\n'
    text += f'[delivery.slack.deciders]\n"{account}" = "Ada"\n'
    environ = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}
    if said is None:
        [place] = read_configuration(written(tmp_path, text), environ).places
        assert list(place.deciders) == [f"slack:{account}"]
        return
    with pytest.raises(InvalidConfiguration) as caught:
        read_configuration(written(tmp_path, text), environ)
    assert caught.value.mistakes[0].startswith(f"line 5: {said}")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = WHOLE.replace('"30m"', '"soon"').replace('"BOT"', '"TOB"').replace('links = "service"', "x = 1")
    with pytest.raises(InvalidConfiguration) as caught:
        read_configuration(written(tmp_path, text), {})
    assert [mistake.partition(":")[0] for mistake in caught.value.mistakes] == ["line 3", "line 19", "line 8"]


def test_the_examples_of_the_guide_are_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guide" / "telling-people.md").read_text()
    first, second = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "smtp-url").write_text(SMTP)
    (tmp_path / "teams-url").write_text("https://teams.example/hook")
    whole = (first + second).replace("/run/secrets/", f"{tmp_path}/")
    whole = whole.replace('to = ["mail", "phone"]', 'to = ["mail", "phone", "ops"]')
    read = read_configuration(written(tmp_path, whole), {"TELEGRAM_BOT_TOKEN": TOKEN})
    assert [place.name for place in read.places] == ["mail", "phone", "ops"]
    for kind in KINDS.values():
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{kind.name}` |")]
        for setting in kind.settings:
            assert f"`{setting.name}`" in row
            assert setting.variable is None or f"`{setting.variable}`" in row
    for key in SERVICE_KEYS:
        assert f"`{key}`" in page


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("port = 0", "port must be between 1 and 65535, not 0"),
        ("port = 65536", "port must be between 1 and 65535, not 65536"),
        ("link_days = 0", "link_days must be more than 0 and at most 36500, not 0"),
        ('links = "nobody"', "links must be caller or service, not 'nobody'"),
        ('least_timeout = "soon"', "least_timeout: "),
        ("hold_seconds = 61", "hold_seconds must be between 0 and 60, not 61.0"),
        ('base_url = "reviews"', "base_url must be the address at which people reach the service"),
        ('push_heads = "http://a.example"', "push_heads must be an https:// address"),
        ('risk_patterns = "missing.toml"', "cannot be read"),
    ],
)
def test_what_serve_would_refuse_is_a_mistake_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        read_configuration(written(tmp_path, f"[service]\n{line}\n"), {})
    [mistake] = caught.value.mistakes
    assert mistake.startswith("line 2: ")
    assert said in mistake


def test_a_delivery_may_keep_facts_out_and_patterns_lie_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[[pattern]]\nname = \"x\"\nmatch = 'y'\n")
    text = '[service]\nname = "Shop GmbH"\nrisk_patterns = "own.toml"\n[delivery.terminal]\nfacts = false\n'
    read = read_configuration(written(tmp_path, text), {})
    assert read.service == {"name": "Shop GmbH", "risk_patterns": str(tmp_path / "own.toml")}
    assert [place.facts for place in read.places] == [False]
