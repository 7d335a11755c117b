"""``python -m tests.newcomers``: play all scripts, and print what each step took as a table."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.definitions import ROOT
from tests.newcomers.play import Played, Step, play, table
from tests.newcomers.scripts import NEWCOMERS
from tests.wheels import copied, environment, make


def played_with(sources: Path, scripts: Mapping[str, Sequence[Step]]) -> list[Played]:
    """Play the scripts with a wheel of these sources."""
    played: list[Played] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clean = environment(make("build_wheel", copied(folder / "tree", sources), folder / "wheel"), folder / "env")
        for newcomer, steps in scripts.items():
            (home := folder / newcomer).mkdir()
            played += play(newcomer, steps, clean, home)
    return played


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.newcomers", description=__doc__)
    parser.add_argument("--only", choices=NEWCOMERS, help="one of them")
    parser.add_argument(
        "--before", metavar="CHECKOUT", type=Path, help="an older version: also time the steps that worked then"
    )
    parser.add_argument("--json", metavar="OUT", type=Path, help="write the steps to this file, too")
    options = parser.parse_args()
    scripts = {name: steps for name, steps in NEWCOMERS.items() if options.only in (None, name)}
    smooth = {name: [step for step in steps if not step.stuck] for name, steps in scripts.items()}
    before = played_with(options.before, smooth) if options.before else []
    played = played_with(ROOT, scripts)
    print(table(played, before))
    for each in played:
        if each.wrong:
            print(f"\n{each.newcomer}, {each.wants}:\n{each.wrong}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps([each._asdict() for each in played], indent=1) + "\n")
    return int(any(each.wrong for each in played))


if __name__ == "__main__":
    sys.exit(main())
