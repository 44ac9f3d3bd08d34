"""The static files of the pages: read once, compressed, and named by a hash of their content, so that browsers may
cache them for ever."""

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
"""The folder of the style sheet, the scripts and the icon."""
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_CACHED_FOREVER = "public, max-age=31536000, immutable"
_HASH_DIGITS = 10
_BLANKS = re.compile(
    rb'("[^"\n]*"|`[^`\n]*`|(?<=\()/(?:\\.|[^/\n\\])+/\w*)'
    rb"| //[^\n]*| (=>|[=!]==|[<>+]?=|&&|\|\||\?\??|[:+*/<>{}-]) ?|(?<=[,;)]) |(?:(?<=\bif)|(?<=\bfor)) (?=\()"
    rb"|(?<=[;{,])\n"
)
"""Matches a string or a regular expression of a script, which is kept, or what is removed: blanks around an operator,
after a comma, a semicolon or a closing parenthesis, or before an opening one; a comment at the end of a line; the end
of a line after one of ``;{,``."""
_STYLE_BLANKS = re.compile(rb'("[^"\n]*")|(?<=[;{}])\n|(?<=[:,]) | (?=\{)')
"""Matches a string of a style sheet, which is kept, or what is removed: the end of a line after one of ``;{}``, and a
blank after a colon or a comma, or before an opening brace."""
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
    """Every static file, by its plain name. References to the icon in the style sheet get its hashed name."""
    found: dict[str, Asset] = {}
    for path in sorted(STATIC.iterdir(), key=lambda it: (it.suffix != ".svg", it.name)):
        content = _REFERENCE.sub(
            lambda match: b'url("' + found[match[1].decode()].name.encode() + b'")', path.read_bytes()
        )
        content = content if path.suffix == ".svg" else _minified(content, is_script=path.suffix == ".js")
        digest = hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]
        name = f"{path.stem}.{digest}{path.suffix}"
        packed = gzip.compress(content, 9, mtime=0)
        found[path.name] = Asset(name, _TYPES[path.suffix], content, packed)
    return found


def _minified(content: bytes, *, is_script: bool) -> bytes:
    """A style sheet or a script without indentation, comments, and needless blanks and ends of lines.

    Those are a tenth of what a first visit loads. No string in these files spans several lines, so none is changed.
    """
    lines = (line.strip() for line in content.splitlines())
    kept = b"\n".join(line for line in lines if line and not line.startswith(b"//")) + b"\n"
    if is_script:
        return _BLANKS.sub(lambda it: it[1] or it[2] or b"", kept)
    return _STYLE_BLANKS.sub(lambda it: it[1] or b"", kept)


async def static_app(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application that serves the files. Only responses under a hashed name may be cached."""
    request = Request(scope, receive)
    await _response(request)(scope, receive, send)


def takes_gzip(request: Request) -> bool:
    """Whether the client reads gzip."""
    return "gzip" in request.headers.get("accept-encoding", "")


def _response(request: Request) -> Response:
    if request.method not in ("GET", "HEAD"):
        raise HTTPException(405, "Method Not Allowed", {"Allow": "GET, HEAD"})
    wanted = request.url.path.rpartition("/")[2]
    known = {asset.name: asset for asset in assets().values()}
    asset = known.get(wanted) or assets().get(wanted)
    if asset is None:
        raise HTTPException(404)
    headers = {
        "Cache-Control": _CACHED_FOREVER if wanted == asset.name else "no-cache",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "ETag": f'"{asset.name}"',
    }
    content = asset.content
    if takes_gzip(request) and len(asset.compressed) < len(content):
        content, headers["Content-Encoding"] = asset.compressed, "gzip"
    body = b"" if request.method == "HEAD" else content
    response = Response(body, 200, headers, asset.media_type)
    response.headers["Content-Length"] = str(len(content))
    return response
