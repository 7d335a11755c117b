import pytest


@pytest.fixture(scope="session")
def example(load_example):
    return load_example("statistics", "power", "stages", "make_data", "check", "workflow")


@pytest.fixture
def write(example, tmp_path):
    """Call it to write rows of values, the same in all columns or one for each, in the format of the data."""

    def write(rows, end="\n"):
        lines = [example.power.HEAD]
        for number, row in enumerate(rows):
            fields = row if isinstance(row, list) else [row] * len(example.power.COLUMNS)
            lines.append(";".join(["16/12/2006", f"00:00:{number:02d}", *(str(field) for field in fields)]))
        path = tmp_path / "power.txt"
        path.write_bytes((end.join(lines) + end).encode())
        return path

    return write
