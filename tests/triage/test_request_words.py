"""Whatever a request's exception is called and says, a server that goes on has not crashed."""

from __future__ import annotations

import pytest

from fleetctl.triage import triage_text

LOG = """[2026-02-01 03:01:12] The server is fired up and ready to roll!
ERROR:    Exception in ASGI application
Traceback (most recent call last):
  File "/x/starlette/routing.py", line 73, in app
    response = await f(request)
  File "/x/sglang/srt/entrypoints/openai/serving_chat.py", line 190, in convert
    raise found
{name}: {words}
[2026-02-01 03:05:12] INFO:     10.0.0.1:512 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error
[2026-02-01 03:05:30 TP0] Decode batch. #running-req: 3, #token: 9120, token usage: 0.02, #queue-req: 0
"""


@pytest.mark.parametrize(
    "words",
    [
        "bad",
        "1 validation error for ChatCompletionRequest",
        "no healthy upstream",
        "Exit Code: 137",
        "No matching distribution found for x",
        "panic: level=fatal python3: command not found",
    ],
)
@pytest.mark.parametrize(
    "name", ["ValueError", "tools.ToolConfigError", "pool.OutOfPagesError", "x.RepoDownloadError"]
)
def test_a_request_that_failed_is_no_crash(name: str, words: str) -> None:
    assert not triage_text(LOG.format(name=name, words=words).encode()).crash
