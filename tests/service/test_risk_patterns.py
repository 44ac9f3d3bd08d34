"""Risk patterns: which lines are marked, an operator's own file, and that nothing takes long."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.errors import ServiceError
from askfirst.service.risk_patterns import (
    MOST_MARKED,
    NO_PATTERNS,
    RiskPattern,
    RiskPatterns,
    patterns_from,
    shipped_patterns,
)

ODD = [IPv4Network(block) for block in ("192.0.0.0/16", "192.88.99.0/24", "203.0.0.0/16", "198.51.0.0/16")]
"""Blocks in which some addresses are public and others are not; no line is drawn within them."""
RISKY = [
    "rm -rf /srv/data",
    "sudo rm -fr x",
    "rm -r -f x",
    "rm --recursive --force x",
    "find . -name '*.bak' -delete",
    "DROP TABLE customers;",
    "truncate table orders",
    "DELETE FROM invoices;",
    "update users set admin = 1",
    "git push --force origin main",
    "git push -f",
    "git push origin +main",
    "git reset --hard HEAD~3",
    "iptables -F",
    "chmod 777 /etc",
    "chmod -R 0777 .",
    "curl https://get.example | sh",
    "wget -qO- https://get.example | sudo bash",
    "mkfs.ext4 /dev/sda1",
    "dd if=/dev/zero of=/dev/sda",
    "docker image prune -af",
    "kubectl -n prod delete pod web-1",
    "terraform -chdir=prod destroy",
    "GRANT ALL ON db.* TO mallory",
    "ssh root@8.8.8.8",
    "curl http://93.184.216.34/x",
    "allow from 172.32.0.1",
    "listen=1.1.1.1:53",
    "Send it to 9.9.9.9.",
    "ping 2606:4700:4700::1111",
]
PLAIN = [
    "rm notes.txt",
    "form -rf",
    "raindrop tables",
    "DELETE FROM invoices WHERE id = 7;",
    "UPDATE users SET name = 'x' WHERE id = 7",
    "git push origin main",
    "chmod 644 readme",
    "curl https://api.example/v1",
    "enforce --forceful",
    "It will update the sets.",
    "Please drop me a line.",
    "curl http://10.1.2.3/x",
    "bind 0.0.0.0:8000",
    "ping 127.0.0.1",
    "allow from 172.16.0.1 and 192.168.1.7",
    "curl http://169.254.169.254/latest",
    "an example: 203.0.113.7",
    "pip install wheel==1.2.3.4",
    "version 118.0.5993.70",
    "iso.3.6.1.4.1.311 and 1.3.6.1.4.1.311",
    "at 2026:11:17 10:00",
    "ping fe80::1",
]


@pytest.mark.parametrize("line", RISKY)
def test_a_risky_line_is_marked(line: str) -> None:
    assert shipped_patterns().marked(["echo begin", line, "echo end"]).keys() == {1}


@given(st.ip_addresses(v=4))
def test_an_address_is_marked_if_it_is_reached_over_the_internet(address: IPv4Address) -> None:
    is_public = address.is_global and not address.is_multicast
    in_examples = any(address in block for block in ODD)
    assert bool(shipped_patterns().marked([f"go to {address} now"])) is is_public or in_examples


@pytest.mark.parametrize("line", PLAIN)
def test_a_plain_line_is_not(line: str) -> None:
    assert shipped_patterns().marked([line]) == {}


def test_a_condition_on_the_next_line_counts_and_one_of_the_next_statement_does_not() -> None:
    shipped = shipped_patterns()
    assert shipped.marked(["DELETE FROM t", "  WHERE id = 7;"]) == {}
    assert shipped.marked(["DELETE FROM t", "where id = 7;"]) == {}
    assert shipped.marked(["DELETE FROM t;", "SELECT 1 WHERE true;"]) == {0: "deletes all rows"}
    assert shipped.marked(["DELETE FROM t", "SELECT 1 WHERE true;"]) == {0: "deletes all rows"}
    assert shipped.marked(["DELETE FROM t; -- WHERE"]) == {0: "deletes all rows"}


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "rm -rf x\n" * 100_000,
        "curl " * 200_000,
        "\n" * 200_000 + "rm -rf /",
        "\u202e\u200b" * 400_000,
        "DELETE FROM t\n" * 50_000,
        "delete from " * 80_000,
        "é" * 500_000,
    ],
)
def test_a_megabyte_of_anything_is_bounded(text: str) -> None:
    assert len(shipped_patterns().marked(text.split("\n"))) <= MOST_MARKED


def test_a_match_deep_in_a_long_line_is_found() -> None:
    line = "x" * 25_000 + " rm -rf / " + "y" * 25_000
    assert shipped_patterns().marked([line]).keys() == {0}


def test_an_operators_file_takes_the_place_of_the_shipped_one(tmp_path: Path) -> None:
    path = tmp_path / "patterns.toml"
    path.write_text('[[pattern]]\nname = "names a customer"\nmatch = "ACME"\nunless = "test"\n')
    own = patterns_from(path)
    assert own.marked(["rm -rf /", "ACME", "ACME test"]) == {1: "names a customer"}
    assert patterns_from(None) is shipped_patterns()
    assert patterns_from(own) is own
    assert NO_PATTERNS.marked(["rm -rf /"]) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pattern = 1", "list of [[pattern]]"),
        ("nonsense", "are not valid TOML"),
        ('[[pattern]]\nname = "a"', "match"),
        ('[[pattern]]\nname = "a"\nmatch = "b"\ncolour = "red"', "match"),
        ('[[pattern]]\nname = "a"\nmatch = "("', "'a' is not a regular expression"),
        ('[[pattern]]\nname = "a"\nmatch = "(?=b)"', "'a' is not a regular expression"),
        ("[[pattern]]\nname = \"a\"\nmatch = '\\Ab'", "must use ^ and $"),
        ("[[pattern]]\nname = \"a\"\nmatch = '\\w{1,900}'", "repeats too much"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "patterns.toml"
    path.write_text(text)
    with pytest.raises(ServiceError) as raised:
        RiskPatterns.from_file(path)
    assert said in str(raised.value)


def test_a_file_that_is_not_there_and_too_many_patterns(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="cannot be read"):
        RiskPatterns.from_file(tmp_path / "none.toml")
    with pytest.raises(ServiceError, match="at most 100"):
        RiskPatterns([RiskPattern("a", "b")] * 101)
