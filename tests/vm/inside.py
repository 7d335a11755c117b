"""Run the suite of `tests/executors/cgroup/conformance.py` without pytest, which would take long to load here.

python inside.py MEANS [PART OF A TEST'S NAME ...]
"""

from __future__ import annotations

import importlib.util
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    sys.path.insert(0, str(ROOT))
    spec = importlib.util.spec_from_file_location("conformance", ROOT / "tests/executors/cgroup/conformance.py")
    assert spec and spec.loader
    conformance = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conformance)
    suite: Any = type("Suite", (conformance.Conformance,), {"only": sys.argv[1]})
    passed = failed = 0
    for name in vars(conformance.Conformance):
        if name.startswith("test_") and (not sys.argv[2:] or any(part in name for part in sys.argv[2:])):
            began = time.monotonic()
            bad = _run(suite(), name)
            if bad:  # an emulated processor stands still now and then when its host is busy, and its clock does not
                print(f"once more: {name}", flush=True)
                bad = _run(suite(), name)
            passed, failed = passed + (not bad), failed + bad
            print(f"{'FAILED' if bad else 'ok':7}{time.monotonic() - began:6.1f} s  {name}", flush=True)
    print(f"ASA-RESULT {passed} {failed}", flush=True)
    return int(failed > 0)


def _run(suite: Any, name: str) -> bool:
    """Whether it failed."""
    bad = True
    try:
        suite.setup_method()
        try:
            getattr(suite, name)()
            bad = False
        finally:
            suite.teardown_method()
    except Exception:
        traceback.print_exc()
        return True
    return bad


if __name__ == "__main__":
    sys.exit(main())
