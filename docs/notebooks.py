"""Notebooks with outputs in `docs/examples`, from the scripts in `examples`: `make notebooks`.

A script is in the percent format: `# %%` begins a cell of code, `# %% [markdown]` one of text.
"""

import re
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = sorted((HERE.parent / "examples").glob("*.py"))
NOTEBOOKS = HERE / "examples"


def cells(script: str) -> list[tuple[str, str]]:
    """Kind ("code" or "markdown") and source of each cell of a script."""
    found = []
    for kind, body in re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", script, re.M | re.S):
        if kind:
            body = re.sub(r"^# ?", "", body, flags=re.M)
        found.append(("markdown" if kind else "code", body.strip("\n")))
    return found


def notebook(script: Path):
    """The notebook of a script, without outputs."""
    from nbformat import v4

    make = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell}
    made = v4.new_notebook(
        cells=[
            make[kind](body, id=f"{script.stem.replace('_', '-')}-{i}")
            for i, (kind, body) in enumerate(cells(script.read_text(encoding="utf-8")))
        ]
    )
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return made


def joined(outputs: list) -> list:
    """Outputs with what was printed in pieces put together."""
    found: list = []
    for output in outputs:
        stream = output.get("name")
        if stream and found and found[-1].get("name") == stream:
            found[-1]["text"] += output["text"]
        else:
            found.append(output)
    return found


def main(names: list[str]) -> None:
    """Run the named scripts, or all of them, and write their notebooks."""
    import nbformat
    from nbclient import NotebookClient

    for script in SCRIPTS:
        if names and script.stem not in names:
            continue
        start = time.perf_counter()
        made = notebook(script)
        NotebookClient(made, timeout=600, kernel_name="python3").execute(cwd=str(script.parent))
        for cell in made.cells:
            cell.metadata.pop("execution", None)  # times, which differ from run to run
            if cell.cell_type == "code":
                cell.outputs = joined(cell.outputs)
        nbformat.write(made, NOTEBOOKS / f"{script.stem}.ipynb")
        print(f"{script.stem}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
