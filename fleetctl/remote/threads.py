"""Calls that run side by side. concurrent.futures would do, but its import (logging and more) takes 8 ms."""

from __future__ import annotations

import threading
from typing import Any, Callable


class Work:
    """One call in a thread of its own."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call, args), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            self._value = call(*args)
        except BaseException as error:  # noqa: BLE001  raised where the result is asked for
            self._error = error

    def result(self) -> Any:
        """Return what the call returns, once it does; raise what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value
