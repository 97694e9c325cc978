"""The benchmark's report as a table in Markdown."""

import cases

HEADER = (
    "case",
    "ours, us/pair",
    "peer, us/pair",
    "peer/ours",
    "by CPU",
    "aim",
    "floor, us/pair",
    "ours/floor",
    "compile s, ours",
    "peer",
    "peak MB, ours",
    "peer",
    "difference NNGP",
    "NTK",
)
AIMS = {
    ("b", "mean", "float32"): 10.0,
    ("b", "flatten", "float32"): 5.0,
    ("b", "mean", "float64"): 4.0,
    ("b", "flatten", "float64"): 2.5,
}


def aim(case: cases.Case) -> float:
    """How many times faster than the peer the case should be."""
    return AIMS.get((case.family, case.readout, case.dtype), 1.0)


def number(value: float | None, form: str = ".3g") -> str:
    return "" if value is None else format(value, form)


def cells(row: dict) -> list[str]:
    ours, peer = row.get("our", {}), row.get("peer", {})
    us, them = ours.get("us_per_pair"), peer.get("us_per_pair")
    us_cpu, them_cpu = ours.get("cpu_us_per_pair"), peer.get("cpu_us_per_pair")
    floor, apart = row["floor"]["floor"], row.get("difference", {})
    return [
        row["case"],
        "failed" if "error" in ours else number(us),
        "failed" if "error" in peer else number(them),
        number(them / us if us and them else None),
        number(them_cpu / us_cpu if us_cpu and them_cpu else None),
        number(aim(cases.find(row["case"]))),
        number(floor),
        number(us / floor if us else None),
        number(ours.get("compile"), ".2f"),
        number(peer.get("compile"), ".2f"),
        number(ours.get("peak_mb"), ".0f"),
        number(peer.get("peak_mb"), ".0f"),
        number(apart.get("nngp"), ".1e"),
        number(apart.get("ntk"), ".1e"),
    ]


def machine_lines(report: dict) -> list[str]:
    machine, after = report["machine"], report["machine_after"]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['device']}, "
        f"Python {machine['python']}, JAX {machine['jax']}.",
        "",
        "| rate (before -> after the run) | float32 | float64 |",
        "|---|---|---|",
    ]
    names = {
        "matmul_gflops": "matmul 2048, GFLOP/s",
        "batched_matmul_gflops": "matmul 1024 x 64, GFLOP/s",
        "triad_gb": "triad, GB/s",
        "exp": "exp, million/s",
        "sqrt": "sqrt, million/s",
        "arccos": "arccos by polynomial, million/s",
        "xla_arccos": "XLA's arccos, million/s",
    }
    for key, label in names.items():
        values = (
            f"{machine[dtype][key]:.4g} -> {after[dtype][key]:.4g}"
            for dtype in ("float32", "float64")
        )
        lines.append(f"| {label} | {' | '.join(values)} |")
    return lines


def markdown(report: dict) -> str:
    """The whole report: the machine, the table, and what went wrong."""
    lines = ["# Kernels: limitformer against neural-tangents 0.6.5 (jax 0.5.3)", ""]
    lines += machine_lines(report)
    lines += ["", "| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in report["rows"]]
    lines += [
        "",
        "Medians over the turns. Peak memory is above that of the imports. The floor is that of "
        "`floor.py`. Differences are the largest of the first 8 x 8 entries, relative to the "
        "largest. `by CPU` is the ratio of CPU times, all cores together.",
    ]
    for row in report["rows"]:
        for library in ("our", "peer"):
            if error := row.get(library, {}).get("error"):
                lines += ["", f"`{row['case']}`, {library}:", "", "```", error, "```"]
    return "\n".join(lines)
