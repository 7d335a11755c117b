"""Runs as scripts, event loops and notebooks see them: progress, interrupts, `await`, pictures."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asa
from asa.core.event import RunEnded, TaskDone
from asa.report.notebook import DRAWN_MOST, graph_svg
from tests.waiting import until

SCRIPT = """
import sys, time
from pathlib import Path
import asa

@asa.stage
def first(x):
    with open("ran", "a") as file:
        file.write("first\\n")
    return x + 1

@asa.stage
def last(x):
    with open("ran", "a") as file:
        file.write("last\\n")
    while Path("wait").exists():
        time.sleep(0.05)
    return 10 * x

workflow = last(first(1))
if __name__ == "__main__":
    print(HERE)
"""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(Path(asa.__file__).parents[1]))


def started(folder: Path, last_line: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    (folder / "script.py").write_text(SCRIPT.replace("HERE", last_line))
    return subprocess.Popen(
        [sys.executable, "script.py"], cwd=folder, stdout=subprocess.PIPE, stderr=stderr, stdin=subprocess.DEVNULL
    )


# Progress.


@pytest.mark.parametrize(("options", "bars"), [("", True), (", progress=False", False)])
def test_a_script_shows_progress_on_a_terminal(tmp_path: Path, options: str, bars: bool) -> None:
    ours, theirs = pty.openpty()
    script = started(tmp_path, f"asa.run(workflow{options}).result()", theirs)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 4096):
            seen += piece
    except OSError:  # the terminal is closed
        pass
    assert script.stdout is not None and script.stdout.read() == b"20\n" and script.wait(60) == 0
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", seen.decode())
    if bars:
        assert re.search(r"first .*1/1", text) and re.search(r"last-[0-9a-f]{6}: succeeded", text)
    else:
        assert text == ""


@pytest.mark.parametrize(("options", "lines"), [("", False), (", progress=True", True)])
def test_elsewhere_it_shows_none_unless_it_is_to(tmp_path: Path, options: str, lines: bool) -> None:
    out, err = started(tmp_path, f"asa.run(workflow{options}).result()").communicate(timeout=60)
    assert out == b"20\n"
    assert ("stage last: done" in err.decode()) is lines and (lines or err == b"")


# Interrupts.


@pytest.mark.parametrize("how", ["asa.run(workflow).result()", "asa.submit(workflow).result()"])
def test_an_interrupted_script_says_how_to_go_on_and_loses_nothing(tmp_path: Path, how: str) -> None:
    (tmp_path / "wait").touch()
    script = started(tmp_path, how)
    until(lambda: "last" in (tmp_path / "ran").read_text() if (tmp_path / "ran").exists() else False, 60)
    script.send_signal(signal.SIGINT)
    out, err = script.communicate(timeout=60)
    found = re.search(
        rb"KeyboardInterrupt: run (last-[0-9a-f]{6}) has been cancelled; nothing that is done is lost: "
        rb"`asa resume (\S+)` runs only what is not done\s*$",
        err,
    )
    assert found and found[1] == found[2] and out == b"" and script.returncode != 0, err.decode()
    (tmp_path / "wait").unlink()
    code = f"import asa; print(asa.resume({found[1].decode()!r}).result())"
    again = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    assert again.stdout == b"20\n"
    assert (tmp_path / "ran").read_text().split() == ["first", "last", "last"]


# Event loops.


@asa.stage
def slept(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_a_run_can_be_awaited_and_goes_on_when_that_is_cancelled() -> None:
    async def main() -> None:
        run = asa.submit(slept.map([0.5, 0.6]))
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(run, 0.1)
        assert not run.decided.is_set()
        assert await asyncio.gather(run, run) == [[0.5, 0.6]] * 2
        assert ticks > 10  # the loop was free
        ticking.cancel()
        failing = asa.submit(slept("x"))
        with pytest.raises(asa.RunFailed):
            await failing

    asyncio.run(main())


def test_events_come_as_they_happen_and_end_with_the_run() -> None:
    async def main() -> list[tuple[Any, bool]]:
        run = asa.submit(slept.map([0.1, 1.0]), backend="local:cores=2")
        return [(event, run.decided.is_set()) async for event in run]

    found = asyncio.run(main())
    event, over = next(item for item in found if isinstance(item[0], TaskDone))
    assert event.index == 0 and not over, "it is seen while the other runs"
    assert any(isinstance(event, RunEnded) for event, _ in found)

    async def left() -> Any:
        run = asa.submit(slept(0.3))
        async for _ in run:
            break
        return await run

    assert asyncio.run(left()) == 0.3


# Pictures.

EVIL = '<img src=x onerror="alert(1)">&'


class Tags(HTMLParser):
    """Which elements and attributes there are, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"


def test_names_of_stages_are_escaped_wherever_they_are_shown(tmp_path: Path) -> None:
    evil = slept.options(name=EVIL)
    run = asa.run(evil.map([0.0, 0.0]), name="evil", check=False)
    run.wait()
    for shown in (evil(1.0), asa.make_graph(evil.map([1.0])), run, run.summary):
        html = shown._repr_html_()
        assert html
        found = Tags(html)
        assert found.tags <= {"svg", "g", "title", "rect", "path", "text", "tspan", "div", "table", "tbody", "thead",
                              "tr", "td", "th", "b"}  # fmt: skip
        assert not any(name.startswith("on") or name in ("src", "href") for name in found.names)
        assert EVIL in found.text or EVIL[:10] in found.text
        dark_or_light = r"(?<![-\w])(color|fill|stroke)[:=]\"?(black|white|#000|#fff)"
        assert not re.search(dark_or_light, html), "it is read on light and on dark"


def test_a_picture_shows_what_waits_for_what() -> None:
    first = slept.map([1.0, 2.0])
    graph = asa.make_graph(slept.options(name="end", cores=4)(first).after(slept.options(name="other")(1.0)))
    found = Tags(graph._repr_html_() or "")
    assert {"slept", "end", "other"} <= set(re.findall(r"\w+", found.text)) and "2 × 1 core" in found.text
    assert (graph._repr_html_() or "").count("<path") == 2
    assert asa.make_graph(slept.map([1.0]))._repr_html_() and first._repr_html_()


@st.composite
def dags(draw: st.DrawFn) -> tuple[dict[int, tuple[str, bool]], list[tuple[int, int]]]:
    count = draw(st.integers(1, 12))
    pairs = [(first, second) for second in range(count) for first in range(second)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    return {number: (f"s{number}", draw(st.booleans())) for number in range(count)}, edges


@given(dags())
def test_no_edge_runs_behind_a_stage(dag: tuple[dict[int, tuple[str, bool]], list[tuple[int, int]]]) -> None:
    nodes, edges = dag
    svg = graph_svg(nodes, edges)
    assert svg is not None and svg.count("<path") == len(edges) and svg.count("<g>") == len(nodes)
    frames = re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', svg)
    boxes = {tuple(map(int, each)) for each in frames}
    for path in re.findall(r'<path d="M([^"]*)"', svg):
        parts = [list(map(float, part.split())) for part in re.split("[A-Z]", path)]
        x, y = parts[0]
        for part in parts[1:]:
            left, above, (x, y) = x, y, (part[-2], part[-1]) if len(part) > 1 else (part[0], y)
            for box in boxes:
                inside = box[0] < (left + x) / 2 < box[0] + box[2] and box[1] < y < box[1] + box[3]
                assert not (left < x and above == y and inside), "a straight part crosses a box"
            assert x >= left


def test_what_cannot_be_drawn_is_not() -> None:
    assert graph_svg({1: ("a", False), 2: ("b", False)}, [(1, 2), (2, 1)]) is None
    many = dict.fromkeys(range(DRAWN_MOST + 1), ("a", False))
    assert graph_svg(many, []) is None
    assert slept.map([1.0])._repr_html_()


# Notebooks.


@contextmanager
def kernel() -> Iterator[Any]:
    """A client of a kernel of its own, spoken to through sockets in a folder."""
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    from jupyter_client.manager import KernelManager

    with tempfile.TemporaryDirectory(prefix="nb-") as folder:  # sockets have short names
        manager = KernelManager(transport="ipc", ip=f"{folder}/kernel")
        manager.start_kernel(cwd=folder, env={**os.environ, "IPYTHONDIR": folder})
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            yield manager, client
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def soon(call: Any) -> None:
    time.sleep(0.5)
    call()


def told(client: Any, code: str, interrupt: Any = None) -> list[dict[str, Any]]:
    """What a cell shows, message by message; `interrupt` is called once something is shown."""
    sent = client.execute(code)
    found = []
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") != sent:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            client.get_shell_msg(timeout=60)
            return found
        if kind not in ("status", "execute_input"):
            found.append({"kind": kind, **content})
            if interrupt is not None:
                interrupt = interrupt()


CELL = """
import asa, time
@asa.stage
def slept(seconds):
    time.sleep(seconds)
    return seconds
"""

COMPLETED = {"asa.run(w, str": "strategy=", "asa.stage(wall": "walltime=", "asa.submit(w, ba": "backend="}


@pytest.mark.slow
def test_a_notebook_shows_progress_and_is_interrupted() -> None:
    with kernel() as (manager, client):
        assert told(client, CELL) == []
        for code, option in COMPLETED.items():
            found = client.complete(code, len(code), reply=True, timeout=60)
            assert option in found["content"]["matches"]
        shown = told(client, "asa.run(slept.map([.1, 1.5])).result()")
        first, *updates, result = shown
        assert first["kind"] == "display_data" and "<table" in first["data"]["text/html"]
        assert {each["kind"] for each in updates} == {"update_display_data"} and len(updates) >= 2
        assert {each["transient"]["display_id"] for each in shown[:-1]} == {first["transient"]["display_id"]}
        assert "succeeded" in updates[-1]["data"]["text/plain"] and "width:100%" in updates[-1]["data"]["text/html"]
        assert result["data"]["text/plain"] == "[0.1, 1.5]"
        (answer,) = told(client, "asa.run(slept(0.1), progress=False).result()")
        assert answer["kind"] == "execute_result"

        *_, error = told(client, "asa.run(slept(60.0), name='long')", manager.interrupt_kernel)
        assert error["ename"] == "KeyboardInterrupt"
        assert re.match(r"run (long-\w{6}) has been cancelled; .*: `asa resume \1` runs only", error["evalue"])

        told(client, "run = asa.submit(slept(3.0), name='left')")
        *_, error = told(client, "print(1, flush=True); run.result()", lambda: soon(manager.interrupt_kernel))
        assert re.match(r"run left-\w{6} goes on: result\(\) waits for it again", error["evalue"])
        (answer,) = told(client, "await run")
        assert answer["data"]["text/plain"] == "3.0"
        (answer,) = told(client, "run")
        assert "<table" in answer["data"]["text/html"] and "succeeded" in answer["data"]["text/plain"]
