"""SGLang's HTTP endpoints with the semantics of each release (table in docs/howto/lab.md)."""

from __future__ import annotations

import json
import os
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .server import Server

OPEN = ("/health", "/ready", "/metrics")  # need no API key
HEALTH_SECONDS = float(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT", "20"))


def release(version: str) -> tuple[int, ...]:
    """Return ``0.5.12.post1`` as numbers that compare."""
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in version.split("."))


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Listener

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer({})

    def do_POST(self) -> None:
        """Answer a POST with a JSON body."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            self._send(422, {"detail": "request body is not JSON"})
            return
        self._answer(body if isinstance(body, dict) else {})

    def _answer(self, body: dict[str, Any]) -> None:
        engine = self.server.engine
        path = self.path.partition("?")[0]
        key = engine.flags.get("api-key")
        if (
            key
            and not path.startswith(OPEN)
            and self.headers.get("Authorization") != f"Bearer {key}"
        ):
            self._send(401, {"error": "Unauthorized"})
            return
        status, answer = respond(engine, self.command, path, body)
        self._send(status, answer)

    def _send(self, status: int, answer: Any) -> None:
        data = b"" if answer is None else json.dumps(answer).encode()
        phrase = HTTPStatus(status).phrase
        host, port = self.client_address[:2]
        line = f'INFO:     {host}:{port} - "{self.command} {self.path} HTTP/1.1" {status} {phrase}'
        self.server.engine.log(line)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: the access log is written in SGLang's form."""


class Listener(ThreadingHTTPServer):
    """The HTTP server of one replay."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], engine: Server) -> None:
        self.engine = engine
        super().__init__(address, Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's fault."""


def respond(engine: Server, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Return the status and the JSON answer of one request."""
    version = release(engine.version)
    if engine.node > 0:  # ranks of other nodes serve a /health that always says 200
        return (200, None) if path.startswith("/health") else (404, {"detail": "Not Found"})
    if path in ("/get_model_info", "/get_server_info", "/get_load"):
        new = "/v1/loads" if path == "/get_load" else path.replace("/get_", "/")
        if path == "/get_load" and version >= (0, 5, 21):
            return 404, {"detail": "Not Found"}
        engine.log(
            f"Endpoint '{path}' is deprecated and will be removed in a future version. "
            f"Please use '{new}' instead."
        )
        path = new
    match path:
        case "/health" | "/health_generate":
            return health(engine, path), None
        case "/ready" if version >= (0, 5, 20):
            return (200 if engine.status == "Up" and not engine.leaving else 503), None
        case "/model_info":
            return 200, engine.model_info()
        case "/v1/models":
            model = engine.flags.get("served-model-name") or engine.flags["model-path"]
            card = {"id": model, "object": "model", "owned_by": "sglang", "root": model}
            return 200, {"object": "list", "data": [card]}
        case "/server_info":
            engine.ask_schedulers(None)  # no deadline, as in SGLang: a hung scheduler hangs it
            return 200, engine.server_info()
        case "/v1/loads":
            engine.ask_schedulers(None)
            return 200, {"loads": [{"dp_rank": 0, "num_running_reqs": 0, "num_waiting_reqs": 0}]}
        case "/generate" | "/v1/completions" | "/v1/chat/completions" if method == "POST":
            return engine.generate(path, body)
    return 404, {"detail": "Not Found"}


def health(engine: Server, path: str) -> int:
    """Return 200 or 503: a look at the schedulers of at least a second, at most 20."""
    if engine.leaving:
        engine.log("Health check request received during shutdown. Returning 503.")
        return 503
    if engine.status == "Starting":
        return 503
    shallow = os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "").lower() in (
        "0",
        "false",
    )
    if shallow and path == "/health":
        return 200
    began = time.time()
    alive = engine.ask_schedulers(HEALTH_SECONDS)
    if alive:
        time.sleep(max(0.0, began + 1 - time.time()))
        engine.status, engine.heartbeat = "Up", time.time()
        return 200
    engine.status = "UnHealthy"
    tic, last = (
        time.strftime("%H:%M:%S", time.localtime(moment)) for moment in (began, engine.heartbeat)
    )
    engine.log(
        "Health check failed. Server couldn't get a response from detokenizer for last "
        f"{HEALTH_SECONDS:.0f} seconds. tic start time: {tic}. last_heartbeat time: {last}"
    )
    return 503
