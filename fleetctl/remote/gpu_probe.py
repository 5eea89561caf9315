"""What the driver says of this host's GPUs: nvidia-smi, and one attribute that only the library tells."""

from __future__ import annotations

from typing import Any

from fleetctl.remote import procs

MULTICAST_SUPPORTED = 132  # CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED of cuda.h (12.1 and newer)


def multicast() -> bool | None:
    """Return whether every GPU offers NVLink multicast (what NCCL's NVLS needs); None without a driver.

    ``cuInit`` makes no context and takes no GPU memory.
    """
    import ctypes  # only where there are GPUs

    try:
        library = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
            return None
        for number in range(count.value):
            device, value = ctypes.c_int(), ctypes.c_int()
            if library.cuDeviceGet(ctypes.byref(device), number):
                return None
            if library.cuDeviceGetAttribute(ctypes.byref(value), MULTICAST_SUPPORTED, device):
                return None
            if not value.value:
                return False
    except (OSError, AttributeError):
        return None
    return True


def read(_args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return ``{gpus, driver, multicast}``; no GPUs and None without NVIDIA's tools."""
    gpus, driver = procs.gpus()
    return {"gpus": gpus, "driver": driver, "multicast": multicast() if gpus else None}


VERBS = {"read": read}
