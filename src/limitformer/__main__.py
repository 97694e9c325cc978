"""`python -m limitformer`."""

import sys

from limitformer.cli import main

if __name__ == "__main__":
    sys.exit(main())
