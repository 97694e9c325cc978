"""The command line: a thin shell that parses, calls the library and prints.

Nothing heavy is imported before a command is chosen, so that help is instant.
"""

from limitformer.cli.main import INTERRUPTED, main

__all__ = ["INTERRUPTED", "main"]
