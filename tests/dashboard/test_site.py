"""The page's files and its server, from outside: who is let in, and what is answered."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import http.client
import json
import random
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
import requests

import asa.dashboard
from asa.core.errors import InvalidInput, RunNotFound, StateError
from asa.core.event import RunEnded, RunState, StageExpanded
from asa.dashboard import site as watching
from asa.dashboard.feed import LETTERS_MOST, TAIL_MOST, TAILS_MOST, Feed, RunModel, View
from asa.dashboard.site import BARS_MOST, BEHIND_MOST, POLICY, SESSIONS_MOST, Dashboard, Viewer, Watch, files, take
from asa.log.events import EventLog
from asa.log.output import HEAD, OutputReader, begun, ended, first_line
from asa.log.rundir import RunDirectory
from asa.security.ca import certificates
from asa.web.errors import HTTPError
from tests.dashboard.test_models import Growing
from tests.mutation import answers_to_damaged, garbled, http_request
from tests.runlogs import run_begins, stage_spec
from tests.waiting import until

RUN = "/api/runs/montage-3fa1"


def enter(dashboard: Dashboard, link: str = "") -> requests.Session:
    url, _, code = (link or dashboard.link).partition("/#")
    session = requests.Session()
    answer = session.post(f"{url}/api/session", json={"code": code}, timeout=10)
    assert answer.status_code == 200, answer.text
    session.headers["Authorization"] = f"Bearer {answer.json()['token']}"
    return session


def get(session: requests.Session, dashboard: Dashboard, path: str) -> requests.Response:
    return session.get(dashboard.address.url + path, timeout=30)


def records(answer: requests.Response) -> Any:
    return (json.loads(line) for line in answer.iter_lines(chunk_size=1) if line)


def test_strangers_see_the_page_and_nothing_of_a_run(dashboard: Dashboard) -> None:
    page = requests.get(dashboard.address.url, timeout=10)
    assert page.status_code == 200
    assert "montage" not in page.text
    for path in ("/api/list", f"{RUN}/stream", f"{RUN}/at?t=0", f"{RUN}/beliefs", f"{RUN}/containers", f"{RUN}/output",
                 f"{RUN}/tasks", f"{RUN}/task?stage=mAdd&index=0"):  # fmt: skip
        for headers in (
            {},
            {"Authorization": "Bearer "},
            {"Authorization": "Bearer x"},
            {"Authorization": "Basic eDp5"},
        ):
            answer = requests.get(dashboard.address.url + path, headers=headers, timeout=10)
            assert answer.status_code == 401
            assert "montage" not in answer.text
            assert "WWW-Authenticate" not in answer.headers


def test_every_answer_forbids_what_is_not_ours(dashboard: Dashboard) -> None:
    for path in ("/", "/page/main.js", "/nothing", "/api/list"):
        headers = requests.get(dashboard.address.url + path, timeout=10).headers
        assert headers["Content-Security-Policy"] == POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Set-Cookie" not in headers


def test_a_link_opens_one_page(dashboard: Dashboard) -> None:
    first = dashboard.address.file.read_text().strip()
    assert first == dashboard.link
    session = enter(dashboard, first)
    assert get(session, dashboard, "/api/list").json()["rows"][0]["name"] == "montage-3fa1"
    code = first.partition("#")[2]
    again = requests.post(f"{dashboard.address.url}/api/session", json={"code": code}, timeout=10)
    assert again.status_code == 403
    assert enter(dashboard, dashboard.address.file.read_text().strip()) is not None


PATHS = (
    "/", "/page/main.js", "/api/session", "/api/list", f"{RUN}/stream", f"{RUN}/at?t=1e3", f"{RUN}/beliefs",
    f"{RUN}/containers", f"{RUN}/output?stage=m&index=5&failed=1", "/api/queues/q/at?t=5",
    f"{RUN}/tasks?text=m&first=5&t=1", f"{RUN}/task?stage=mAdd&index=0",
)  # fmt: skip
BODIES = (b'{"code": "abcdefgh"}', b'{"code": {"code": [1.5e300, null, "\\ud800"]}}', b"")


@pytest.mark.parametrize("count", [300, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_damaged_requests_are_answered_or_refused(
    dashboard: Dashboard, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No error of ours, no hang, and no more memory than before; as many as a minute allows."""
    session, rng, until_s = enter(dashboard), random.Random(count), time.monotonic() + 60.0
    token, url = str(session.headers["Authorization"]), dashboard.address.url

    def make() -> bytes:
        path, method = rng.choice(PATHS), rng.choice(("GET", "GET", "POST", "HEAD"))
        if rng.random() < 0.5:
            path = "/" + quote(garbled(path, rng)[:4000], safe="/?=&%")
        return http_request(url, method, path, rng.choice(BODIES), Authorization=token, Accept_Encoding="gzip")

    answers_to_damaged(url, make, rng, min(count, 300), until_s)
    before = psutil.Process().memory_info().rss
    found = answers_to_damaged(url, make, rng, count, until_s)
    assert {200, 400, 404} <= found.keys(), found
    assert not [record for record in caplog.records if record.exc_info and record.name.startswith("asa")], caplog.text
    assert psutil.Process().memory_info().rss < before + (50 << 20)
    assert get(session, dashboard, "/api/list").status_code == 200


def test_the_link_is_for_its_owner_and_as_long_as_the_dashboard(dashboard: Dashboard) -> None:
    file = dashboard.address.file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    dashboard.close()
    assert not file.exists()


def test_guessing_is_slowed_down(dashboard: Dashboard) -> None:
    def guess() -> int:
        return requests.post(f"{dashboard.address.url}/api/session", json={"code": "x"}, timeout=10).status_code

    assert [guess() for _ in range(11)].count(403) == 10
    assert guess() == 429
    assert enter(dashboard) is not None  # who has the code comes in nevertheless


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"nonsense", b"\xff\xfe", b"[" * 180])
def test_what_is_no_code_is_refused(dashboard: Dashboard, body: bytes) -> None:
    answer = requests.post(f"{dashboard.address.url}/api/session", data=body, timeout=10)
    assert answer.status_code == 400


def test_no_long_body_is_read(dashboard: Dashboard) -> None:
    answer = requests.post(f"{dashboard.address.url}/api/session", data=b"x" * 10_000, timeout=10)
    assert answer.status_code == 413


def test_old_pages_make_room(dashboard: Dashboard) -> None:
    first = enter(dashboard)
    for _ in range(SESSIONS_MOST):
        last = enter(dashboard)
    assert get(first, dashboard, "/api/list").status_code == 401
    assert get(last, dashboard, "/api/list").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": "localhost:9"}, 200),  # through a tunnel
    ],
)
def test_pages_of_others_are_not_answered(dashboard: Dashboard, headers: dict[str, str], status: int) -> None:
    connection = http.client.HTTPConnection(dashboard.address.host, dashboard.address.port, timeout=10)
    connection.putrequest("GET", "/", skip_host=True)
    for name, value in ({"Host": "127.0.0.1"} | headers).items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()


@pytest.mark.parametrize(
    "path", ["/page/../service.py", "/page/%2e%2e/service.py", "/page/", "/page/__init__.py", "/etc/passwd"]
)
def test_only_the_pages_own_files_are_served(dashboard: Dashboard, path: str) -> None:
    connection = http.client.HTTPConnection(dashboard.address.host, dashboard.address.port, timeout=10)
    connection.request("GET", path)
    assert connection.getresponse().status == 404
    connection.close()


@pytest.mark.parametrize(("method", "path"), [("POST", "/"), ("GET", "/api/session"), ("DELETE", "/page/main.js")])
def test_methods_are_as_meant(dashboard: Dashboard, method: str, path: str) -> None:
    assert requests.request(method, dashboard.address.url + path, timeout=10).status_code == 405


def test_files_come_squeezed_or_not(dashboard: Dashboard) -> None:
    url = f"{dashboard.address.url}/page/main.js"
    plain = requests.get(url, headers={"Accept-Encoding": "identity"}, timeout=10)
    squeezed = requests.get(url, headers={"Accept-Encoding": "gzip"}, timeout=10, stream=True)
    assert gzip.decompress(squeezed.raw.read(decode_content=False)) == plain.content


def test_a_stream_begins_with_the_whole(dashboard: Dashboard) -> None:
    session = enter(dashboard)
    with session.get(f"{dashboard.address.url}{RUN}/stream", stream=True, timeout=30) as answer:
        first = next(records(answer))
    assert set(first["change"]) >= {"run", "stages", "jobs", "waits", "why", "names"}
    assert first["change"]["run"]["put"]["run"] == "montage-3fa1"
    assert not first["live"]
    assert first["from"] < first["to"] == first["now"]
    assert len(first["bars"]) == sum(row["done"] for row in first["change"]["stages"]["put"].values()) + 3 + 16


def test_new_events_are_streamed(dashboard: Dashboard, state: Path) -> None:
    session = enter(dashboard)
    with session.get(f"{dashboard.address.url}{RUN}/stream", stream=True, timeout=30) as answer:
        told = records(answer)
        first = next(told)
        with EventLog(RunDirectory.open(state, "montage-3fa1").events) as log:
            log.append([RunEnded(first["to"] + 1, RunState.CANCELLED, "<script>alert(1)</script>")])
        change = next(told)
    assert change["change"]["run"]["put"]["message"] == "<script>alert(1)</script>"
    assert "stages" not in change["change"]
    assert change["bars"] == []
    assert change["to"] == first["to"] + 1


def test_the_page_of_another_time(dashboard: Dashboard, state: Path) -> None:
    session = enter(dashboard)
    RunDirectory.create(state, "other")
    assert get(session, dashboard, "/api/runs/other/at?t=0").status_code == 409  # nobody looks
    with session.get(f"{dashboard.address.url}{RUN}/stream", stream=True, timeout=30) as answer:
        first = next(records(answer))
        half = get(session, dashboard, f"{RUN}/at?t={(first['from'] + first['to']) / 2}").json()
        begin = get(session, dashboard, f"{RUN}/at?t={first['from'] - 1}").json()
        whole = get(session, dashboard, f"{RUN}/at?t={first['to']}").json()
        for wrong in ("", "?t=x", "?t=nan", "?t=inf"):
            assert get(session, dashboard, f"{RUN}/at{wrong}").status_code == 400
    assert begin == {"document": {}, "bars": 0, "now": first["from"] - 1}
    assert 0 < half["bars"] < whole["bars"] == len(first["bars"])
    assert half["document"]["run"]["state"] == "running"
    assert whole["document"]["stages"] == first["change"]["stages"]["put"]


@pytest.mark.parametrize("path", ["/api/runs/nothing/stream", "/api/queues/nothing/stream", "/api/runs/montage/stream"])
def test_unknown_runs_and_queues_are_404(dashboard: Dashboard, path: str) -> None:
    assert get(enter(dashboard), dashboard, path).status_code == 404


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/runs", "/api/other/x/stream/y"])
def test_other_paths_are_not_there(dashboard: Dashboard, path: str) -> None:
    assert get(enter(dashboard), dashboard, path).status_code == 404


def test_a_damaged_log_is_503(dashboard: Dashboard, state: Path) -> None:
    file = RunDirectory.create(state, "broken").events
    file.write_bytes(b"no database, certainly" * 100)
    file.chmod(0o600)
    answer = get(enter(dashboard), dashboard, "/api/runs/broken/stream")
    assert answer.status_code == 503
    assert "damaged" in answer.text
    rows = get(enter(dashboard), dashboard, "/api/list").json()["rows"]
    assert {row["name"]: row["state"] == "damaged" for row in rows} == {"broken": True, "montage-3fa1": False}


def test_a_log_that_makes_no_sense_ends_the_stream_with_an_error(dashboard: Dashboard, state: Path) -> None:
    begins = run_begins(stage_spec("a", 1, 1))
    with EventLog(RunDirectory.create(state, "odd").events) as log:
        log.append([*begins, StageExpanded(1.0, "there is no such stage", 3)])
    session = enter(dashboard)
    with session.get(f"{dashboard.address.url}/api/runs/odd/stream", stream=True, timeout=30) as answer:
        assert [set(record) for record in records(answer)] == [{"error"}]


def test_beliefs_and_containers_are_there_where_there_are_any(dashboard: Dashboard) -> None:
    session = enter(dashboard)
    assert get(session, dashboard, f"{RUN}/beliefs").json() == {"rows": []}
    assert get(session, dashboard, f"{RUN}/containers").json()["rows"] is None


def test_the_last_lines_of_output_are_sent(dashboard: Dashboard, state: Path) -> None:
    path, session = f"{RUN}/output", enter(dashboard)
    assert get(session, dashboard, path).json() == {"rows": []}
    folder = state / "runs" / "montage-3fa1" / "output"
    folder.mkdir()
    head, text = first_line("n1", "a"), folder / "w.out"
    text.write_text(" " * (HEAD - 1) + "\n" + "first\n" + "x" * 3000 + "\nsecond")
    place = HEAD + len("first\n") + 3001
    index = [
        head,
        begun(1.0, HEAD, 0, 1, "m"),
        ended(1.0, HEAD, place - HEAD, 0, "returned", "m"),
        begun(2.0, place, 1, 1, "m"),
    ]
    (folder / "w.index").write_text("".join(index))
    shown = [["m[0]", "first", False], ["m[0]", "x" * LETTERS_MOST, False]]
    assert get(session, dashboard, path).json()["rows"] == shown  # of what runs, whole lines
    with text.open("a") as file:
        file.write(" line\n" + "more\n" * TAIL_MOST)
    assert get(session, dashboard, f"{path}?stage=m&index=0").json()["rows"] == shown
    last = get(session, dashboard, path).json()["rows"]
    assert (
        last
        == get(session, dashboard, f"{path}?stage=m&index=1").json()["rows"]
        == [["m[1]", "more", False]] * TAIL_MOST
    )
    assert get(session, dashboard, f"{path}?stage=other").json() == {"rows": []}
    assert get(session, dashboard, f"{path}?failed=1").json() == {"rows": []}
    for wrong in ("x", "-1", "9" * 30, ""):
        assert get(session, dashboard, f"{path}?index={wrong}").status_code == 400


def test_of_long_output_only_the_end_is_read(state: Path) -> None:
    folder = state / "output"
    folder.mkdir()
    (folder / "w.index").write_text(first_line("n1", "a") + begun(1.0, HEAD, 0, 1, "m"))
    with (folder / "w.out").open("w") as file:
        file.seek(1 << 34)
        file.write("\n" + "line\n" * 10)
    reader, before = OutputReader(state), time.process_time()
    assert [line.text for line in reader.newest([], 5)] == ["line"] * 5
    assert reader.newest([], 5) == []
    assert time.process_time() - before < 5.0  # 16 GiB take longer


def test_output_of_many_selections_is_not_kept(dashboard: Dashboard) -> None:
    session = enter(dashboard)
    for index in range(2 * TAILS_MOST):
        assert get(session, dashboard, f"{RUN}/output?index={index}").status_code == 200


def test_a_log_without_viewers_is_closed(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asa.dashboard.site.ALONE_MOST", 1)
    session = enter(dashboard)
    with session.get(f"{dashboard.address.url}{RUN}/stream", stream=True, timeout=30) as answer:
        next(records(answer))
    session.close()
    again = enter(dashboard)
    until(lambda: get(again, dashboard, f"{RUN}/at?t=0").status_code == 409, "the log to be closed", within_s=30)


def test_tls_is_spoken_with_a_certificate(state: Path, tmp_path: Path) -> None:
    made = certificates("dashboard", 1_800_000_000.0)
    certificate = tmp_path / "mine.pem"
    certificate.touch(0o600)
    certificate.write_bytes(made["driver.pem"])
    with Dashboard(state, certificate=certificate) as secured:
        assert secured.address.scheme == "https"
        assert secured.link.startswith("https://127.0.0.1:")
        with pytest.warns(Warning, match="Unverified"):
            assert requests.get(secured.address.url, verify=False, timeout=10).status_code == 200
        with pytest.raises(requests.ConnectionError):
            requests.get(secured.address.url.replace("https", "http"), timeout=10)


def test_other_machines_need_tls(state: Path) -> None:
    with pytest.raises(InvalidInput, match="loopback only"):
        Dashboard(state, host="0.0.0.0")


def test_a_certificate_that_others_can_read_is_refused(state: Path, tmp_path: Path) -> None:
    certificate = tmp_path / "mine.pem"
    certificate.write_bytes(b"")
    certificate.chmod(0o644)
    with pytest.raises(StateError, match="open to other users"):
        Dashboard(state, certificate=certificate)
    certificate.chmod(0o600)
    with pytest.raises(StateError, match="cannot be used"):
        Dashboard(state, certificate=certificate)


def test_a_run_that_is_not_there(state: Path) -> None:
    with pytest.raises(RunNotFound):
        Dashboard(state, "other")


def test_the_address_is_known_once_it_listens(state: Path) -> None:
    with pytest.raises(StateError, match="start it first"):
        _ = Dashboard(state).address
    with Dashboard(state) as first, pytest.raises(StateError, match="cannot listen"):
        Dashboard(state, port=first.address.port).start()


class Reader:
    """A stream that keeps what is put."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.waiting, self.beats, self.ended = 0, 0, False

    def put(self, record: bytes) -> None:
        if record.strip():
            self.records.append(json.loads(record))
        else:
            self.beats += 1

    def end(self) -> None:
        self.ended = True


class Many:
    """A feed that has so many bars."""

    span = (0.0, 9.0)

    def __init__(self, count: int) -> None:
        self.count = count

    def bars(self, first: int, last: int) -> list[list[float]]:
        return [[number] for number in range(first, min(last, self.count))]


def viewer(reader: Reader) -> Viewer:
    return Viewer(reader)  # type: ignore[arg-type]


def test_a_viewer_is_sent_only_what_is_new() -> None:
    reader, log = Reader(), Growing(10)
    feed = Feed(log, RunModel, lambda: 0.0)
    told = viewer(reader)
    feed.advance()
    told.send(feed, feed.look())
    told.send(feed, feed.look())
    assert len(reader.records) == 1
    log.count = 100
    feed.advance()
    told.send(feed, feed.look())
    first, second = reader.records
    assert set(second["change"]["run"]["put"]) < set(first["change"]["run"]["put"])
    assert "names" not in second["change"] or second["bars"]
    assert second["to"] >= first["to"]


def test_many_bars_come_in_several_records() -> None:
    reader, count = Reader(), 2 * BARS_MOST + 7
    told = viewer(reader)
    many: Any = Many(count)
    told.send(many, View({"run": {"run": "x"}}, count, 9.0))
    assert [len(record["bars"]) for record in reader.records] == [0]  # which can be drawn
    while told.more(many):
        pass
    assert [len(record["bars"]) for record in reader.records] == [0, BARS_MOST, BARS_MOST, 7]
    assert ["change" in record for record in reader.records] == [True, False, False, False]
    assert [bar for record in reader.records for (bar,) in record["bars"]] == list(range(count))


def test_a_slow_viewer_is_sent_changes_later() -> None:
    reader = Reader()
    told = viewer(reader)
    reader.waiting = BEHIND_MOST + 1
    told.send(Many(3), View({"run": {"run": "x"}}, 2, 9.0))  # type: ignore[arg-type]
    assert reader.records == []
    reader.waiting = 0
    told.send(Many(3), View({"run": {"run": "y"}}, 3, 9.0))  # type: ignore[arg-type]
    (record,) = reader.records
    assert record["change"] == {"run": {"put": {"run": "y"}}}
    assert record["bars"] == [[0], [1], [2]]


def test_a_failed_stream_ends_with_its_reason() -> None:
    reader = Reader()
    viewer(reader).fail("the disk is gone")
    assert reader.records == [{"error": "the disk is gone"}]
    assert reader.ended


class Broken(Growing):
    """A log that can be read no more once it is to have more events than there are."""

    def read(self, after: int) -> Any:
        if self.count > 1000:
            raise OSError(5, "Input/output error")
        return super().read(after)


async def told(done: Callable[[], object]) -> None:
    while not done():
        await asyncio.sleep(0.001)


def test_a_later_viewer_gets_the_whole_at_once_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.0)
    first, second, log, over = Reader(), Reader(), Broken(10, written=True), list[bool]()

    async def look() -> None:
        watch = Watch(Feed(log, RunModel, lambda: 0.0), lambda: over.append(True))
        watch.add(viewer(first))
        await told(lambda: first.records)
        watch.add(viewer(second))
        assert second.records[0] == first.records[0], "without another look at the log"
        await told(lambda: first.beats and second.beats)
        watch.end()
        assert first.ended and second.ended
        log.count = 2000
        await told(lambda: over)

    asyncio.run(asyncio.wait_for(look(), 30))
    assert first.records[-1] == {"error": "the log cannot be read: [Errno 5] Input/output error"}
    assert log.closed


PAGE = Path(asa.dashboard.__file__).parent / "page"
SCRIPTS = sorted(PAGE.glob("*.js"))
INDEX = (PAGE / "index.html").read_text()


def test_all_files_are_served_and_small() -> None:
    assert set(files()) == {path.name for path in PAGE.iterdir()} - {"dagre.LICENSE.txt"}
    assert sum(path.stat().st_size for path in PAGE.iterdir()) < 300_000  # of the 1 MB that a page may have
    assert sum(map(len, files().values())) < 100_000


def test_the_library_is_the_one_that_was_published() -> None:
    """@dagrejs/dagre 3.1.3, dist/dagre.esm.js: replaced as a whole, never edited."""
    digest = hashlib.sha256((PAGE / "dagre.js").read_bytes()).hexdigest()
    assert digest == "b0ddaf4af1417bec9bd89373a3a3987f081727d6cc6d95fc40dbf85a19bdf3b0"
    assert "Chris Pettitt" in (PAGE / "dagre.LICENSE.txt").read_text()


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    assert not re.search(r"<script(?![^>]*\bsrc=\"/page/)", INDEX)
    assert not re.search(r"<style|\sstyle=|\son\w+=", INDEX)
    for path in PAGE.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|@import", text), path.name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_text_becomes_a_page(path: Path) -> None:
    text = path.read_text()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setTimeout\(\"", text
    )
    assert "localStorage" not in text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_what_a_script_imports_is_there(path: Path) -> None:
    for names, home in re.findall(r"import \{([^}]*)\} from \"\./([\w.]+)\"", path.read_text()):
        exported = set(
            re.findall(r"export (?:const|function|class|let|async function) (\w+)", (PAGE / home).read_text())
        )
        exported |= {name for group in re.findall(r"export const ([A-Z_]+ = .*);", (PAGE / home).read_text())
                     for name in re.findall(r"(\w+) =", group)}  # fmt: skip
        exported |= set(re.findall(r"\bas (\w+)", "".join(re.findall(r"export\{.*\}", (PAGE / home).read_text()))))
        assert {name.split(" as ")[0].strip() for name in names.split(",")} <= exported, home


def test_all_scripts_are_fetched_at_once() -> None:
    assert re.findall(r"modulepreload\" href=\"/page/([\w.]+)\"", INDEX) == [path.name for path in SCRIPTS]


def test_what_scripts_look_for_is_on_the_page() -> None:
    there = set(re.findall(r"\bid=\"([\w-]+)\"", INDEX))
    wanted = {name for path in SCRIPTS for name in re.findall(r"byId\(\"([\w-]+)\"\)", path.read_text())}
    assert wanted <= there


@pytest.mark.parametrize("path", ["/x", "/page/x.js", "/page/index.html/", "page/main.js", ""])
def test_other_files_are_refused(path: str) -> None:
    with pytest.raises(HTTPError):
        take(path, "")


def test_colours_differ_for_all_eyes() -> None:
    """The seven of Okabe and Ito's colours that are neither black nor white."""
    palette = re.findall(r"#[0-9a-f]{6}", (PAGE / "palette.js").read_text())
    assert sorted(palette) == sorted(["#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"])
