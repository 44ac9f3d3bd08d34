"""Attacks on the digest that an approval is bound to (L6)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from askfirst.messages import call_digest


@pytest.mark.attack("L6", "two values under one digest")
@pytest.mark.parametrize("sign", [1, -1])
def test_no_float_has_the_digest_of_another_integer(sign: int, attacks_tried: Callable[[int], None]) -> None:
    """The finding's pair, and every power of two up to where floats have an exponent."""
    floats = [sign * 2.0**power for power in range(53, 70)] + [sign * 123456789012345678.0]
    for number in floats:
        shortest = int(Decimal(repr(number)))  # what JavaScript, and so the RFC, writes
        assert (call_digest("pay", {"to": number}) == call_digest("pay", {"to": shortest})) is (
            shortest == int(number)
        )
        assert call_digest("pay", {"to": number}) == call_digest("pay", {"to": int(number)})
    attacks_tried(len(floats))
