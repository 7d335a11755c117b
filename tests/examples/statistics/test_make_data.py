import numpy as np
import pytest


def test_the_same_arguments_give_the_same_bytes_and_fewer_minutes_the_beginning(example, tmp_path):
    texts = {}
    for name, minutes, seed in (("one", 3000, 1), ("two", 3000, 1), ("fewer", 2000, 1), ("other", 3000, 2)):
        example.make_data.make_data(tmp_path / name, minutes, seed)
        texts[name] = (tmp_path / name).read_text()
    assert texts["one"] == texts["two"] != texts["other"]
    assert texts["one"].startswith(texts["fewer"])
    assert texts["one"].count("\n") == 3001


def test_the_beginning_looks_like_the_original(example, tmp_path):
    example.make_data.make_data(tmp_path / "power.txt", 1000)
    head, first, *_, last = (tmp_path / "power.txt").read_text().splitlines()
    assert head == example.power.HEAD
    assert first.startswith("16/12/2006;17:24:00;")
    assert last.startswith("17/12/2006;10:03:00;")
    assert all(len(field.split(".")[1]) == 3 for field in first.split(";")[2:])


def test_a_plausible_household(example, tmp_path):
    example.make_data.make_data(tmp_path / "power.txt", 60 * 1440)
    values = example.power.read(tmp_path / "power.txt")
    missing = np.isnan(values)
    assert 0.005 < missing.mean() < 0.02
    assert (missing.all(axis=1) == missing.any(axis=1)).all()
    active, reactive, voltage, intensity, *meters = values[~missing.any(axis=1)].T
    assert active.min() > 0 and active.max() < 12
    assert reactive.min() >= 0
    assert voltage.min() > 225 and voltage.max() < 255
    np.testing.assert_allclose(intensity, 1000 * active / voltage, atol=0.11)
    assert (1000 * active / 60 > sum(meters) - 0.02).all()  # the meters count a part of it [Wh a minute]
    assert all(len(np.unique(meter)) > 2 for meter in meters)


def test_too_few_minutes(example, tmp_path):
    with pytest.raises(ValueError, match="minutes must be at least 1, not 0"):
        example.make_data.make_data(tmp_path / "power.txt", 0)


def test_command_line(run_script, tmp_path):
    assert run_script("statistics/make_data.py", "--minutes", 5, "--out", "new/power.txt").stdout == (
        "5 minutes in new/power.txt\n"
    )
    assert len((tmp_path / "new" / "power.txt").read_text().splitlines()) == 6
    assert "at least 1" in run_script("statistics/make_data.py", "--minutes", 0, "--out", "power.txt").stderr
