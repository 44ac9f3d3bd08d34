"""Taking power back in a terminal: keys with their cases, links; and a key to sign with."""

from __future__ import annotations

import stat
from pathlib import Path

import click
import pytest
from kit.cli_rig import Shell

from askfirst.cli.signing_key import signing_key_in
from askfirst.service.keys import Keys


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, in_process=True)


def key_of(shell: Shell) -> str:
    (key,) = shell.on_database(lambda checkpointer: Keys(checkpointer.engine).listing())
    return key.key_id


@pytest.mark.attack("M3", "power that should have ended")
def test_a_key_is_revoked_and_its_open_cases_are_cancelled(shell: Shell) -> None:
    case_id = shell.open_case(type="approval", prompt="Ship it?")
    key_id = key_of(shell)
    assert "still open; --cancel-open" in shell.here("keys", "revoke", key_id)
    assert shell.case(case_id).status == "pending"
    said = shell.here("keys", "revoke", key_id, "--cancel-open")  # also of one that is revoked already
    assert said == f"Revoked {key_id}, and cancelled 1 open case of it.\n"
    case = shell.case(case_id)
    assert (case.status, case.reason) == ("cancelled", "the key that opened it was revoked")
    assert "no key" in shell.here("keys", "revoke", "key_x", "--cancel-open", code=1)


@pytest.mark.attack("M3", "power that should have ended")
def test_links_are_revoked(shell: Shell) -> None:
    case_id = shell.open_case(type="approval", prompt="Ship it?")
    shell.here("link", case_id)
    shell.here("link", case_id, "--days", "30")
    short = case_id.removeprefix("review_")[:8]
    assert shell.here("link", case_id, "--revoke") == f"Revoked 3 links to {short}.\n"  # one is the caller's
    assert shell.here("link", case_id, "--revoke") == f"Revoked 0 links to {short}.\n"
    assert "never was" in shell.here("link", "nothing", "--revoke", code=4)


def test_a_key_to_sign_with_is_made_once_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "signing.json"
    made = signing_key_in(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert signing_key_in(path).private_jwk() == made.private_jwk()
    path.chmod(0o644)
    with pytest.raises(click.ClickException, match="can be read by others"):
        signing_key_in(path)
    with pytest.raises(click.ClickException, match="cannot be made"):
        signing_key_in(tmp_path / "nowhere" / "key")


def test_what_is_no_key_signs_nothing(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "signing.json"
    path.write_text("{}")
    path.chmod(0o600)
    assert "holds no private key" in shell.here("serve", "--signing-key", str(path), code=1)
    assert "--least-timeout" in shell.here("serve", "--least-timeout", "soon", code=1)
