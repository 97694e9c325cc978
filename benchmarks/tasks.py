"""Real tasks: limitformer beside scikit-learn, with accuracy, likelihood, calibration and time.

    python benchmarks/tasks.py                    every dataset (about half an hour on two cores)
    python benchmarks/tasks.py --only digits      one of them (repeatable); the others are kept
    python benchmarks/tasks.py --quick            small sets, written to results/partial.tasks.*
    python benchmarks/tasks.py --tables           the tables again from the stored results

Writes benchmarks/results/tasks.json and tasks.md, and docs/results/tasks.md.
"""

import argparse
import json
import os
import platform
from pathlib import Path

import sklearn
import task_ours
import task_peers
from task_conclusions import CONCLUSIONS
from task_data import TASKS, Task
from task_report import markdown
from task_scores import Row, comparison

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DOCS = HERE.parent / "docs" / "results" / "tasks.md"
DATA = HERE.parents[1] / "shared" / "data"


def run(task: Task) -> dict:
    """All methods on one task."""
    print(f"{task.name}: {task.about}", flush=True)
    rows: list[Row] = []
    for module in (task_ours, task_peers):
        for row in module.classes(task) if task.classes else module.real(task):
            rows.append(row)
            scores = "  ".join(f"{k} {v:.3f}±{e:.3f}" for k, (v, e) in row.scores.items())
            wall, cpu = row.seconds
            print(f"  {row.method:45s} {scores}  {wall:.1f} s ({cpu:.1f})", flush=True)
    return {
        "about": task.about,
        "rows": [row.as_dict() for row in rows],
        "comparison": comparison(rows),
    }


def machine() -> dict:
    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            cpu = next((s.split(":")[1].strip() for s in lines if s.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sklearn": sklearn.__version__,
    }


def main() -> None:
    """Runs the benchmark and writes the tables after every dataset."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=tuple(TASKS), help="repeatable")
    parser.add_argument("--quick", action="store_true", help="200 rows; results/partial.tasks.*")
    parser.add_argument("--tables", action="store_true", help="write the tables again, run nothing")
    parser.add_argument("--data", type=Path, default=DATA, help=f"folder of the files ({DATA})")
    args = parser.parse_args()

    RESULTS.mkdir(exist_ok=True)
    stem = "partial.tasks" if args.quick else "tasks"
    stored = RESULTS / f"{stem}.json"
    kept = {}
    if args.tables or (args.only and not args.quick and stored.exists()):
        kept = json.loads(stored.read_text())["tasks"]
    for name in () if args.tables else args.only or TASKS:
        kept[name] = run(TASKS[name](args.data, args.quick))
        write(kept, stem, args.quick)
    write(kept, stem, args.quick)
    print(f"written: {RESULTS / stem}.md, {stem}.json" + ("" if args.quick else f", {DOCS}"))


def write(tasks: dict, stem: str, quick: bool) -> None:
    """Writes the results as JSON and as tables."""
    report = {"machine": machine(), "tasks": {key: tasks[key] for key in TASKS if key in tasks}}
    (RESULTS / f"{stem}.json").write_text(json.dumps(report, indent=1) + "\n")
    text = markdown(report, "" if quick else CONCLUSIONS)
    (RESULTS / f"{stem}.md").write_text(text)
    if not quick:
        DOCS.parent.mkdir(parents=True, exist_ok=True)
        DOCS.write_text(text)


if __name__ == "__main__":
    main()
