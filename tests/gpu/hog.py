"""Another process on the card: takes all GPU memory but so many MiB, and holds it for some minutes."""

import sys
import time

import torch

left, seconds = int(sys.argv[1]) << 20, float(sys.argv[2])
held = []
block = 1 << 30
while block >= 1 << 24:
    free, _ = torch.cuda.mem_get_info()
    if free - left < block:
        block //= 2
        continue
    held.append(torch.empty(block, dtype=torch.uint8, device="cuda"))
print(
    "holding",
    sum(h.numel() for h in held) >> 20,
    "MiB, free",
    torch.cuda.mem_get_info()[0] >> 20,
    flush=True,
)
time.sleep(seconds)
