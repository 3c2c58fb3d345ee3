"""The page that searches an export, and the answers behind it."""

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from training.browsing.export_search import ExportSearch
from training.browsing.uploaded_image import (
    MOST_BYTES,
    centered_square,
    checked_image,
)
from training.reports import TEMPLATES as SHARED
from training.reports.page_pictures import map_text

TEMPLATES = Path(__file__).parent / "templates"
MOST_SHOWN = 100
"""Neighbors of one answer."""
MOST_EXPLAINED = 24
"""Neighbors of one explanation."""
SIDE = 224
"""Pictures on the page, pixels."""
EXAMPLES = 12
"""Gallery images that a newcomer without an image may start with."""
CONTRIBUTIONS = 6
"""Prototypes named in an explanation."""
SAFE = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data: "
    "blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def search_app(search: ExportSearch, hosts: tuple[str, ...]) -> Starlette:
    """The web application of one export.

    Args:
        search: The export.
        hosts: Names under which it may be asked for; a foreign page that
            points its own name here is refused.

    Returns:
        An application with `/`, `/image/POSITION`, `/search` and `/explain`;
        the last two take an image as the request's body, or the position of
        a gallery image as `position`.
    """
    page = _Page(search)
    return Starlette(
        routes=[
            Route("/", page.start),
            Route("/image/{position:int}", page.image),
            Route("/search", page.search, methods=["POST"]),
            Route("/explain", page.explain, methods=["POST"]),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
        ],
        exception_handlers={
            HTTPException: _refusal,
            ValueError: _wrong_value,
        },
    )


class _Page:
    """The handlers; the export is asked in a thread, one image at a time."""

    def __init__(self, search):
        self.search_ = search
        self.html = _rendered(search)

    async def start(self, request: Request) -> Response:
        """The page."""
        return HTMLResponse(self.html, headers=SAFE)

    async def image(self, request: Request) -> Response:
        """A gallery image as the encoder sees it."""
        contents = await run_in_threadpool(
            self._shown, self._position(request.path_params["position"])
        )
        headers = SAFE | {"Cache-Control": "max-age=3600"}
        return Response(contents, media_type="image/webp", headers=headers)

    async def search(self, request: Request) -> Response:
        """Neighbors of an image."""
        words = request.query_params
        k = _whole_number(words.get("k", "12"), "k")
        if not 1 <= k <= MOST_SHOWN:
            raise ValueError(
                f"`k` must be in [1, {MOST_SHOWN}]. Received: k={k}."
            )
        label = words.get("label") or None
        if label is not None and label not in self.search_.labels:
            raise ValueError(
                "`label` must be a class of the gallery. "
                f"Received: label={label[:80]!r}."
            )
        contents, own = await self._query(request)
        found = await run_in_threadpool(
            self.search_.search, contents, k, label, own
        )
        return JSONResponse(
            {"neighbors": [asdict(one) for one in found]}, headers=SAFE
        )

    async def explain(self, request: Request) -> Response:
        """Weights of an image and of its neighbors, and prototypes' parts."""
        words = request.query_params.get("neighbors", "").split(",")
        if len(words) > MOST_EXPLAINED:
            raise ValueError(
                f"`neighbors` must name at most {MOST_EXPLAINED} images. "
                f"Received: {len(words)}."
            )
        places = [
            self._position(_whole_number(word, "neighbors")) for word in words
        ]
        contents, _ = await self._query(request)
        answer = await run_in_threadpool(self._explained, contents, places)
        return JSONResponse(answer, headers=SAFE)

    async def _query(self, request):
        """The image that is asked about, and its place in the gallery."""
        position = request.query_params.get("position")
        if position is not None:
            place = self._position(_whole_number(position, "position"))
            contents = await run_in_threadpool(self.search_.image, place)
            if contents is None:
                raise HTTPException(404, "The image's file is gone.")
            return contents, place
        contents = await _body(request)
        return await run_in_threadpool(checked_image, contents), None

    def _position(self, place):
        if not 0 <= place < len(self.search_):
            raise HTTPException(404, "The gallery has no such image.")
        return place

    def _shown(self, place):
        contents = self.search_.image(place)
        if contents is None:
            raise HTTPException(404, "The image's file is gone.")
        fraction = self.search_.crop_fraction
        image = centered_square(contents, fraction, SIDE)
        file = io.BytesIO()
        image.save(file, "WEBP", quality=85)
        return file.getvalue()

    def _explained(self, contents, places):
        files = [self.search_.image(place) for place in places]
        kept = [i for i, file in enumerate(files) if file is not None]
        if not kept:
            raise HTTPException(404, "The images' files are gone.")
        shares = self.search_.explain(contents, [files[i] for i in kept])
        query, weights = shares["query_weights"][0], shares["neighbor_weights"]
        if query.ndim != 2:
            raise ValueError("Tokens on no grid cannot be laid over an image.")
        largest = self.search_.full_weight(query.size)
        if largest is None:
            largest = float(max(query.max(), weights.max()))
        return {
            "shape": list(query.shape),
            "query": map_text(query, largest),
            "neighbors": {
                places[i]: _pair(shares, row, largest)
                for row, i in enumerate(kept)
            },
        }


def _pair(shares, row, largest) -> dict[str, Any]:
    contributions = shares["contributions"][row]
    order = np.argsort(-np.abs(contributions))[:CONTRIBUTIONS]
    return {
        "weights": map_text(shares["neighbor_weights"][row], largest),
        "similarity": float(shares["similarity"][row]),
        "prototypes": [
            {
                "prototype": int(one),
                "share": float(contributions[one]),
                "query": map_text(shares["query_maps"][row, ..., one], largest),
                "neighbor": map_text(
                    shares["neighbor_maps"][row, ..., one], largest
                ),
            }
            for one in order
        ],
    }


async def _body(request):
    """The request's body, given up as soon as it is too long."""
    claimed = request.headers.get("content-length", "0")
    parts, length = [], 0
    too_long = HTTPException(
        413, f"An image must have at most {MOST_BYTES // 2**20} MB."
    )
    if not claimed.isdecimal() or int(claimed) > MOST_BYTES:
        raise too_long
    async for part in request.stream():
        length += len(part)
        if length > MOST_BYTES:
            raise too_long
        parts.append(part)
    return b"".join(parts)


def _whole_number(text, name):
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(
            f"`{name}` must be a whole number. Received: {text[:40]!r}."
        )
    return int(text)


async def _refusal(request, error):
    return JSONResponse(
        {"error": error.detail}, status_code=error.status_code, headers=SAFE
    )


async def _wrong_value(request, error):
    return JSONResponse({"error": str(error)}, status_code=400, headers=SAFE)


def _rendered(search):
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    facts = search.facts
    starts = np.linspace(0, len(search) - 1, min(EXAMPLES, len(search)))
    return environment.get_template("search.html").render(
        name=facts.get("run") or search.folder.name,
        size=len(search),
        classes=sorted(set(search.labels.tolist())),
        examples=[int(place) for place in starts],
        labels=search.labels,
        most=min(search.most_neighbors, MOST_SHOWN),
        is_limited=search.most_neighbors < len(search),
        threshold=search.threshold,
        can_explain=search.can_explain,
        no_explain=facts.get("no_explain", ""),
        most_explained=MOST_EXPLAINED,
        crop_fraction=search.crop_fraction,
        css=(SHARED / "page.css").read_text()
        + (TEMPLATES / "search.css").read_text(),
        scripts=[
            (SHARED / "page.js").read_text(),
            (TEMPLATES / "search.js").read_text(),
        ],
    )
