"""Runs the commands of a story as a person would, shows them, and holds each to what it must come to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
FLEETCTL = ROOT / ".venv/bin/fleetctl"


class StoryError(Exception):
    """The story went another way than it should."""


@dataclass
class Stage:
    """Where the story is played: a state folder and a site of its own."""

    home: Path
    site: Path
    scenes: int = 0
    started: float = field(default_factory=time.monotonic)

    def scene(self, title: str) -> None:
        """Announce what comes."""
        self.scenes += 1
        say(f"\n── {self.scenes}. {title}  [{time.monotonic() - self.started:.0f} s]")

    def run(self, *words: str, expect: int | None = 0, show: bool = True) -> str:
        """Run one fleetctl line and return its standard output; StoryError for another exit code (None: any)."""
        if show:
            say(f"$ fleetctl {' '.join(words)}")
        environment = os.environ | {
            "FLEETCTL_HOME": str(self.home),
            "FLEETCTL_SITE": str(self.site),
        }
        done = subprocess.run(
            [str(FLEETCTL), *words], stdout=subprocess.PIPE, stderr=None if show else subprocess.PIPE,
            text=True, env=environment, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if show and done.stdout:
            say(done.stdout.rstrip())
        if expect is not None and done.returncode != expect:
            said = (done.stderr or "") if not show else ""
            raise StoryError(
                f"exit {done.returncode}, not {expect}: fleetctl {' '.join(words)}\n{said}"
            )
        return done.stdout

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """Run one fleetctl line with JSON lines and return them, without showing it.

        Its exit code may be a negative answer: a service that is down is one.
        """
        return [json.loads(line) for line in self.run(*words, expect=None, show=False).splitlines()]


def say(text: str) -> None:
    """Print at once, so that what commands write to the terminal stays in order."""
    print(text, flush=True)


def must(truth: object, what: str) -> None:
    """Hold the story to something; StoryError when it is not so."""
    if not truth:
        raise StoryError(what)
    say(f"   ✓ {what}")


def until(test: Any, what: str, seconds: float = 90.0) -> Any:
    """Ask again and again until something comes back that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := test():
            return found
        time.sleep(0.5)
    raise StoryError(f"not within {seconds:.0f} s: {what}")


def main_guard(play: Any) -> int:
    """Play a story; a broken one is told in a line and ends with 1."""
    try:
        play()
    except StoryError as error:
        print(f"\ndemo: the story broke: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\ndemo: interrupted; .venv/bin/fleetctl lab down --name demo cleans up",
            file=sys.stderr,
        )
        return 130
    return 0
