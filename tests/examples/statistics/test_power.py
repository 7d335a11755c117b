import numpy as np
import pytest

NOTHING = ["?", "?", "?", "?", "?", "?", ""]  # as the original has it


def test_missing_values(example, write):
    values = example.power.read(write([1.5, NOTHING, ["", "", "", 1, "?", 2, 3], 2]))
    nan = np.nan
    expected = [[1.5] * 7, [nan] * 7, [nan, nan, nan, 1, nan, 2, 3], [2] * 7]
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [3.25, NOTHING], ids=["number", "nothing"])
@pytest.mark.parametrize("complete", [True, False])
def test_any_number_of_chunks_has_every_line_once(example, write, end, last, complete):
    path = write([1.0, NOTHING, 22.125, last], end)
    if not complete:
        path.write_bytes(path.read_bytes().removesuffix(end.encode()))
    whole = example.power.read(path)
    assert whole.shape == (4, 7)
    size = path.stat().st_size
    for chunks in (*range(1, 20), size, size + 1):  # with as many chunks as bytes, every line begins a chunk
        parts = [example.power.read(path, chunk, chunks) for chunk in range(chunks)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_file_with_nothing_but_its_head(example, write):
    assert example.power.read(write([])).shape == (0, 7)


def test_another_head_is_refused(example, tmp_path):
    (tmp_path / "other.csv").write_text("datetime,Voltage\n")
    with pytest.raises(ValueError, match=r"other.csv begins with 'datetime,Voltage': expected 'Date;Time;"):
        example.power.read(tmp_path / "other.csv")


@pytest.mark.parametrize("row", [[1, 2, 3], [1, 2, 3, 4, 5, 6, "7 W"]], ids=["short", "text"])
def test_a_bad_line_is_refused_with_its_place(example, write, row):
    path = write([1.0, row])
    with pytest.raises(ValueError, match=r"power.txt, in the bytes 122 to \d+: "):
        example.power.read(path)
