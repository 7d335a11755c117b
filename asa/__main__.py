"""``python -m asa``: the command line, where the script ``asa`` is not on the path."""

import os
import sys

if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(__file__)):
    sys.path.append(sys.path.pop(0))  # the working directory: a workflow there may be called logging.py

from asa.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
