"""What a browser loads: static files without ballast, and pages that are compressed for those who take it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit.running_service import BROWSER, serving

from askfirst.service.assets import STATIC, assets

pytestmark = pytest.mark.anyio
FILES = sorted(path.name for path in STATIC.iterdir() if path.suffix != ".svg")


@pytest.mark.parametrize("name", FILES)
def test_a_file_keeps_every_word_but_its_comments(name: str) -> None:
    source = (STATIC / name).read_text("utf-8")
    plain = re.sub(r'url\("(\w+)\.\w+\.svg"\)', r'url("\1.svg")', assets()[name].content.decode())
    kept = [re.sub(r"(^| )//.*", "", line.strip()) for line in source.splitlines()]
    assert "".join(plain.split()) == "".join("".join(kept).split())
    assert not re.search(r"(?m)^\s|^//", plain)


def test_a_style_sheet_has_no_needless_blanks() -> None:
    style = re.sub(r'"[^"]*"', '""', assets()["page.css"].content.decode())
    assert not re.search(r"[;{}]\n|[:,] | \{", style)
    assert "calc(var(--gutter) + 2ch)" in style


@pytest.mark.parametrize("name", FILES)
def test_no_text_of_a_file_goes_over_a_line_s_end(name: str) -> None:
    """Else taking the indentation away would change the text."""
    for line in (STATIC / name).read_text("utf-8").splitlines():
        assert line.count("`") % 2 == 0, line
        assert "/*" not in line, line


async def test_a_page_is_compressed_only_for_who_takes_that(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?")
        for asked, told in (("gzip, br", "gzip"), ("identity", None)):
            answer = await served.http.get(
                case.hitl["review_url"], headers={**BROWSER, "Accept-Encoding": asked}
            )
            assert answer.status_code == 200
            assert answer.headers.get("content-encoding") == told
            assert "Deploy v2?" in answer.text
