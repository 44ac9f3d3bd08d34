"""Addresses that lead nowhere: a page for a person, a refusal in JSON for a program."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.page_text import Page
from kit.running_service import BROWSER, serving

pytestmark = pytest.mark.anyio

HTML = {**BROWSER, "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/", "/nowhere", "/review", "/review/", "/static/none.css"])
async def test_a_person_gets_a_page_and_a_program_gets_json(tmp_path: Path, path: str) -> None:
    async with serving(f"sqlite:///{tmp_path}/t.db", quick=False) as served:
        seen = await served.http.get(path, headers=HTML)
        assert seen.status_code == 404
        assert seen.headers["content-type"].startswith("text/html")
        assert seen.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in seen.headers["content-security-policy"]
        assert Page(seen.text).all("h1")[0].text == "There is nothing here"
        told = await served.http.get(path, headers={"Accept": "application/json"})
        assert told.status_code == 404
        assert told.json() == {"error": "not_found", "message": "Not Found"}
