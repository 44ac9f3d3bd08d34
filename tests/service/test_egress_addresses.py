"""Which URLs and addresses a callback may go to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.errors import InvalidCallbackUrl
from askfirst.service import egress
from askfirst.service.egress import Target, check_callback_url, is_public

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "99.255.255.255",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001::200e",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
]
SPECIAL = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::808:808",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_fine(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("address", SPECIAL)
def test_special_addresses_are_not(address: str) -> None:
    assert not is_public(ip_address(address))


@given(st.ip_addresses(v=4))
def test_what_python_calls_special_is_special_here(address: IPv4Address) -> None:
    if is_public(address):
        assert address.is_global
        assert not address.is_multicast
    mapped, nat64 = (IPv6Address((prefix << 32) | int(address)) for prefix in (0xFFFF, 0x64FF9B << 64))
    assert is_public(mapped) == is_public(nat64) == is_public(address)


@given(st.ip_addresses(v=6))
def test_what_python_calls_special_is_special_here_too(address: IPv6Address) -> None:
    if is_public(address) and egress._embedded(address) is None:
        assert address.is_global
        assert not any((address.is_multicast, address.is_reserved, address.is_site_local))


# URLs.


def fault_of(url: str, *, development: bool = False) -> str | None:
    try:
        check_callback_url(url, development=development)
    except InvalidCallbackUrl as error:
        return error.problem
    return None


def test_a_url_is_taken_apart_once() -> None:
    assert check_callback_url("https://Hooks.Example.com/a/b?c=%20d[]&e=@") == Target(
        "https", "hooks.example.com", 443, "/a/b?c=%20d[]&e=@"
    )
    assert check_callback_url("HTTPS://[2606:4700::1]:8443?q").authority == "[2606:4700::1]:8443"
    assert check_callback_url("https://x.example?q").target == "/?q"
    assert check_callback_url("https://x.example:443").authority == "x.example"
    assert check_callback_url("https://1.1.1.1").target == "/"


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com",
        "https://hooks.example.com/x",
        "https://hooks.example.com:8443/x?y=1",
        "https://xn--bcher-kva.example/",
        "https://my_service.example/",
        "https://intranet/",  # a name is looked up, and judged by where it leads
        "https://0x7f.example/",
    ],
)
def test_urls_that_may_be_called(url: str) -> None:
    assert fault_of(url) is None


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://hooks.example.com/", "https://"),
        ("http://localhost/", "https://"),
        ("https://localhost/", "own machine"),
        ("https://a.LOCALHOST/", "own machine"),
        ("https://127.0.0.1/", "not a public address"),
        ("https://[::1]/", "not a public address"),
        ("https://[::ffff:127.0.0.1]/", "not a public address"),
        ("https://169.254.169.254/latest", "not a public address"),
        ("https://2130706433/", "neither a name nor an IP address"),
        ("https://0x7f000001/", "neither a name nor an IP address"),
        ("https://0x7f.1/", "neither a name nor an IP address"),
        ("https://127.1/", "neither a name nor an IP address"),
        ("https://0177.0.0.1/", "neither a name nor an IP address"),
        ("https://1.2.3.4.5/", "neither a name nor an IP address"),
        ("https://a.0x/", "neither a name nor an IP address"),
        ("https://[::1%25eth0]/", "must be a URL"),
        ("https://[fe80::1]/", "not a public address"),
        ("https://[1::2::3]/", "neither a name nor an IP address"),
        ("https://user:password@hooks.example.com/", "must be a URL"),
        ("https://hooks.example.com@evil.example/", "must be a URL"),
        ("https://hooks.example.com#@evil.example/", "must be a URL"),
        ("https://hooks.example.com/#fragment", "must be a URL"),
        ("https://hooks.example.com\\@evil.example/", "must be a URL"),
        ("https://hooks.example.com/a b", "must be a URL"),
        ("https://hooks.example.com/\r\nX: y", "must be a URL"),
        ("https://hooks.example.com/\n", "must be a URL"),
        (" https://hooks.example.com/", "must be a URL"),
        ("https://bücher.example/", "must be a URL"),
        ("https://\u212aelvin.example/", "must be a URL"),
        ("https://127。0。0。1/", "must be a URL"),
        ("https:///x", "must be a URL"),
        ("https://", "must be a URL"),
        ("", "must be a URL"),
        ("//hooks.example.com/", "must be a URL"),
        ("ftp://hooks.example.com/", "must be a URL"),
        ("file:///etc/passwd", "must be a URL"),
        ("https://hooks.example.com:0/", "no port 0"),
        ("https://hooks.example.com:65536/", "no port 65536"),
        ("https://hooks.example.com:/", "must be a URL"),
        ("https://hooks.example.com./", "not a valid name"),
        ("https://-a.example/", "not a valid name"),
        ("https://a..example/", "not a valid name"),
        (f"https://{'a' * 64}.example/", "not a valid name"),
        (f"https://hooks.example.com/{'a' * 2048}", "must be a URL"),
    ],
)
def test_urls_that_may_not(url: str, problem: str) -> None:
    assert problem in (fault_of(url) or "")


@pytest.mark.parametrize(
    "url", ["http://localhost:8000/x", "http://127.0.0.1:1/", "https://localhost/", "http://[::1]:8000/"]
)
def test_loopback_is_fine_for_development(url: str) -> None:
    assert fault_of(url) is not None
    assert fault_of(url, development=True) is None


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/", "https://10.0.0.1/", "http://hooks.example.com/", "http://0.0.0.0/"]
)
def test_nothing_else_is(url: str) -> None:
    assert fault_of(url, development=True) is not None


@given(st.text(max_size=60) | st.text("ht:/ps.[]@#?0x1a\\", max_size=30).map("https://".__add__))
def test_any_text_is_fine_or_has_a_problem(text: str) -> None:
    problem = fault_of(text)
    assert problem is None or (problem and not problem.endswith("."))
    assert problem is not None or text.lower().startswith("https://")
