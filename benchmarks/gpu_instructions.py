"""What a GPU's compiler makes of a whole network: instructions and registers, without a GPU.

    python benchmarks/gpu_instructions.py --tokens 64 [--masks] [--softmax] [--warps 4 8]

Needs the triton package beside limitformer (PyPI, about 200 MB, with NVIDIA's assembler and
disassembler inside); it compiles for an H200 on any machine. Counts are of a warp: the loop's are
for one block of the network. Beside each is what remains of a pair's time if every instruction
slot of an H200 is used. What XLA does with the same program differs in the last registers.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

os.environ["TRITON_DEFAULT_FP_FUSION"] = "0"  # as XLA compiles

import gpu
import gpu_programs
import jax
import triton
from jax._src.pallas.triton import lowering
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh
from triton.backends.compiler import GPUTarget

from limitformer.kernel import fused, whole

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SLOTS = 132 * 4 * 1.98e9  # of warp instructions in a second: multiprocessors, schedulers, clock
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)")


class Traced(Exception):
    """The program's arguments are known."""


def module(net, given: dict) -> str:
    """The program in Triton's intermediate form."""
    seen: list = []

    def cross(*arguments):
        seen.append(whole._arguments(*arguments))
        raise Traced

    fused.available, whole.cross = (lambda: True), cross
    with contextlib.suppress(Traced):
        net.kernel(**given)
    if not seen:
        raise SystemExit("this network is not one program (limitformer.kernel.whole.possible)")
    arrays, static, *features = seen[0]
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (arrays, *features))
    lower, texts = lowering.lower_jaxpr_to_triton_module, []

    def lowered(*arguments, **options):
        found = lower(*arguments, **options)
        texts.append(found.module.operation.get_asm(enable_debug_info=False))
        return found

    lowering.lower_jaxpr_to_triton_module = lowered
    device = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="cuda")
    mesh = AbstractMesh((1,), ("x",), axis_types=(AxisType.Auto,), abstract_device=device)
    exact = jax.default_matmul_precision("highest")
    with use_abstract_mesh(mesh), jax.enable_x64(True), exact:
        call = jax.jit(lambda arrays, x, y: whole._called(static, arrays, x, y, False))
        call.trace(*shapes).lower(lowering_platforms=("cuda",))
    return texts[0]


def shown(binary: Path, tool: str, *options: str) -> str:
    command = [TOOLS / tool, *options, binary]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def compiled(text: str, warps: int) -> tuple[str, list[tuple[str, str]], dict[str, int]]:
    """Registers, instructions, and the places of labels."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "program.ttir", Path(folder) / "program.cubin"
        source.write_text(text)
        options = {"num_warps": warps, "num_stages": 2}
        target = GPUTarget("cuda", 90, 32)
        binary.write_bytes(triton.compile(str(source), target=target, options=options).asm["cubin"])
        usage = shown(binary, "cuobjdump", "-res-usage").splitlines()[-1]
        code = shown(binary, "nvdisasm")
    instructions, labels = [], {}
    for line in code[code.index(".text.") :].splitlines():
        if line.startswith(".L"):
            labels[line.split(":")[0]] = len(instructions)
        elif found := INSTRUCTION.match(line):
            instructions.append(found.groups())
    return usage, instructions, labels


def loop(instructions, labels) -> slice:
    """The longest piece that is jumped back over."""
    pieces = [slice(0, 0)]
    for place, (name, rest) in enumerate(instructions):
        target = re.search(r"(\.L_x_\d+)", rest) if name.startswith("BRA") else None
        if target and labels.get(target[1], place) < place:
            pieces.append(slice(labels[target[1]], place + 1))
    return max(pieces, key=lambda p: p.stop - p.start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--masks", action="store_true")
    parser.add_argument("--softmax", action="store_true", help="linear scale, instead of identity")
    parser.add_argument("--warps", type=int, nargs="+", default=[4, 8])
    args = parser.parse_args()
    S, turns = args.tokens, 4
    net = gpu.blocks() if args.softmax else gpu_programs.identity(S)
    text = module(net, gpu_programs.inputs(4, S, 16, masks=args.masks))
    for warps in args.warps:
        usage, instructions, labels = compiled(text, warps)
        body = loop(instructions, labels)
        inside, entries = body.stop - body.start, S * S / (32 * warps)
        end = next(i for i, (name, _) in enumerate(instructions) if name == "EXIT")
        total = max(end, body.stop) + (turns - 1) * inside
        names = collections.Counter(name.split(".")[0] for name, _ in instructions[body])
        kept = " ".join(re.findall(r"(?:REG|STACK):\d+", usage))
        print(
            f"\n{warps} warps: {kept}; a block {inside} ({inside / entries:.1f} for an entry), "
            f"all {total}, {1e6 * total * warps / SLOTS:.4f} us a pair"
        )
        print("  " + ", ".join(f"{name} {count}" for name, count in names.most_common(12)))


if __name__ == "__main__":
    main()
