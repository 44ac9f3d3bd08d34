"""The pages' static files: read once, named by their content, compressed, and cached by browsers for good."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

STATIC = Path(__file__).parent / "static"
"""The folder of the style sheet, the script and the icon."""
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_GOOD = "public, max-age=31536000, immutable"
_HASH_DIGITS = 10
_REFERENCE = re.compile(rb'url\("(\w+\.svg)"\)')


@dataclass(frozen=True, slots=True)
class Asset:
    """One file: its name with the hash of its content, ``page.1a2b3c4d5e.css``, and its bytes."""

    name: str
    media_type: str
    content: bytes = field(repr=False)
    compressed: bytes = field(repr=False)


@cache
def assets() -> Mapping[str, Asset]:
    """Every static file, by its plain name. The style sheet names the icon by its hash, too."""
    found: dict[str, Asset] = {}
    for path in sorted(STATIC.iterdir(), key=lambda it: (it.suffix != ".svg", it.name)):
        content = _REFERENCE.sub(
            lambda match: b'url("' + found[match[1].decode()].name.encode() + b'")', path.read_bytes()
        )
        digest = hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]
        name = f"{path.stem}.{digest}{path.suffix}"
        packed = gzip.compress(content, 9, mtime=0)
        found[path.name] = Asset(name, _TYPES[path.suffix], content, packed)
    return found


async def static_app(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application that serves the files under their hashed names. A plain name is not cached."""
    request = Request(scope, receive)
    await _response(request)(scope, receive, send)


def _response(request: Request) -> Response:
    if request.method not in ("GET", "HEAD"):
        raise HTTPException(405, "Method Not Allowed", {"Allow": "GET, HEAD"})
    wanted = request.url.path.rpartition("/")[2]
    known = {asset.name: asset for asset in assets().values()}
    asset = known.get(wanted) or assets().get(wanted)
    if asset is None:
        raise HTTPException(404)
    headers = {
        "Cache-Control": _FOR_GOOD if wanted == asset.name else "no-cache",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "ETag": f'"{asset.name}"',
    }
    content = asset.content
    if "gzip" in request.headers.get("accept-encoding", "") and len(asset.compressed) < len(content):
        content, headers["Content-Encoding"] = asset.compressed, "gzip"
    body = b"" if request.method == "HEAD" else content
    response = Response(body, 200, headers, asset.media_type)
    response.headers["Content-Length"] = str(len(content))
    return response
