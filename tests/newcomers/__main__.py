"""``python -m tests.newcomers``: play all scripts, and print what each step took as a table."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.newcomers.play import play, table
from tests.newcomers.scripts import NEWCOMERS
from tests.wheels import copied, environment, make


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.newcomers", description=__doc__)
    parser.add_argument("--only", choices=NEWCOMERS, help="one of them")
    parser.add_argument("--json", metavar="OUT", type=Path, help="write the steps to this file, too")
    options = parser.parse_args()
    played = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clean = environment(make("build_wheel", copied(folder / "tree"), folder / "wheel"), folder / "env")
        for newcomer in [options.only] if options.only else NEWCOMERS:
            (home := folder / newcomer).mkdir()
            played += play(newcomer, NEWCOMERS[newcomer], clean, home)
    print(table(played))
    for each in played:
        if each.wrong:
            print(f"\n{each.newcomer}, {each.wants}:\n{each.wrong}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps([each._asdict() for each in played], indent=1) + "\n")
    return int(any(each.wrong for each in played))


if __name__ == "__main__":
    sys.exit(main())
