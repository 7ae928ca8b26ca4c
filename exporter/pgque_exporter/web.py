"""The HTTP side. It hands out what is known; no request reaches a database or names one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgque_exporter import __version__, status_page
from pgque_exporter.access import Access, Verdict
from pgque_exporter.body import Encoding
from pgque_exporter.exposition import Format
from pgque_exporter.health import Health, TargetHealth, assess, ready
from pgque_exporter.otlp.ledger import Ledger
from pgque_exporter.overview import QueueView, queues
from pgque_exporter.page import Page
from pgque_exporter.state import TargetState

_METHODS = ["GET", "HEAD"]
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src '{status_page.STYLE_HASH}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


@dataclass(frozen=True)
class View:
    """What the HTTP side may see of the service."""

    page: Page
    states: Callable[[], Sequence[TargetState]]
    alive: Callable[[], bool]
    ledger: Callable[[], Ledger | None]


def create_app(view: View, access: Access | None = None) -> ASGIApp:
    """The application; every endpoint answers GET and HEAD, takes no parameter and no body.

    With `access`, only to those whom it lets pass.
    """
    app = _routes()

    @app.api_route("/", methods=_METHODS)
    async def status() -> Response:
        """Answer with the status page."""
        states, clock = view.states(), time.monotonic()
        page = await asyncio.to_thread(_status_page, states, clock)
        return HTMLResponse(page)

    async def metrics(request: Request) -> Response:
        """Answer with the metrics, in the format and encoding that the client prefers."""
        form = preferred_format(",".join(request.headers.getlist("accept")))
        gzip = accepts_gzip(",".join(request.headers.getlist("accept-encoding")))
        headers = {"Content-Type": form.value, "Vary": "Accept, Accept-Encoding"}
        if gzip:
            headers["Content-Encoding"] = "gzip"
        encoding = Encoding.GZIP if gzip else Encoding.IDENTITY
        return Response(await view.page.render(form, encoding), headers=headers)

    # Past FastAPI's look for parameters: most requests are scrapes, and this is a twentieth of each.
    app.add_route("/metrics", metrics, methods=_METHODS)

    @app.api_route("/livez", methods=_METHODS)
    async def livez() -> Response:
        """See `health`."""
        return _alive(view)

    @app.api_route("/readyz", methods=_METHODS)
    async def readyz() -> Response:
        """See `health`."""
        states = view.states()
        waiting = [state.name for state in states if not state.polled]
        answer = {"status": "unknown" if waiting else "ok", "waiting_for": waiting}
        return JSONResponse(answer, 200 if ready(states) else 503)

    @app.api_route("/healthz", methods=_METHODS)
    async def healthz() -> Response:
        """See `health`."""
        health = assess(view.states(), time.monotonic())
        return JSONResponse(_health_json(health), health.http_status)

    @app.api_route("/api/v1/status", methods=_METHODS)
    async def api_status() -> Response:
        """Answer with all that is known, as JSON."""
        states, clock, ledger = view.states(), time.monotonic(), view.ledger()
        otlp = ledger.as_json() if ledger is not None else None
        answer = await asyncio.to_thread(_status_json, states, clock, otlp)
        return Response(answer, media_type="application/json")

    return _guarded(app, access)


def create_health_app(view: View) -> ASGIApp:
    """The health endpoints for a port of their own: the same codes, and no names or reasons to read.

    Whoever looks after the process may ask there without a password.
    """
    app = _routes()

    @app.api_route("/livez", methods=_METHODS)
    async def livez() -> Response:
        """See `health`."""
        return _alive(view)

    @app.api_route("/readyz", methods=_METHODS)
    async def readyz() -> Response:
        """See `health`."""
        every = ready(view.states())
        return JSONResponse({"status": "ok" if every else "unknown"}, 200 if every else 503)

    @app.api_route("/healthz", methods=_METHODS)
    async def healthz() -> Response:
        """See `health`."""
        health = assess(view.states(), time.monotonic())
        return JSONResponse({"status": health.status}, health.http_status)

    return _guarded(app, None)


def _routes() -> FastAPI:
    return FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)


def _alive(view: View) -> Response:
    alive = view.alive()
    return JSONResponse({"status": "ok" if alive else "critical"}, 200 if alive else 503)


# --- before a request reaches an endpoint --------------------------------------------------------


def _guarded(app: ASGIApp, access: Access | None) -> ASGIApp:
    if access is not None:
        app = _Doorkeeper(app, access)
    return _SecurityHeaders(_NoBodies(app))


class _NoBodies:
    """Refuses a request that brings a body: no endpoint wants one, and nobody waits for its end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if headers.get("content-length", "0").strip("0") or "transfer-encoding" in headers:
            refusal = PlainTextResponse("No body is taken here.\n", 413, {"Connection": "close"})
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _Doorkeeper:
    """Lets pass whom `access` allows."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).getlist("authorization")
        verdict = await self._access.judge(given[0] if len(given) == 1 else None)
        if verdict is Verdict.ALLOWED:
            await self._app(scope, receive, send)
            return
        if verdict is Verdict.BUSY:
            refusal = PlainTextResponse("Too many passwords to check.\n", 503, {"Retry-After": "1"})
        else:
            refusal = PlainTextResponse("Unauthorized.\n", 401)
            for challenge in self._access.challenges():
                refusal.headers.append("WWW-Authenticate", challenge)
        await refusal(scope, receive, send)


class _SecurityHeaders:
    """Adds the same few headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


# --- negotiation ---------------------------------------------------------------------------------


def _weighted(header: str) -> list[tuple[str, dict[str, str], float]]:
    """The items of an Accept-like header: name, parameters, weight (0 to 1)."""
    items: list[tuple[str, dict[str, str], float]] = []
    for item in header.lower().split(","):
        name, *rest = (part.strip() for part in item.split(";"))
        parameters = {
            key.strip(): value.strip(' "') for key, _, value in (part.partition("=") for part in rest)
        }
        try:
            weight = float(parameters.pop("q", "1"))
        except ValueError:
            weight = 0.0
        if name:
            items.append((name, parameters, weight if 0 <= weight <= 1 else 0.0))
    return items


def preferred_format(accept: str) -> Format:
    """OpenMetrics for those who ask for it by name and like it at least as much; else text."""
    openmetrics = text = 0.0
    for name, parameters, weight in _weighted(accept):
        if name == "application/openmetrics-text":
            if parameters.get("version", "1.0.0") == "1.0.0":
                openmetrics = max(openmetrics, weight)
        elif name in ("text/plain", "text/*"):
            text = max(text, weight)
    return Format.OPENMETRICS if openmetrics > 0 and openmetrics >= text else Format.TEXT


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether the client takes gzip; `q=0` is a refusal, and by name it outweighs `*`."""
    weights = {name: weight for name, _, weight in _weighted(accept_encoding)}
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


# --- answers -------------------------------------------------------------------------------------


def _fresh_queues(states: Sequence[TargetState], clock: float) -> Mapping[str, Sequence[QueueView]]:
    return {state.name: queues(snapshot) for state in states if (snapshot := state.fresh(clock)) is not None}


def _status_page(states: Sequence[TargetState], clock: float) -> str:
    return status_page.render(assess(states, clock), _fresh_queues(states, clock))


def _status_json(states: Sequence[TargetState], clock: float, otlp: object) -> bytes:
    views = _fresh_queues(states, clock)
    answer = {"version": __version__, **_health_json(assess(states, clock))}
    for target in answer["targets"]:
        target["queues"] = [_queue_json(view) for view in views.get(target["name"], ())]
    if otlp is not None:
        answer["otlp"] = otlp
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()


def _queue_json(queue: QueueView) -> dict[str, Any]:
    # By hand: `asdict` copies every number of thousands of queues one by one.
    return {
        "engine": queue.engine,
        "name": queue.name,
        "status": queue.status,
        "metrics": queue.metrics,
        "consumers": [{"name": consumer.name, "metrics": consumer.metrics} for consumer in queue.consumers],
        "checks": [asdict(check) for check in queue.checks],
    }


def _health_json(health: Health) -> dict[str, Any]:
    return {"status": health.status, "targets": [_target_json(target) for target in health.targets]}


def _target_json(target: TargetHealth) -> dict[str, Any]:
    failure = target.failure
    return {
        "name": target.name,
        "status": target.status,
        "up": target.up,
        "snapshot_age_seconds": target.snapshot_age,
        "last_success_timestamp_seconds": target.last_success,
        "error": None if failure is None else asdict(failure),
        "packs": list(target.packs),
        "series": target.series,
        "checks_ok": target.checks_ok,
        "checks": [asdict(check) for check in target.checks],
    }
