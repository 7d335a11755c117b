"""``python -m asa``: the command line, where the script ``asa`` is not on the path."""

import sys

from asa.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
