"""The browser of a test run: found, or installed where all tests are to be run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kit import browsers

Source = pytest.Config.ArgsSource


def session(source: Source, *, collects: bool = False, chosen: str = "", is_worker: bool = False) -> Any:
    config = SimpleNamespace(
        args_source=source,
        option=SimpleNamespace(collectonly=collects, markexpr=chosen),
        pluginmanager=SimpleNamespace(get_plugin=lambda _: None),
    )
    if is_worker:
        config.workerinput = {}
    return SimpleNamespace(config=config)


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The packages that are asked for, on a machine that has no browser and gets none."""
    packages: list[str] = []

    def install(package: str, is_there: Any, say: Any) -> str:
        packages.append(package)
        assert is_there() is None
        return "there is no apt-get to install it with"

    monkeypatch.setattr(browsers, "BROWSERS", ("no-such-browser",))
    monkeypatch.setattr(browsers, "install", install)
    monkeypatch.delenv("ASKFIRST_TEST_CHROMIUM", raising=False)
    return packages


def test_a_run_of_all_tests_installs_a_browser_or_says_why_not(
    asked_for: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    browsers.begin(session(Source.TESTPATHS))
    assert asked_for == ["chromium-headless-shell"]
    assert capsys.readouterr().out == "No Chromium: there is no apt-get to install it with\n"


@pytest.mark.parametrize(
    "part",
    [
        session(Source.ARGS),
        session(Source.TESTPATHS, collects=True),
        session(Source.TESTPATHS, chosen="fast"),
        session(Source.TESTPATHS, is_worker=True),
    ],
)
def test_no_other_run_does(asked_for: list[str], part: Any) -> None:
    browsers.begin(part)
    assert asked_for == []


def test_one_that_is_there_is_used(asked_for: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKFIRST_TEST_CHROMIUM", "/somewhere/chromium")
    browsers.begin(session(Source.TESTPATHS))
    assert (asked_for, browsers.chromium_path()) == ([], "/somewhere/chromium")


@pytest.mark.parametrize(("ci", "ends_in"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_one_a_test_is_skipped_and_in_ci_fails(
    asked_for: list[str], monkeypatch: pytest.MonkeyPatch, ci: str, ends_in: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(
        ends_in, match="a run of all tests installs Debian's chromium-headless-shell where it may"
    ):
        browsers.chromium_path()
