"""Screenshots of the review page: every scene of ``tests/kit/page_states.py``, and an index page with all of them.

Of each scene there is the first screen, and on the phone the whole page (``whole``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import uvicorn  # noqa: E402
from kit.browsers import PACKAGE, find_browser  # noqa: E402
from kit.debian_packages import install  # noqa: E402
from kit.page_cases import NOW  # noqa: E402
from kit.page_scenes import Scene  # noqa: E402
from kit.page_states import Bare, all_scenes  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import HTMLResponse, Response  # noqa: E402
from starlette.routing import Mount, Route  # noqa: E402

from askfirst.service.assets import static_app  # noqa: E402
from askfirst.service.pages import PAGE_HEADERS, Reader, languages, load_pages  # noqa: E402

SIZES: dict[str, dict[str, Any]] = {
    "phone": {"viewport": {"width": 360, "height": 780}, "device_scale_factor": 2},
    "desktop": {"viewport": {"width": 1280, "height": 900}},
}
SCHEMES = ("light", "dark")
LIVE = "**/live?*"
HIGHEST = 6_000
"""The largest height of a picture of the whole page, in pixels."""
FONTS = {"Roboto": "fonts-roboto-unhinted", "Noto Sans CJK SC": "fonts-noto-cjk"}
"""The fonts of an Android phone, and the Debian packages that have them."""
AS_ON_A_PHONE = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig><include>/etc/fonts/fonts.conf</include>
<match target="pattern"><test qual="any" name="family"><string>system-ui</string></test>
<edit name="family" mode="assign" binding="strong"><string>Roboto</string></edit></match>
<match target="pattern"><test qual="any" name="family"><string>sans</string></test>
<edit name="family" mode="assign" binding="strong"><string>Roboto</string></edit></match>
<match target="pattern"><test qual="any" name="family"><string>sans-serif</string></test>
<edit name="family" mode="assign" binding="strong"><string>Roboto</string></edit></match>
</fontconfig>"""
"""A fontconfig configuration that makes Roboto the system's font. A server's own is DejaVu Sans, a fifth wider."""


def main(folder: Path, names: list[str]) -> int:
    """Take the screenshots, and write ``index.html``."""
    from playwright.sync_api import sync_playwright

    known = all_scenes()
    if unknown := [name for name in names if name not in known]:
        _say(f"No such scene: {', '.join(unknown)}. There are: {', '.join(known)}")
        return 1
    if find_browser() is None and (refusal := install(PACKAGE, find_browser, _say)):
        _say(f"No Chromium: {refusal}")
    path = find_browser()
    if path is None:
        return 1
    shown = {name: scene for name, scene in known.items() if not names or name in names}
    folder.mkdir(parents=True, exist_ok=True)
    load_pages()
    server = uvicorn.Server(uvicorn.Config(_app(shown), port=0, log_level="error", lifespan="off"))
    socket = server.config.bind_socket()
    thread = Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    try:
        with sync_playwright() as player, TemporaryDirectory() as place:
            fonts = Path(place, "fonts.conf")
            fonts.write_text(AS_ON_A_PHONE, "utf-8")
            environment = {**os.environ, "FONTCONFIG_FILE": str(fonts)} if _fonts() else None
            browser = player.chromium.launch(executable_path=path, args=["--no-sandbox"], env=environment)
            for size, scheme, tag in product(SIZES, SCHEMES, languages()):
                context = browser.new_context(**SIZES[size], color_scheme=scheme, reduced_motion="reduce")
                page = context.new_page()
                page.set_default_timeout(0)
                page.route(LIVE, lambda route: route.abort())
                page.clock.set_fixed_time(datetime.fromtimestamp(NOW, UTC))
                for name, scene in shown.items():
                    link, picture = f"{url}/{name}?lang={tag}", f"{name}.{size}.{scheme}.{tag}"
                    _take(page, link, scene.open, folder, picture)
                context.close()
            browser.close()
    finally:
        server.should_exit = True
        thread.join()
        socket.close()
    taken = [file for name in shown for file in _pictures(name)]
    (folder / "index.html").write_text(_index(shown), "utf-8")
    sys.stdout.write(f"{len(shown)} scenes, {len(taken)} pictures: {folder / 'index.html'}\n")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _fonts() -> bool:
    """Install the fonts where fontconfig lacks them. Returns whether pictures can look as on a phone."""
    if not shutil.which("fc-list"):
        return False

    def has(family: str) -> bool:
        found = subprocess.run(["fc-list", family], capture_output=True, text=True, check=True)  # noqa: S603, S607
        return bool(found.stdout)

    missing = {family: package for family, package in FONTS.items() if not has(family)}
    for family, package in missing.items():
        if refusal := install(package, lambda family=family: has(family), _say):
            _say(f"The pictures are without {family}: {refusal}")
    return has("Roboto")


def _app(shown: dict[str, Scene | Bare]) -> Starlette:
    async def show(request: Request) -> Response:
        language = languages()[request.query_params["lang"]]
        html = shown[request.path_params["name"]].html(Reader(language))
        return HTMLResponse(html, headers=dict(PAGE_HEADERS))

    return Starlette(routes=[Mount("/static", static_app), Route("/{name}", show)])


def _take(page: Any, url: str, opened: str | None, folder: Path, name: str) -> None:
    page.goto(url)
    if opened is not None:
        page.locator("html[data-ready=yes]").wait_for(state="attached")
        page.locator(opened).first.click()
        page.locator("html[data-ready=yes]").wait_for(state="attached")
    page.screenshot(path=folder / f"{name}.png")
    if f"{name}.whole.png" in _pictures(name.partition(".")[0]):
        size = page.viewport_size
        height = min(page.evaluate("document.documentElement.scrollHeight"), HIGHEST)
        page.set_viewport_size(
            {**size, "height": max(height, size["height"])}
        )  # the bar with the buttons stays at the end of the page
        page.screenshot(path=folder / f"{name}.whole.png")
        page.set_viewport_size(size)


def _pictures(name: str) -> Iterator[str]:
    """The files of a scene: its first screens, and the whole page on a phone."""
    for size, scheme, tag in product(SIZES, SCHEMES, languages()):
        yield f"{name}.{size}.{scheme}.{tag}.png"
        if size == "phone" and scheme == "light":
            yield f"{name}.{size}.{scheme}.{tag}.whole.png"


def _index(shown: dict[str, Scene | Bare]) -> str:
    """A page with every picture, a row for each scene."""
    rows = "".join(
        f'<h2 id="{escape(name)}">{escape(name)}</h2><div>'
        + "".join(
            f'<a href="{file}" title="{file}"><img loading="lazy" src="{file}" alt="{file}"></a>'
            for file in _pictures(name)
        )
        + "</div>"
        for name in shown
    )
    style = "body{font:15px system-ui;margin:2rem}div{display:flex;gap:8px;overflow:auto}"
    style += "img{height:420px}img[src*=whole]{width:200px;object-fit:cover;object-position:top}"
    head = f"<meta charset=utf-8><title>Review pages</title><style>{style}</style>"
    return f"<!doctype html><html lang=en>{head}<h1>Review pages</h1>{rows}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("Usage: scripts/screenshots OUTDIR [NAME ...]")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
