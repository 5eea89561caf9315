"""Tracebacks as they are met: chained, grouped, cut, interleaved, doubled, without indentation or source."""

from __future__ import annotations

import textwrap

from fleetctl.evidence import reader, traceback
from fleetctl.evidence.exceptions import Raised
from fleetctl.evidence.traceback import Parsed

FILE = "/x/site-packages/sglang/srt"


def parse(text: str) -> Parsed:
    return traceback.parse(reader.from_bytes(textwrap.dedent(text).encode()).records)


def raised(text: str) -> list[Raised]:
    return parse(text).raised


def test_a_chain_keeps_its_order_and_its_links() -> None:
    found = raised(f"""
        Traceback (most recent call last):
          File "{FILE}/a.py", line 1, in one
            one()
        KeyError: 'x'

        The above exception was the direct cause of the following exception:

        Traceback (most recent call last):
          File "{FILE}/a.py", line 2, in two
            two()
        ValueError: y

        During handling of the above exception, another exception occurred:

        Traceback (most recent call last):
          File "{FILE}/a.py", line 3, in three
        RuntimeError: z
        """)
    assert [(r.type, r.link) for r in found] == [
        ("KeyError", ""),
        ("ValueError", "cause"),
        ("RuntimeError", "context"),
    ]
    assert {r.chain for r in found} == {found[0].chain}


def test_a_message_of_several_paragraphs_inside_a_chain_is_whole() -> None:
    found = raised(f"""
        Traceback (most recent call last):
          File "{FILE}/a.py", line 1, in one
        GatedRepoError: 401 Client Error.

        Cannot access gated repo.
        Please log in.

        The above exception was the direct cause of the following exception:

        Traceback (most recent call last):
          File "{FILE}/a.py", line 2, in two
        OSError: gone
        """)
    assert found[0].message == "401 Client Error.\n\nCannot access gated repo.\nPlease log in."


def test_members_of_an_exception_group_are_read_through_its_margin() -> None:
    found = raised(f"""
          + Exception Group Traceback (most recent call last):
          |   File "{FILE}/a.py", line 1, in one
          |     raise x
          | ExceptionGroup: two failed (2 sub-exceptions)
          +-+---------------- 1 ----------------
            | Traceback (most recent call last):
            |   File "{FILE}/b.py", line 2, in two
            |     two()
            | ValueError: first
            +---------------- 2 ----------------
            | Traceback (most recent call last):
            |   File "{FILE}/c.py", line 3, in three
            |     three()
            | KeyError: 'second'
            +------------------------------------
        """)
    assert [(r.type, r.message, r.link) for r in found] == [
        ("ExceptionGroup", "two failed (2 sub-exceptions)", ""),
        ("ValueError", "first", "member"),
        ("KeyError", "'second'", "member"),
    ]
    assert [f.function for f in found[1].frames] == ["two"]


def test_carets_notes_repeats_and_missing_source_lines_do_not_disturb() -> None:
    (found,) = raised(f"""
        Traceback (most recent call last):
          File "{FILE}/a.py", line 1, in one
            return two(
                   ^^^^
            ...<2 lines>...
            )
          File "{FILE}/a.py", line 2, in two
          File "{FILE}/a.py", line 3, in three
            return three(x)
                   ~~~~~^^^
          [Previous line repeated 993 more times]
        RecursionError: maximum recursion depth exceeded
        a note that somebody added
        """)
    assert [f.function for f in found.frames] == ["one", "two", "three"]
    assert found.message == "maximum recursion depth exceeded\na note that somebody added"


def test_lost_indentation_is_no_loss() -> None:
    (found,) = raised(f"""
        Traceback (most recent call last):
        File "{FILE}/a.py", line 1, in one
        raise ValueError(
        ValueError: x
        """)
    assert (found.type, found.message, found.sources) == ("ValueError", "x", ["raise ValueError("])


def test_a_frame_that_a_narrow_terminal_broke_is_joined() -> None:
    (found,) = raised("""
        Traceback (most recent call last):
          File "/usr/local/lib/python3.12/dist-packages/sglang/srt/managers/sched
        uler.py", line 12, in run_batch
            x()
        ValueError: x
        """)
    assert [(f.module, f.function) for f in found.frames] == [
        ("sglang.srt.managers.scheduler", "run_batch")
    ]


def test_a_log_whose_head_is_gone_still_gives_frames_and_exception() -> None:
    (found,) = raised(f"""\
          File "{FILE}/a.py", line 1, in one
            one()
        ValueError: x
        [2026-01-01 00:00:00] next
        """)
    assert (found.type, found.whole, len(found.frames)) == ("ValueError", False, 1)


def test_a_log_whose_tail_is_gone_keeps_the_frames() -> None:
    (found,) = raised(f"""
        [2026-01-01 00:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):
          File "{FILE}/a.py", line 1, in one
        """)
    assert (found.type, found.ranks, found.frames[0].function) == ("", ["TP3"], "one")


def test_ranks_that_write_into_each_other_share_the_exception() -> None:
    found = raised(f"""
        [2026-01-01 00:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):
          File "{FILE}/a.py", line 1, in one
        [2026-01-01 00:00:00 TP6] Scheduler hit an exception: Traceback (most recent call last):
          File "{FILE}/a.py", line 1, in one
          File "{FILE}/a.py", line 2, in two
          File "{FILE}/a.py", line 2, in two
        ValueError: x
        ValueError: x
        """)
    assert [r.ranks for r in found] == [["TP3", "TP6"]] * len(found)
    assert [f.function for f in found[0].frames] == ["one", "two"]


def test_faulthandler_gives_the_signal_and_the_current_thread_innermost_last() -> None:
    (found,) = raised(f"""
        Fatal Python error: Bus error

        Thread 0x00007768a2ffe6c0 (most recent call first):
          File "/x/site-packages/tqdm/_monitor.py", line 60 in run

        Current thread 0x00007769465bb740 (most recent call first):
          File "{FILE}/layers/linear.py", line 1254 in weight_loader
          File "{FILE}/models/qwen3.py", line 318 in load_weights

        Extension modules: numpy (total: 52)
        """)
    assert (found.type, [f.function for f in found.frames]) == (
        "SIGBUS",
        ["load_weights", "weight_loader"],
    )


def test_two_processes_that_wrote_letter_by_letter_are_undone() -> None:
    (found,) = raised("""
        Fatal Python error: Fatal Python error: Segmentation faultSegmentation fault

        Current thread 0xCurrent thread 0x00007f01 (most recent call first):
          File   File ""/x/site-packages/sglang/srt/a.py/x/site-packages/sglang/srt/a.py"", line , line 404404 in  in initinit
        """)
    assert (found.type, [(f.module, f.function, f.line) for f in found.frames]) == (
        "SIGSEGV",
        [("sglang.srt.a", "init", 404)],
    )


def test_terminate_gives_the_type_its_what_and_the_native_frames() -> None:
    (found,) = raised("""
        terminate called after throwing an instance of 'c10::DistBackendError'
          what():  [PG 3 Rank 5] timed out
        Exception raised from checkTimeout at ProcessGroupNCCL.cpp:609 (most recent call first):
        frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f3b in /x/libc10.so)
        frame #1: clone + 0x43 (0x7f3c in /usr/lib/libc.so.6)

        [2026-01-01 00:00:00] next
        """)
    assert (found.type, found.message) == ("c10::DistBackendError", "[PG 3 Rank 5] timed out")
    assert [f.function for f in found.frames] == ["clone", "c10::Error::Error"]


def test_a_usage_text_gives_its_error_and_hides_its_words() -> None:
    parsed = parse("""
        usage: launch_server.py [-h] [--watchdog-timeout N]
                                [--enable-nccl-nvls]
        launch_server.py: error: unrecognized arguments: --x
        """)
    assert [(r.kind, r.message) for r in parsed.raised] == [
        ("usage", "launch_server.py: error: unrecognized arguments: --x")
    ]
    assert len(parsed.consumed) == 3


def test_stacks_of_py_spy_are_kept_innermost_last() -> None:
    (stack,) = parse("""
        Process 4411: sglang::scheduler_TP2
        Thread 4411 (active): "MainThread"
            wait (torch/distributed/distributed_c10d.py:2920)
            all_reduce (sglang/srt/distributed/parallel_state.py:520)
        """).stacks
    assert (stack.thread, [f.function for f in stack.frames]) == (
        "MainThread",
        ["all_reduce", "wait"],
    )


def test_loggers_that_mark_every_line_do_not_split_a_traceback() -> None:
    where = "(Worker_TP1 pid=7) ERROR 01-01 00:00:00 [core.py:7]"
    (found,) = raised(f"""
        {where} Traceback (most recent call last):
        {where}   File "{FILE}/a.py", line 1, in one
        {where}     one()
        {where} ValueError: x
        {where} more of x
        (Worker_TP1 pid=7) INFO 01-01 00:00:01 [core.py:9] next
        """)
    assert (found.ranks, found.message, len(found.frames)) == (["TP1"], "x\nmore of x", 1)


def test_modules_do_not_depend_on_where_things_are_installed() -> None:
    places = (
        "/opt/v/lib/python3.12/site-packages",
        "/usr/local/lib/python3.10/dist-packages",
        "/sgl-workspace/sglang/python",
    )
    modules = set()
    for place in places:
        (found,) = raised(
            f'Traceback (most recent call last):\n  File "{place}/sglang/srt/utils/__init__.py", line 1, in f\nValueError: x\n'
        )
        modules.add((found.frames[0].module, found.frames[0].in_app))
    assert modules == {("sglang.srt.utils", True)}
