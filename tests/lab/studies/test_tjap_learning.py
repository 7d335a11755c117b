from __future__ import annotations

import json

import pytest

from asa.cli.main import main
from asa.core.errors import UnknownName
from asa.lab.studies.tjap_learning import CurveRow, above, learning, tjap_4

ROWS = [
    CurveRow(steps, steps / 10, cost, 100.0, name)
    for name, costs in (("cnn-3", (120, 110, 105)), ("fcn-1", (125, 120, 115)))
    for steps, cost in zip((10, 20, 30), costs, strict=True)
]


def test_its_table_has_a_line_for_each_network_in_the_paper_s_order() -> None:
    fcn, cnn = learning(ROWS).table()
    assert (fcn["network"], fcn["parameters"], fcn["actions"]) == ("fcn-1", 36_324, 30)
    assert (cnn["network"], cnn["parameters"], cnn["time [s]"]) == ("cnn-3", 117_372, 3.0)
    assert cnn["above exact insertion, first [%]"] == pytest.approx(20.0)
    assert cnn["last [%]"] == pytest.approx((20 + 10 + 5) / 3)


def test_above_is_the_mean_of_what_is_above() -> None:
    assert above(ROWS[:2]) == pytest.approx(15.0)


def test_rows_come_back_from_their_file_and_are_drawn(tmp_path, capsys) -> None:
    kept, picture = tmp_path / "rows.json", tmp_path / "curves.svg"
    kept.write_text(json.dumps(learning(ROWS).to_json()))
    assert main(["figure", "tjap-4", "--from", str(kept), "--output", str(picture)]) == 0
    assert "cnn-3" in capsys.readouterr().out and "fcn-1" in picture.read_text()
    assert main(["figure", "tjap-4", "--from", str(kept), "--steps", "5"]) == 1
    assert "--from shows what was measured" in capsys.readouterr().err


def test_an_unknown_network() -> None:
    with pytest.raises(UnknownName, match="fcn-1, fcn-2"):
        tjap_4(networks=["fcn-9"])


@pytest.mark.slow
def test_networks_learn_from_the_same_number_of_actions(capsys) -> None:
    assert main(["figure", "tjap-4", "--network", "fcn-1", "--network", "cnn-1", "--steps", "5000", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["network"], row["steps"]) for row in rows] == [
        (name, steps) for name in ("fcn-1", "cnn-1") for steps in (4096, 8192)
    ]
    assert all(row["cost"] >= row["exact"] > 0 for row in rows)
