"""Pictures of the review page: every scene of ``tests/kit/page_scenes.py``, and a page that shows them all."""

from __future__ import annotations

import sys
from html import escape
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import uvicorn  # noqa: E402
from kit.browsers import find_browser  # noqa: E402
from kit.page_scenes import Scene, scenes  # noqa: E402
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


def main(folder: Path, names: list[str]) -> int:
    """Take the pictures, and write ``index.html``."""
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path is None:
        sys.stderr.write("There is no Chromium: install Debian's chromium-headless-shell.\n")
        return 1
    shown = {name: scene for name, scene in scenes().items() if not names or name in names}
    folder.mkdir(parents=True, exist_ok=True)
    load_pages()
    server = uvicorn.Server(uvicorn.Config(_app(shown), port=0, log_level="error", lifespan="off"))
    socket = server.config.bind_socket()
    thread = Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    try:
        with sync_playwright() as player:
            browser = player.chromium.launch(executable_path=path, args=["--no-sandbox"])
            for size, scheme, tag in product(SIZES, SCHEMES, languages()):
                context = browser.new_context(**SIZES[size], color_scheme=scheme)
                page = context.new_page()
                page.route(LIVE, lambda route: route.abort())
                for name, scene in shown.items():
                    _take(
                        page, f"{url}/{name}?lang={tag}", scene, folder / f"{name}.{size}.{scheme}.{tag}.png"
                    )
                context.close()
            browser.close()
    finally:
        server.should_exit = True
        thread.join()
        socket.close()
    (folder / "index.html").write_text(_index(shown), "utf-8")
    sys.stdout.write(
        f"{len(shown)} pages, {len(list(folder.glob('*.png')))} pictures: {folder / 'index.html'}\n"
    )
    return 0


def _app(shown: dict[str, Scene]) -> Starlette:
    async def show(request: Request) -> Response:
        language = languages()[request.query_params["lang"]]
        html = shown[request.path_params["name"]].html(Reader(language))
        return HTMLResponse(html, headers=dict(PAGE_HEADERS))

    return Starlette(routes=[Mount("/static", static_app), Route("/{name}", show)])


def _take(page: Any, url: str, scene: Scene, file: Path) -> None:
    page.goto(url)
    if scene.open is not None:
        page.locator("html[data-ready=yes]").wait_for(state="attached")
        page.locator(scene.open).first.click()
        page.locator("html[data-ready=yes]").wait_for(state="attached")
    page.screenshot(path=file)


def _index(shown: dict[str, Scene]) -> str:
    """A page with every picture, a row for each scene."""
    heads = [f"{size}.{scheme}.{tag}" for size, scheme, tag in product(SIZES, SCHEMES, languages())]
    rows = "".join(
        f"<h2>{escape(name)}</h2><div>"
        + "".join(
            f'<a href="{name}.{head}.png"><img loading="lazy" src="{name}.{head}.png"></a>' for head in heads
        )
        + "</div>"
        for name in shown
    )
    style = "body{font:15px system-ui;margin:2rem}div{display:flex;gap:8px;overflow:auto}img{height:420px}"
    return f"<!doctype html><meta charset=utf-8><title>Review pages</title><style>{style}</style>{rows}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("Usage: scripts/screenshots OUTDIR [NAME ...]")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
