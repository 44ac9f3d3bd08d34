"""Forms as browsers post them, read as the standard library reads them."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.service import request_bodies
from askfirst.service.request_bodies import posted_fields

PIECES = st.sampled_from(
    ["a", "b", "=", "&", "+", "%", "%4", "%41", "%C3%A9", "%zz", "%E2%82", " ", "é", "%2B", "\0"]
)


@given(st.lists(PIECES, max_size=60).map("".join), st.integers(3, 9))
def test_it_reads_what_the_standard_library_reads(text: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(request_bodies, "_PIECE", piece)
        read = posted_fields(text.encode(), most=1_000)
    assert read == parse_qs(text, keep_blank_values=True)


@given(st.lists(st.tuples(st.text(), st.text())))
def test_what_a_browser_sends_comes_back(fields: list[tuple[str, str]]) -> None:
    read = posted_fields(urlencode(fields).encode(), most=1_000)
    assert read == {name: [value for other, value in fields if other == name] for name, _ in fields}


def test_too_many_fields_are_not_taken_apart() -> None:
    assert len(posted_fields(b"&".join(b"a%d=1" % number for number in range(10)), most=10)) == 10
    with pytest.raises(ValueError, match="too many"):
        posted_fields(b"a=1&" * 10, most=10)
