"""Kernels against Neural Tangents and against this machine's floor, in one run.

    python benchmarks/kernels.py                   every case (about half an hour on two cores)
    python benchmarks/kernels.py --only b/8x8      the cases whose name contains this
    python benchmarks/kernels.py --no-peer         limitformer and the floor only

The peer, neural-tangents 0.6.5 with jax 0.5.3, lives in `.venv-peer`, which is made on the first
run (--peer-python or LIMITFORMER_PEER_PYTHON name another interpreter that has it). A process of
each library is kept alive for every case and they take turns, so that both meet the same machine.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import cases
import numpy as np
from floor import floor_seconds
from table import markdown

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PEER_VENV = HERE.parent / ".venv-peer"
PEER = ("neural-tangents==0.6.5", "jax==0.5.3", "jaxlib==0.5.3")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}


class WorkerError(RuntimeError):
    """A worker died; the text is the end of what it wrote."""


class Worker:
    """A process that holds one case in one library (see worker.py)."""

    def __init__(self, python: str, script: str, case: cases.Case):
        """Starts the process and waits until the case is prepared."""
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [python, str(HERE / script), case.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **QUIET},
        )
        self.import_mb = self._answer()["import_mb"]

    def ask(self, command: str) -> dict:
        """Sends one command and waits for its answer."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.log.seek(0)
        raise WorkerError(self.log.read().strip()[-2000:])

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()
        self.log.close()


def peer_python(named: str | None) -> str:
    """The interpreter that has the peer, made if there is none."""
    if named:
        return named
    python = PEER_VENV / "bin" / "python"
    done = PEER_VENV / ".installed"
    if not done.exists():
        print(f"installing {' '.join(PEER)} into {PEER_VENV.name} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(PEER_VENV)], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
        subprocess.run([*pip, "--upgrade", "pip"], check=True)
        subprocess.run([*pip, *PEER], check=True)
        done.touch()
    return str(python)


def measure_machine() -> dict:
    output = subprocess.run(
        [sys.executable, str(HERE / "machine.py")], check=True, capture_output=True, text=True
    )
    return json.loads(output.stdout)


def difference(ours: dict, peer: dict) -> dict[str, float]:
    """Largest difference of a sub-block, relative to its largest entry, by kind."""
    result = {}
    for kind, values in peer["values"].items():
        a, b = np.asarray(ours["values"][kind]), np.asarray(values)
        result[kind] = float(np.abs(a - b).max() / np.abs(b).max())
    return result


def run(case: cases.Case, pythons: dict[str, str], rounds: int) -> dict:
    """Times one case in every library, in turn.

    Returns:
        By library: seconds per call, first call and its excess over the others (tracing and
        compilation), peak memory above what the import took; and the largest relative differences.
    """
    workers: dict[str, Worker] = {}
    row: dict = {}
    values: dict[str, dict] = {}
    try:
        for library, python in pythons.items():
            try:
                workers[library] = Worker(python, f"{library}_cases.py", case)
                row[library] = {
                    "first": workers[library].ask("first")["seconds"],
                    "times": [],
                    "cpu_times": [],
                }
            except WorkerError as error:
                row[library] = {"error": str(error)}
        timed = [library for library in workers if "times" in row[library]]
        for i in range(rounds):
            for library in timed if i % 2 == 0 else timed[::-1]:
                answer = workers[library].ask("round")
                row[library]["times"] += answer["times"]
                row[library]["cpu_times"] += answer["cpu_times"]
        for library in timed:
            values[library] = workers[library].ask("values")
            out = row[library]
            out["seconds"] = median(out["times"])
            out["cpu_us_per_pair"] = 1e6 * median(out["cpu_times"]) / case.pairs
            out["us_per_pair"] = 1e6 * out["seconds"] / case.pairs
            out["compile"] = max(0.0, out["first"] - min(out["times"]))
            out["peak_mb"] = values[library]["peak_mb"] - workers[library].import_mb
            if set(values[library]["dtypes"].values()) != {case.dtype}:
                out["error"] = f"dtypes {values[library]['dtypes']}, not {case.dtype}"
    finally:
        for worker in workers.values():
            worker.close()
    if len(values) == 2:
        row["difference"] = difference(values["our"], values["peer"])
    return row


def main() -> None:
    """Runs the benchmark, prints the table and writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="case name contains this (repeatable)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each library (default 3)")
    parser.add_argument("--no-peer", action="store_true", help="limitformer and the floor only")
    parser.add_argument("--no-ours", action="store_true", help="the peer and the floor only")
    parser.add_argument("--peer-python", default=os.environ.get("LIMITFORMER_PEER_PYTHON"))
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    args = parser.parse_args()

    chosen = [c for c in cases.all_cases() if any(s in c.name for s in args.only or [""])]
    if args.list:
        print(*(case.name for case in chosen), sep="\n")
        return
    pythons = {} if args.no_ours else {"our": sys.executable}
    if not args.no_peer:
        pythons["peer"] = peer_python(args.peer_python)

    rates = measure_machine()
    rows = []
    for case in chosen:
        row = {"case": case.name, **run(case, pythons, args.rounds)}
        row["floor"] = {k: 1e6 * v / case.pairs for k, v in floor_seconds(case, rates).items()}
        rows.append(row)
        times = "  ".join(
            f"{library} {row[library].get('us_per_pair', float('nan')):.4g} us"
            for library in pythons
        )
        print(f"{case.name:32s} {times}  floor {row['floor']['floor']:.3g} us", flush=True)
    # A second look: the floor is only as steady as the machine was.
    report = {"machine": rates, "machine_after": measure_machine(), "rows": rows}
    text = markdown(report)
    print("\n" + text)
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / ("kernels" if len(pythons) == 2 and not args.only else "partial")
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    stem.with_suffix(".md").write_text(text + "\n")
    print(f"written: {stem}.md, {stem}.json")


if __name__ == "__main__":
    main()
