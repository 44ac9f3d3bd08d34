"""What a person does in a browser, and reads there."""

from __future__ import annotations

from typing import Any


async def press(page: Any, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()


async def alert(page: Any) -> str:
    return await page.get_by_role("alert").inner_text()
