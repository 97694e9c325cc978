"""`limitformer doctor`: is everything here that the library needs?"""

import dataclasses
import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata

import typer

from limitformer.cli.command import command
from limitformer.cli.shell import Shell, versions

ROOM = 2 * 2**30  # bytes of free memory under which work is cramped


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the table.

    Attributes:
        what: was looked at.
        found: in words.
        advice: what to do, empty if all is well.
        wrong: whether kernels cannot be computed like this.
    """

    what: str
    found: str
    advice: str = ""
    wrong: bool = False


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "doctor", "limitformer doctor")(doctor)


def doctor(shell: Shell) -> dict:
    """Look at versions, devices, 64-bit numbers, memory and extras, and give advice."""
    findings = [*_machine(), *_jax(), *_extras()]
    shell.table((), [(f.what, f.found) for f in findings])
    advice = [f for f in findings if f.advice]
    for finding in advice:
        shell.print(f"{finding.what}: {finding.advice}")
    if not advice:
        shell.print("Nothing to do.")
    shell.status = int(any(f.wrong for f in findings))
    return {"findings": [dataclasses.asdict(f) for f in findings]}


def _machine() -> Iterator[Finding]:
    found = versions()
    yield Finding("versions", ", ".join(f"{name} {number}" for name, number in found.items()))
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("processor", f"{usable} of {os.cpu_count()} cores, {sys.platform}")


def _jax() -> Iterator[Finding]:
    import jax
    import numpy as np

    import limitformer as lf
    from limitformer.kernel.memory import memory_budget

    try:
        devices = jax.devices()
    except RuntimeError as error:
        yield Finding(
            "devices",
            str(error),
            "JAX starts no device; unset JAX_PLATFORMS, or install the jaxlib of this machine",
            wrong=True,
        )
        return
    gpu = any(device.platform != "cpu" for device in devices)
    unused = not gpu and shutil.which("nvidia-smi") is not None
    yield Finding(
        "devices",
        ", ".join(str(device) for device in devices),
        'this machine has an NVIDIA GPU and JAX does not use it: pip install "jax[cuda12]"'
        if unused
        else "",
    )
    k = lf.Serial(lf.Dense(), lf.Erf(), lf.Dense()).kernel(np.ones((1, 1)), kinds="nngp")
    wanted = 2 / np.pi * np.arcsin(2 / 3)
    wide = k.nngp.dtype == np.float64 and abs(float(k.nngp[0, 0]) - wanted) < 1e-12
    switch = "on" if jax.config.read("jax_enable_x64") else "off, which kernels do not mind"
    yield Finding(
        "64-bit numbers",
        f"{'exact to 12 digits' if wide else 'LOST'}; JAX's global switch is {switch}",
        "" if wide else "kernels come back in 32 bits here; please report it with this table",
        wrong=not wide,
    )
    budget = memory_budget(None)
    yield Finding(
        "memory",
        f"{4 * budget / 2**30:.1f} GiB free, {budget / 2**30:.1f} GiB used unless --memory",
        "little is free; give --memory, and store large Gram matrices: limitformer gram compute"
        if 4 * budget < ROOM
        else "",
    )


def _extras() -> Iterator[Finding]:
    try:
        required = metadata.requires("limitformer") or []
        names = metadata.metadata("limitformer").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        yield Finding("extras", "limitformer is not installed", 'pip install -e ".[all]"')
        return
    inside = {"all", "test", "dev", "docs"}
    for extra in (name for name in names if name not in inside):
        marker = re.compile(rf"extra == ['\"]{extra}['\"]")
        packages = [re.match(r"[\w.-]+", r)[0] for r in required if marker.search(r)]  # type: ignore[index]
        packages = [name for name in packages if name != "limitformer"]
        absent = [name for name in packages if not _there(name)]
        if not packages:
            continue
        yield Finding(
            f"extra {extra}",
            f"without {', '.join(absent)}" if absent else "complete",
            f'pip install "limitformer[{extra}]", if you want it' if absent else "",
        )


def _there(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
