"""`python -m limitformer`, and the command `limitformer`."""

import os
import sys

from limitformer import cli


def main() -> int:
    """Run the command line; see `limitformer.cli.main`."""
    status = cli.main()
    if status == cli.INTERRUPTED:
        # JAX may still be compiling in a thread, and tearing Python down under it can crash.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
