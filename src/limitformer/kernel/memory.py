"""How much memory a computation may take."""

from __future__ import annotations

import jax

_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 1e3, "mb": 1e6, "gb": 1e9}


def memory_budget(memory) -> int:
    """A budget in bytes: a number, a string such as "2GiB", or None (a quarter of what is free)."""
    if memory is None:
        return max(_free_memory() // 4, 2**28)
    if isinstance(memory, str):
        digits = memory.strip().lower().rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = memory.strip().lower()[len(digits) :]
        try:
            return int(float(digits) * _UNITS[unit])
        except (ValueError, KeyError):
            raise ValueError(f'memory={memory!r} is not a size; write for example "2GiB"') from None
    if not memory > 0:
        raise ValueError(f"memory must be a positive number of bytes, got {memory!r}")
    return int(memory)


def _free_memory() -> int:
    stats = jax.devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 * 2**30
