"""Where numbers come from: settings, times, versions and the machine."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from limitformer.report import html

PACKAGES = (
    "limitformer",
    "jax",
    "jaxlib",
    "equinox",
    "numpy",
    "scipy",
    "scikit-learn",
    "matplotlib",
)


def provenance(
    settings: Any,
    seconds: Mapping[str, float],
    command: str,
    date: datetime.datetime,
    dtype: str = "",
) -> html.Markup:
    """The last section of a report.

    Args:
        settings: a dataclass or a mapping with everything that the numbers depend on.
        seconds: by step.
        command: what to run to make the page again.
        date: of the run.
        dtype: that kernels were computed in, if it is not a setting.
    """
    times = [(name, f"{value:.1f} s") for name, value in seconds.items()]
    if len(times) > 1:
        times.append(("together", f"{sum(seconds.values()):.1f} s"))
    if not isinstance(settings, Mapping):
        settings = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    values = [(name, _plain(value)) for name, value in settings.items()]
    versions = [("Python", platform.python_version())]
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append((name, metadata.version(name)))
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    kernels = f" Kernels in {dtype}." if dtype else ""
    return html.section(
        "Settings",
        "Everything that these numbers depend on. The same settings give the same numbers on the "
        "same machine. To make the page again:",
        html.code(command),
        html.gallery(
            [
                html.table(("setting", "value"), values),
                html.table(("step", "time"), times, "Compilation included.", "lr"),
                html.table(
                    ("part", "version"),
                    versions,
                    f"{machine}.{kernels} {date:%Y-%m-%d %H:%M %Z}",
                    "lr",
                ),
            ],
            250,
        ),
    )


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
