"""Which addresses a phone could not open."""

from __future__ import annotations

import pytest

from askfirst.loopback import is_local_url


@pytest.mark.parametrize(
    ("url", "is_so"),
    [
        ("http://127.0.0.1:8000/review/x", True),
        ("http://localhost/review", True),
        ("http://[::1]:8000/", True),
        ("http://0.0.0.0:8000/", True),
        ("http://127.8.8.8/", True),
        ("http://shop.localhost/", True),
        ("https://reviews.example/x", False),
        ("http://192.168.1.7:8000/x", False),
        ("no address", False),
        ("http://[", False),
    ],
)
def test_an_address_of_this_machine_alone(url: str, is_so: bool) -> None:
    assert is_local_url(url) is is_so
