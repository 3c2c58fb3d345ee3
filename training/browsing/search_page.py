"""Serve a web page that searches an export with images."""

import math
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import keras_gsp as gsp
from training.browsing.export_search import ExportSearch
from training.browsing.page_parts import SHARED, encoded_map, rendered_page
from training.pictures.encoding import (
    decoded_image,
    embedded_part,
    encoded_image,
)

MAX_BYTES = 20 * 2**20  # of an uploaded file
MAX_NEIGHBORS = 100  # in one answer
MAX_EXPLAINED = 24  # neighbors in one explanation
CONTRIBUTIONS = 6  # prototypes in it, those that contribute most
SIDE = 224  # of the images on the page, pixels
EXAMPLES = 12  # gallery images offered as queries
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data: "
    "blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def search_app(search: ExportSearch, hosts: tuple[str, ...]) -> Starlette:
    """Returns the web application of one export.

    It has `/`, `/image/POSITION`, `/search` and `/explain`. The last two take
    an image as the request's body, or a gallery image as `position`. Requests
    for a host name that is not in `hosts`, and those that a page of another
    origin sends, are refused.
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
        exception_handlers={HTTPException: _refusal, ValueError: _refusal},
    )


class _Page:
    """Request handlers; the export runs in a thread."""

    def __init__(self, search):
        self.export, size = search, len(search.ids)
        facts = search.metadata
        can_explain = "explain" in facts["signatures"]
        examples = np.linspace(0, size - 1, min(EXAMPLES, size), dtype=int)
        self.html = rendered_page(
            SHARED / "search.html",
            name=facts.get("run") or search.folder.name,
            size=size,
            num_classes=len(set(search.labels)),
            examples=[(i, search.labels[i]) for i in examples.tolist()],
            most=min(size, MAX_NEIGHBORS),
            threshold=(facts.get("match_threshold") or {}).get("distance"),
            most_explained=MAX_EXPLAINED if can_explain else 0,
            no_explain=facts.get("no_explain", ""),
            crop_fraction=search.crop_fraction,
            group_by=facts.get("group_by", ""),
        )

    async def start(self, request: Request) -> Response:
        """Answers with the page."""
        return HTMLResponse(self.html, headers=HEADERS)

    async def image(self, request: Request) -> Response:
        """Answers with the part of a gallery image that is embedded."""
        contents = await self._gallery_image(request.path_params["position"])

        def shown():
            pixels = decoded_image(contents, self.export.crop_fraction)
            return encoded_image(pixels, side=SIDE)

        return Response(
            await run_in_threadpool(shown),
            media_type="image/webp",
            headers=HEADERS | {"Cache-Control": "max-age=3600"},
        )

    async def search(self, request: Request) -> Response:
        """Answers with the neighbors of an image."""
        k = _whole_number(request.query_params.get("k", "12"), "k")
        if not 1 <= k <= MAX_NEIGHBORS:
            expected = f"`k` must be in [1, {MAX_NEIGHBORS}]"
            raise ValueError(f"{expected}. Received: k={k}.")
        contents, own = await self._query(request)
        items = request.query_params.get("items") == "1"
        found = await run_in_threadpool(
            self.export.search, contents, k, own, items
        )
        box = await run_in_threadpool(self.export.box, contents)
        answer = {"neighbors": found, "box": box}
        return JSONResponse(answer, headers=HEADERS)

    async def explain(self, request: Request) -> Response:
        """Answers with pooling weights and each prototype's contribution."""
        names = request.query_params.get("neighbors", "").split(",")
        if len(names) > MAX_EXPLAINED:
            raise ValueError(
                f"`neighbors` must name at most {MAX_EXPLAINED} images. "
                f"Received: {len(names)}."
            )
        positions = [_whole_number(name, "neighbors") for name in names]
        contents, _ = await self._query(request)
        files = {one: await self._gallery_image(one) for one in positions}
        answer = await run_in_threadpool(self._explained, contents, files)
        return JSONResponse(answer, headers=HEADERS)

    async def _query(self, request):
        """Returns the query image, and its position in the gallery or None."""
        _check_origin(request)
        position = request.query_params.get("position")
        if position is None:
            contents = await _body(request)
        else:
            position = _whole_number(position, "position")
            contents = await self._gallery_image(position)
        if box := request.query_params.get("box"):
            contents = await run_in_threadpool(self._boxed, contents, box)
        return contents, position

    def _boxed(self, contents, text):
        """A box of the shown part of an image, as a file of its own."""
        image = gsp.data.decode_image(contents)
        image = embedded_part(image, self.export.crop_fraction)
        try:
            left, top, width, height = map(float, text.split(","))
            is_inside = 0 <= left < left + width <= 1.001
            is_inside &= 0 <= top < top + height <= 1.001
        except ValueError:
            is_inside = False
        if not is_inside:
            raise ValueError(
                "`box` must be left, top, width and height, shares of the "
                f"image in [0, 1]. Received: {text[:80]!r}."
            )
        rows, columns = image.shape[:2]
        top, bottom = int(top * rows), math.ceil((top + height) * rows)
        left, right = int(left * columns), math.ceil((left + width) * columns)
        return encoded_image(image[top:bottom, left:right], "PNG")

    async def _gallery_image(self, position):
        if position >= len(self.export.ids):
            raise HTTPException(404, "The gallery has no such image.")
        id_ = self.export.ids[position]
        contents = await run_in_threadpool(self.export.image, id_)
        if contents is None:
            raise HTTPException(404, "The image's file is missing.")
        return contents

    def _explained(self, contents, files):
        shares = self.export.explain(contents, list(files.values()))
        query = shares["query_weights"]
        if query.ndim != 3:
            raise ValueError("Tokens without a grid cannot cover an image.")
        weights = np.concatenate([query[:1], shares["neighbor_weights"]])
        largest = weights.max()
        return {
            "shape": list(query.shape[1:]),
            "query": encoded_map(query[0], largest),
            "neighbors": {
                position: _explanation(shares, row, largest)
                for row, position in enumerate(files)
            },
        }


def _explanation(shares, row, largest) -> dict[str, Any]:
    """Returns the JSON values of one neighbor's explanation."""
    contributions = shares["contributions"][row]
    maps = {side: shares[f"{side}_maps"][row] for side in ("query", "neighbor")}
    strongest = np.argsort(-np.abs(contributions))[:CONTRIBUTIONS].tolist()
    return {
        "weights": encoded_map(shares["neighbor_weights"][row], largest),
        "similarity": float(shares["similarity"][row]),
        "prototypes": [
            {"prototype": one, "share": float(contributions[one])}
            | {k: encoded_map(v[..., one], largest) for k, v in maps.items()}
            for one in strongest
        ],
    }


def _check_origin(request):
    """Refuses requests that a page of another origin sends.

    Browsers name the origin of every POST; other programs name none. The
    middleware has checked the host.
    """
    origin = request.headers.get("origin")
    if origin not in (None, f"http://{request.headers['host']}"):
        raise HTTPException(403, "Requests from other pages are refused.")


async def _body(request):
    """Returns the request's body; stops reading once it is too long."""
    too_long = HTTPException(
        413, f"An image must have at most {MAX_BYTES // 2**20} MB."
    )
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BYTES:
        raise too_long
    contents = bytearray()
    async for part in request.stream():
        contents += part
        if len(contents) > MAX_BYTES:
            raise too_long
    return bytes(contents)


def _whole_number(text, name):
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(
            f"`{name}` must be a whole number. Received: {text[:40]!r}."
        )
    return int(text)


async def _refusal(request, error):
    """Answers an `HTTPException` or a `ValueError`."""
    words = getattr(error, "detail", str(error))
    code = getattr(error, "status_code", 400)
    return JSONResponse({"error": words}, status_code=code, headers=HEADERS)
