"""``asa``, and ``python -m asa`` where that script is not on the path: loads the command line, and calls it."""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(__file__)):
    sys.path.append(sys.path.pop(0))  # the working directory: a workflow there may be called signal.py

import signal


def main() -> int:
    """Run the command line; its exit code. Ctrl-C while it is loaded ends it at once, without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from asa.cli.main import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
