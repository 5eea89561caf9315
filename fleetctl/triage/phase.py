"""How far the launch had come when something happened: from frames first, then from the log's markers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetctl.evidence.exceptions import Raised
from fleetctl.evidence.reader import DIGITS
from fleetctl.evidence.record import Record
from fleetctl.model.triage import Frame, Phase
from fleetctl.remote.markers import phase_of

# Functions that run in one phase only, innermost frame first. Names of SGLang and vLLM, old and new.
_FUNCTIONS = {
    Phase.GRAPH_CAPTURE: """
        capture capture_one_batch_size _capture_one_stream capture_model _capture_graph
        init_device_graphs init_cuda_graphs init_all_cuda_graphs init_device_graph
        register_graph_buffers get_graph_buffer_ipc_meta begin_capture capture_begin
        init_attention_backends_and_graphs capture_prepare warmup_torch_compile
        _capture_cudagraphs init_piecewise_cuda_graphs
    """,
    Phase.WEIGHT_LOAD: """
        load_model load_weights load_weights_and_postprocess create_weights weight_loader
        _prepare_weights get_model _initialize_model process_weights_after_loading
        initialize_model download_weights _get_weights_iterator safetensors_weights_iterator
        multi_thread_safetensors_weights_iterator pt_weights_iterator get_quant_config
        maybe_download_from_modelscope download_weights_from_hf load_sharded_state
    """,
    Phase.KV_ALLOC: """
        init_memory_pool alloc_memory_pool _create_buffers profile_max_num_token init_kv_cache
        determine_num_available_blocks determine_available_memory initialize_cache
        initialize_kv_caches _initialize_kv_caches init_cache_with_memory_pool init_kv_buffer
        _create_kv_buffers get_available_kv_cache_memory configure_kv_cache_pool
    """,
    Phase.DIST_INIT: """
        init_torch_distributed initialize_model_parallel init_distributed_environment
        ncclCommInitRank init_process_group new_group init_device init_model_parallel_group
        initialize_dp_attention init_worker_distributed_environment init_threads_binding
        _new_process_group_helper init_nccl create_c10d_store _create_c10d_store
        _tcp_rendezvous_handler start_decode_thread start_prefill_thread init_disaggregation
        init_transfer_engine initialize_transfer_engine _lazy_init _cuda_init set_device
        init_ipc_channels init_zmq PortArgs
    """,
    Phase.WARMUP: """
        _execute_server_warmup _wait_and_warmup compile_or_warm_up_model
    """,
    Phase.STARTUP_ARGS: """
        prepare_server_args from_cli_args check_server_args parse_args parse_known_args
        create_engine_config from_server_args get_config get_tokenizer from_engine_args
        create_model_config get_processor check_port_available
    """,
    Phase.SERVING: """
        forward_batch_generation forward_thread_func exposed_step forward_step run_batch
        execute_model get_next_batch_to_run event_loop_overlap event_loop_normal
        process_input_requests process_batch_result replay replay_prepare run_event_loop
        update_running_batch on_idle check_memory self_check_during_idle generate_request
        sample_tokens step_async engine_step event_loop handle_loop
    """,
}
_BY_FUNCTION = {word: phase for phase, words in _FUNCTIONS.items() for word in words.split()}
# Dummy runs of a worker between its KV pool and its graphs: no request, no port is open yet.
_PREPARING = frozenset(("kernel_warmup", "_flashinfer_autotune", "_dummy_run", "warmup_model"))
_SERVING_FUNCTION = re.compile(
    r"event_loop_\w+\Z|_?forward_\w*batch\w*\Z|_?handle_batch_\w+\Z|_log_task_completion\Z"
)


# Beside what the host's agent looks for: other releases, other engines, and steps it need not tell apart.
_MORE = tuple(
    (re.compile(pattern, re.IGNORECASE), phase)
    for pattern, phase in (
        (r"^capture .{0,30}graph end", Phase.WARMUP),
        (r"^capturing .{0,20}cuda ?graph|: capturing cuda graph", Phase.GRAPH_CAPTURE),
        (r"^multi-?thread(?:ed)? loading shards|^loading \w{1,12} checkpoint", Phase.WEIGHT_LOAD),
        (r"^loading (?:model (?:weights|from)|weights|\w+model\b)", Phase.WEIGHT_LOAD),
        (r"^allocating .{1,20} host memory for", Phase.KV_ALLOC),
        (r"sglang is using nccl==|^init torch distributed", Phase.DIST_INIT),
        (r"self\.cur_batch", Phase.SERVING),
    )
)


_CALLED_BY_A_BODY = 4
_ENTRIES = ("launch_server", "launch_router", "api_server", "__main__", "cli.main")
_AFTER_JOINING = (Phase.WEIGHT_LOAD, Phase.KV_ALLOC, Phase.GRAPH_CAPTURE, Phase.SERVING)
_WORKER_PHASES = (Phase.WEIGHT_LOAD, Phase.KV_ALLOC, Phase.GRAPH_CAPTURE)


def of_frames(frames: Sequence[Frame]) -> Phase | None:
    """Return the phase that the frames of an exception show, or None."""
    for frame in reversed(frames):
        function = frame.function.rsplit(".", 1)[-1]
        known = _BY_FUNCTION.get(function)
        if known is not None:
            return known
        if "cuda_graph" in frame.module and function in (
            "__init__",
            "_capture",
            "capture_one_shape",
        ):
            return Phase.GRAPH_CAPTURE
        if function.endswith("_capture_cuda_graph"):
            return Phase.GRAPH_CAPTURE
        if function.endswith("_replay_cuda_graph") or function == "print_exception_wrapper":
            return Phase.SERVING
        if ".loader." in f"{frame.module}." or ".model_loader." in f"{frame.module}.":
            return Phase.WEIGHT_LOAD
        if "memory_pool" in frame.module and function in ("__init__", "__post_init__"):
            return Phase.KV_ALLOC
        if frame.module.endswith("distributed.parallel_state") and function == "__init__":
            return Phase.DIST_INIT
        if frame.module.endswith("server_args") and function != "<module>":
            return Phase.STARTUP_ARGS
        if _SERVING_FUNCTION.match(function):
            return Phase.SERVING
    return None


def _preparing(frames: Sequence[Frame]) -> Phase | None:
    """Return the phase of a worker's own dummy run: vLLM calls it warm-up, SGLang has no graphs yet."""
    inner = next((f for f in reversed(frames) if f.function.rsplit(".", 1)[-1] in _PREPARING), None)
    if inner is None or _serving_loop(frames):
        return None
    return Phase.WARMUP if inner.module.startswith("vllm") else Phase.KV_ALLOC


def _of_source(raised: Raised) -> Phase | None:
    """Return serving where the frames that are left only show the call of a scheduler's loop."""
    return Phase.SERVING if any(".event_loop_" in s for s in raised.sources) else None


def _serving_loop(frames: Sequence[Frame]) -> bool:
    return any("event_loop" in f.function for f in frames)


def of_import(raised: Raised) -> bool:
    """Return whether an exception broke an import: its innermost frames are module bodies."""
    frames = [f for f in raised.frames if not f.module.startswith(("importlib", "frozen"))]
    if not frames:
        return False
    if frames[-1].function == "<module>":
        return len(raised.frames) > 1 or raised.name in ("ImportError", "ModuleNotFoundError")
    return _in_a_package_body(frames)


def _in_a_package_body(frames: Sequence[Frame]) -> bool:
    """Return whether the last frames are what the body of a module calls while another one imports it."""
    last = max((n for n, f in enumerate(frames) if f.function == "<module>"), default=0)
    if not 0 < last >= len(frames) - _CALLED_BY_A_BODY or frames[last - 1].module == "runpy":
        return False
    return not frames[last].module.endswith(_ENTRIES)


def _marked(text: str) -> str | None:
    """Return the phase that a line begins, or None."""
    name = phase_of(text)
    return name or next((p.value for pattern, p in _MORE if pattern.search(text)), None)


class Timeline:
    """The phase at each place of the log, by the markers that SGLang prints."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._marks: list[tuple[int, str, Phase]] = []
        self.listening = -1
        known: dict[str, str | None] = {}
        for index, record in enumerate(records):
            if record.origin != "app" or not record.text:
                continue
            shape = record.text.translate(DIGITS)
            if shape not in known:
                known[shape] = _marked(record.text)
            name = known[shape]
            if name is None:
                continue
            phase = Phase.STARTUP_ARGS if name == "import" else Phase(name)
            self._marks.append((index, record.rank, phase))
            if phase is Phase.WARMUP and self.listening < 0:
                self.listening = index

    def at(self, index: int, rank: str = "") -> Phase | None:
        """Return the phase that was marked last before a place; that of the same rank where it is known."""
        own: Phase | None = None
        any_rank: Phase | None = None
        for mark, marked_rank, phase in self._marks:
            if mark > index:
                break
            any_rank = phase
            if rank and marked_rank == rank:
                own = phase
        if any_rank in (Phase.WARMUP, Phase.SERVING, Phase.SHUTDOWN):
            return any_rank
        return own or any_rank

    def joined_after(self, index: int) -> bool:
        """Return whether the launch went on, after a place, to what only ranks do that had found each other."""
        return any(mark > index and phase in _AFTER_JOINING for mark, _, phase in self._marks)

    @property
    def last(self) -> Phase | None:
        """The last phase that was marked."""
        return self._marks[-1][2] if self._marks else None

    def before_ready(self, index: int) -> bool:
        """Return whether a place lies between listening and the first answer of the server itself."""
        return self.listening >= 0 and self.at(index) is Phase.WARMUP


def _prepared(raised: Raised, timeline: Timeline) -> Phase | None:
    """Return the phase of a dummy run: what was marked last before it, where the log holds that."""
    known = _preparing(raised.frames)
    if known is not Phase.KV_ALLOC or of_frames(raised.frames) is Phase.GRAPH_CAPTURE:
        return known if known is Phase.WARMUP else None
    marked = timeline.at(raised.index, raised.ranks[0] if raised.ranks else "")
    return marked if marked in _WORKER_PHASES else known


def of_failure(chain: Sequence[Raised], timeline: Timeline) -> Phase | None:
    """Return the phase that the exceptions of a chain show by themselves, or None."""
    if any("apture cuda graph failed" in f"{r.message}{r.head}" for r in chain):
        return Phase.GRAPH_CAPTURE
    for raised in chain:
        found = _prepared(raised, timeline) or of_frames(raised.frames)
        if found in (None, Phase.STARTUP_ARGS) and of_import(raised):
            return Phase.IMPORT
        found = found or _of_source(raised)
        if found is Phase.SERVING and timeline.before_ready(raised.index):
            return Phase.WARMUP
        if found is not None:
            return found
    return Phase.WARMUP if any("InductorError" in r.type for r in chain) else None
