"""The main process of a replay: walks the start-up, serves, and ends as SGLang would."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from . import nodes, recording
from .endpoints import Listener, release
from .ranks import Child, write
from .recording import Recording
from .scenario import Outcome, Scenario, turning_point


class Server:
    """One start of the stand-in."""

    def __init__(
        self,
        version: str,
        flags: dict[str, Any],
        given: dict[str, Any],
        scenario: Scenario,
        start: int,
    ) -> None:
        self.version = version
        self.flags = flags
        self.given = given
        self.scenario = scenario
        self.start = start
        self.node = int(flags.get("node-rank") or 0)
        self.status = "Starting"
        self.leaving = False
        self.heartbeat = time.time()
        self.children: list[Child] = []
        self._failed = False
        self._listening = False
        self._vocabulary = _model_config(str(flags.get("model-path"))).get("vocab_size", 512)

    # What it says

    def stamp(self, prefix: str = "") -> str:
        """Return ``[2026-11-29 13:40:34 TP0 EP0]`` as SGLang's log has it."""
        return f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{prefix}]"

    def log(self, text: str) -> None:
        """Print one line of the main process."""
        write(f"{self.stamp()} {text}\n")

    def remark(self, *texts: str) -> None:
        """Print what is no output of SGLang."""
        for text in texts:
            write(f"replay: {text}\n")

    @property
    def schedulers(self) -> list[Child]:
        """Return the ranks of this node."""
        return self.children[:-1]

    # How it starts

    def run(self, tape: Recording) -> NoReturn:
        """Walk the start-up and serve until something ends it."""
        signal.signal(signal.SIGQUIT, self._on_sigquit)
        ending = self.scenario.at_start(self.flags, dict(os.environ), self.start)
        self.remark(
            f"stand-in for SGLang {self.version}, scenario {self.scenario.name}", *tape.remarks
        )
        turn = turning_point(ending.phase, [x.text for x in tape.lines]) if ending else -1
        for index, line in enumerate(tape.lines):
            self._pause(line.pause)
            self._say(line)
            self._miss_the_dead()
            if ending and index == turn:
                self.come_to(ending)
        while True:
            time.sleep(3600)

    def _miss_the_dead(self) -> None:
        """A rank that ends before the server listens takes the start along."""
        if self.status != "Starting" or self._listening or self._failed:
            return
        for rank, child in enumerate(self.schedulers):
            code = child.poll()
            if code is not None:
                write(
                    "Traceback (most recent call last):\n"
                    f"RuntimeError: Rank {rank} scheduler died during initialization "
                    f"(exit code: {code}). If exit code is -9 (SIGKILL), a common cause is the OS OOM "
                    "killer. Run `dmesg -T | grep -i oom` to check.\n"
                )
                self._kill_all(1)

    def _pause(self, seconds: float) -> None:
        if self.scenario.speed > 0:
            time.sleep(seconds / self.scenario.speed)

    def _say(self, line: recording.Line) -> None:
        text = recording.retold(line.text, self.flags, self.given, os.getpid())
        if line.process == "main" and not self.children and "server_args=" in text:
            write(text.replace("[@]", self.stamp(), 1) + "\n")
            self._spawn()
        elif line.process == "main" and self.node > 0 and self.children:
            if "Uvicorn running" in text:  # other nodes have schedulers and no server
                nodes.dummy_health(self)
        elif line.process == "main" or not self.children:
            self._milestone(text)
            write(text.replace("[@]", self.stamp(), 1) + "\n")
        elif line.process == "detokenizer":
            self.children[-1].say(text.replace("[@]", self.stamp(), 1) + "\n")
        else:
            alone = text.startswith("Capturing batches") or "Prefill batch" in text
            for child in self.schedulers[:1] if alone else self.schedulers:
                child.say(_as_printed(text.replace("[@]", self.stamp(child.prefix), 1)))

    def _spawn(self) -> None:
        for prefix in recording.prefixes(self.flags, self.node):
            name = f"sglang::scheduler{prefix.replace(' ', '_')}"
            self.children.append(Child(name, prefix))
        self.children.append(Child("sglang::detokenizer", ""))
        nodes.meet(self)

    def _milestone(self, text: str) -> None:
        if "Uvicorn running" in text:
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self._listen()
            self._listening = True
            threading.Thread(target=self._watch, daemon=True).start()
        if "fired up" in text:
            self.status, self.heartbeat = "Up", time.time()

    def _listen(self) -> None:
        address = (str(self.flags.get("host") or "127.0.0.1"), int(self.flags["port"]))
        try:
            listener = Listener(address, self)
        except OSError as error:
            self.log(
                f"ERROR:    [Errno {error.errno}] error while attempting to bind on address "
                f"{address}: {(error.strerror or '').lower()}"
            )
            self._kill_all(1)
        threading.Thread(target=listener.serve_forever, daemon=True).start()

    # What it answers

    def ask_schedulers(self, timeout: float | None) -> bool:
        """Return whether every rank of this node answered within so many seconds (None: wait for ever)."""
        answers = [child.tell(timeout, ping=True) for child in self.schedulers]
        return all(answers)

    def model_info(self) -> dict[str, Any]:
        """Return the answer of /model_info: it never asks the schedulers."""
        config = _model_config(str(self.flags["model-path"]))
        return {
            "model_path": self.flags["model-path"],
            "tokenizer_path": self.flags.get("tokenizer-path") or self.flags["model-path"],
            "is_generation": True,
            "weight_version": self.flags.get("weight-version") or "default",
            "model_type": config.get("model_type"),
            "architectures": config.get("architectures"),
        }

    def server_info(self) -> dict[str, Any]:
        """Return the answer of /server_info: the arguments under SGLang's names, and that this is a replay."""
        named = {name.replace("-", "_"): value for name, value in self.flags.items()}
        return named | {"version": self.version, "internal_states": [{}], "replay": True}

    def generate(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return a made-up answer, or come to what the scenario or a poisoned request brings about."""
        text = json.dumps(body.get("text") or body.get("prompt") or body.get("messages") or "")
        tokens = [t for t in body.get("input_ids") or [] if isinstance(t, int)]
        found = self.scenario.at_request(self.flags, dict(os.environ), self.start, tokens, text)
        if (
            found is None
            and len(self.schedulers) == 1
            and any(t >= self._vocabulary for t in tokens)
        ):
            found = Outcome(log=f"recordings/poison-{self.version}.txt")
        if found:
            self.come_to(found)
            time.sleep(3600)
        self.ask_schedulers(None)
        self.heartbeat = time.time()
        return 200, _made_up(path, body, str(self.flags["model-path"]))

    # How it ends

    def come_to(self, outcome: Outcome) -> None:
        """Let an outcome happen; returns only where the server lives on (``hang``)."""
        remarks, lines = outcome_log(outcome, self.scenario.folder)
        self.remark(*(r for r in remarks if r.startswith(("composed-from", "recorded"))))
        hit = self.schedulers or []
        if outcome.ranks != "all":
            hit = [child for n, child in enumerate(hit) if n in outcome.ranks]
        for child in hit:
            printed = "\n".join(lines).replace("[@]", self.stamp(child.prefix))
            if printed:
                child.say(printed + "\n", 5)
        if not hit and lines:
            write("\n".join(lines).replace("[@]", self.stamp()) + "\n")
        match outcome.end:
            case "crash":
                (hit or self.children)[0].tell(
                    5, fail=True
                ) if self.children else self._on_sigquit()
                time.sleep(3600)
            case "kill-rank":
                (hit or self.schedulers)[0].kill()
            case "hang":
                for child in hit:
                    child.kill(signal.SIGSTOP)
            case "exit":
                self._kill_all(outcome.status)

    def _on_sigterm(self, *_: object) -> None:
        self.log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.leaving = True
        # SGLang looks every five seconds; the replay's clock runs at the scenario's speed, 0 is at once.
        threading.Timer(3 / self.scenario.speed if self.scenario.speed else 0, self._leave).start()

    def _leave(self) -> None:
        if self.status == "UnHealthy":
            self.log("Signal SIGTERM received while health check failed. Force exiting.")
        else:
            self.log(
                "Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[]."
            )
        self._kill_all()

    def _on_sigquit(self, *_: object) -> None:
        if self._failed:
            return
        self._failed = True
        if self.status == "Starting":
            self.log("Received sigquit from a child process. It usually means the child failed.")
        else:
            self.log(
                "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
            )
            if release(self.version) >= (0, 5, 15):
                self.log("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
                time.sleep(5)
                self.log("No live scheduler processes found; skipping py-spy and CUDA coredump.")
                pid = os.getpid()
                self.log(
                    f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}"
                )
        self._kill_all()

    def _watch(self) -> None:
        names = [f"scheduler_{n}" for n in range(len(self.schedulers))] + ["detokenizer"]
        while True:
            time.sleep(1)
            for name, child in zip(names, self.children, strict=True):
                code = child.poll()
                if code in (None, 0) or self._failed:
                    continue
                self.log(
                    f"Subprocess {name} (pid={child.pid}) crashed with exit code {code}. "
                    "Triggering SIGQUIT for cleanup..."
                )
                os.kill(os.getpid(), signal.SIGQUIT)
                return

    def _kill_all(self, status: int | None = None) -> NoReturn:
        """End as SGLang does: kill the children, then itself with SIGKILL, or exit with a status."""
        for child in self.children:
            child.kill()
        if status is None:
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stdout.flush()
        os._exit(status or 0)


def outcome_log(outcome: Outcome, folder: Path) -> tuple[tuple[str, ...], list[str]]:
    """Return the remarks and lines that an outcome prints. Logs are looked up beside the scenario first."""
    if not outcome.log:
        return (), outcome.text.splitlines()
    here = Path(__file__).parent
    places = [folder / outcome.log, here / outcome.log]
    return recording.read_text(next((p for p in places if p.is_file()), places[0]))


def _as_printed(text: str) -> str:
    """A progress bar is redrawn on one line, so that a journal sees nothing of it until it is done."""
    if text.startswith("Capturing batches"):
        return f"\r{text}" + ("\n" if "100%" in text else "")
    return text + "\n"


def _model_config(path: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path, "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _made_up(path: str, body: dict[str, Any], model: str) -> dict[str, Any]:
    count = int(
        (body.get("sampling_params") or body).get("max_new_tokens") or body.get("max_tokens") or 8
    )
    text = " ".join(["replay"] * min(count, 64))
    usage = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": count + 1}
    if path == "/generate":
        reason = {"type": "length", "length": count}
        info = {"id": os.urandom(16).hex(), "finish_reason": reason, "completion_tokens": count}
        return {"text": text, "output_ids": [0] * count, "meta_info": info}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    choice |= (
        {"message": {"role": "assistant", "content": text}} if "chat" in path else {"text": text}
    )
    return {"id": os.urandom(16).hex(), "model": model, "choices": [choice], "usage": usage}
