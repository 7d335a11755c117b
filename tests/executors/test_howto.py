import importlib.util
import re
from pathlib import Path

import pytest

from asa.core.ports import RunContext
from asa.testing import tasks
from asa.testing.executors import PATIENCE_S, Bench

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "write-an-executor.md"


def test_the_example_runs_tasks(context: RunContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", HOWTO.read_text(), re.DOTALL)
    (tmp_path / "serial.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spec = importlib.util.spec_from_file_location("serial", tmp_path / "serial.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with Bench(module.serial, context) as bench:
        driver, program = bench.driver(), bench.node()
        driver.launch(tasks.echo, [(number,) for number in range(10)])
        driver.launch(tasks.fail, [("as it should",)], stage="failing")
        assert driver.values(10) == list(range(10))
        assert driver.failure("failing").error == "ValueError: as it should"
        driver.executor.release("a")
        assert program.wait(PATIENCE_S) == 0
