"""`limitformer rank`: does a checkpoint lose rank with depth, and which paths carry its output?"""

import argparse
import sys
from pathlib import Path


def add(commands) -> None:
    """Add the command to the parser's commands."""
    text = "collapse, attention maps and paths of a checkpoint, in one HTML report"
    rank = commands.add_parser(
        "rank",
        help=text,
        description=f"Show {text}. Example: limitformer rank MiniLM --text abstract.txt",
    )
    rank.add_argument(
        "model", type=Path, help="folder with config.json, safetensors and tokenizer.json"
    )
    rank.add_argument("--text", type=Path, required=True, metavar="FILE", help="UTF-8 text to run")
    rank.add_argument(
        "--tokens", type=int, default=None, metavar="N", help="use the first N tokens of the text"
    )
    rank.add_argument(
        "--out", type=Path, default=Path("rank.html"), metavar="FILE", help="default: rank.html"
    )
    rank.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Analyse, print the verdict, write the page; 1 after an error that was explained."""
    try:
        from limitformer import models
        from limitformer.models.rank import rank_report

        text = arguments.text.read_text(encoding="utf-8")
        model = models.load(arguments.model)
        if model.tokenize is None:
            raise ValueError(f"{arguments.model} has no tokenizer.json, which --text needs")
        ids = model.tokenize(text)
        if arguments.tokens is not None:
            if arguments.tokens < 2:
                raise ValueError(f"--tokens {arguments.tokens}: collapse needs at least two tokens")
            ids = ids[: arguments.tokens]
        found = rank_report(model, ids, arguments.out)
    except (OSError, ValueError, TypeError, ModuleNotFoundError) as error:
        print(f"limitformer rank: {error}", file=sys.stderr)
        return 1
    print(found.verdict)
    print(f"\n{arguments.out.resolve().as_uri()}")
    return 0
