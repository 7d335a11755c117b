"""How soon the first result is there: bare Python, a process pool, dask.distributed, and ASA.

python benchmarks/start.py
"""

from __future__ import annotations

import tempfile

from measure import first_line, python, row, show

ASA = """
import asa
@asa.stage
def hello(name): return f"hello {{name}}"
print(asa.run(hello("world"), state={state!r}, executor={executor!r}).result())
"""
POOL = """
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(2) as pool: print(pool.submit(str.upper, "hello").result())
"""
DASK = """
from distributed import Client, LocalCluster
def hello(name): return f"hello {name}"
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        print(client.submit(hello, "world").result())
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as state, tempfile.NamedTemporaryFile("w", suffix=".py") as dask:
        dask.write(DASK)
        dask.flush()
        show(
            "Time to the first line [s]",
            [
                row("python -c print()", first_line(python("print()"))),
                row("import asa", first_line(python("import asa; print()"))),
                row("process pool, first result", first_line(python(POOL))),
                row("asa, local executor, first result", first_line(python(ASA.format(state=state, executor="local")))),
                row("dask.distributed, first result", first_line([*python("")[:2], dask.name], repeats=4)),
                row(
                    "asa, dask executor, first result",
                    first_line(python(ASA.format(state=state, executor="dask")), repeats=4),
                ),
            ],
        )


if __name__ == "__main__":
    main()
