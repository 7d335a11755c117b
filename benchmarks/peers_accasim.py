"""AccaSim on an SWF log, by an interpreter that has it; nothing of ASA is needed.

    PYTHON peers_accasim.py LOG PROCESSORS

EASY backfilling and first fit on nodes of one core, the schedule written to a file beside the log: AccaSim's defaults.
It was made for Python before 3.10: what has gone from `collections` since is put back before the import. LOG is plain
text, for it reads no gzip.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import json
import sys
import time
from pathlib import Path


def main() -> None:
    log, processors = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]
    from accasim.base.allocator_class import FirstFit  # type: ignore[import-not-found]
    from accasim.base.scheduler_class import EASYBackfilling  # type: ignore[import-not-found]
    from accasim.base.simulator_class import Simulator  # type: ignore[import-not-found]

    machine = {
        "groups": {"node": {"core": 1}},
        "resources": {"node": processors},
        "equivalence": {"processor": {"core": 1}},
    }
    described = log.with_suffix(".json")
    described.write_text(json.dumps(machine))
    with contextlib.redirect_stdout(sys.stderr):
        simulator = Simulator(
            str(log),
            str(described),
            EASYBackfilling(FirstFit()),
            LOG_LEVEL="WARNING",
            RESULTS_FOLDER_PATH=str(log.parent),
        )
        begun = time.perf_counter()
        simulator.start_simulation()
        seconds = time.perf_counter() - begun
    waits = simulator.mapper.wtimes
    print(json.dumps({"jobs": len(waits), "mean_wait_s": sum(waits) / len(waits), "seconds": seconds}))


if __name__ == "__main__":
    main()
