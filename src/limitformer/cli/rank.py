"""`limitformer rank`: does a checkpoint lose rank with depth, and which paths carry its output?"""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from limitformer.cli.command import command
from limitformer.cli.shell import Shell

Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Folder with config.json, safetensors, tokenizer.json."),
]
Text = Annotated[Path, typer.Option("--text", metavar="FILE", help="UTF-8 text to run.")]
Tokens = Annotated[
    int | None, typer.Option("--tokens", metavar="N", help="Use the first N tokens of the text.")
]
Page = Annotated[Path, typer.Option("--out", metavar="FILE", help="The report.")]
_METRICS = ("residual", "cosine", "effective_rank")


def add(app: typer.Typer) -> None:
    """Add the command."""
    example = "limitformer rank MiniLM --text abstract.txt --tokens 12"
    command(app, "rank", example)(rank)


def rank(
    shell: Shell, model: Model, text: Text, tokens: Tokens = None, out: Page = Path("rank.html")
) -> dict:
    """Show collapse, attention maps and paths of a checkpoint, in one HTML report."""
    from limitformer import models
    from limitformer.models.rank import rank_report

    words = text.read_text(encoding="utf-8")
    loaded = models.load(model)
    if loaded.tokenize is None:
        raise ValueError(f"{model} has no tokenizer.json, which --text needs")
    ids = loaded.tokenize(words)
    if tokens is not None:
        if tokens < 2:
            raise ValueError(f"--tokens {tokens}: collapse needs at least two tokens")
        ids = ids[:tokens]
    found = rank_report(loaded, ids, out, command=shlex.join(["limitformer", *sys.argv[1:]]))
    shell.print(found.verdict, f"\n{out.resolve().as_uri()}")
    return {
        "verdict": found.verdict,
        "layers": {metric: found.trained.mean(metric) for metric in _METRICS},
        "layers_at_initialisation": {metric: found.initial.mean(metric) for metric in _METRICS},
        "layers_of_the_limit": found.limit,
        "out": str(out),
    }
