import pytest


def test_the_same_arguments_give_the_same_bytes(blast, tmp_path):
    for folder, seed in (("one", 1), ("two", 1), ("other", 2)):
        blast.make_data.make_data(tmp_path / folder, 3, 20, seed)
    for name in ("database.fa", "query.fa", "truth.json"):
        one, two, other = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two", "other"))
        assert one == two != other


def test_queries_are_where_the_truth_says(blast, tmp_path):
    truth = blast.make_data.make_data(tmp_path, 5, 200)
    database, queries = (dict(blast.fasta.read(tmp_path / name)) for name in ("database.fa", "query.fa"))
    assert truth == blast.make_data.read_truth(tmp_path / "truth.json")
    assert list(queries) == list(truth)
    for name, origin in truth.items():
        if origin is None:
            assert not any(queries[name] in bases for bases in database.values())
            continue
        piece = database[origin.source][origin.start - 1 : origin.end]
        if origin.reverse:
            piece = piece[::-1].translate(str.maketrans("ACGT", "TGCA"))
        assert len(piece) == len(queries[name])
        assert sum(mine != other for mine, other in zip(queries[name], piece, strict=True)) == origin.changed
    origins = [origin for origin in truth.values() if origin is not None]
    assert 0 < len(truth) - len(origins) < 30
    assert {origin.reverse for origin in origins} == {False, True}
    assert 10 < max(origin.changed for origin in origins) < 30


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0)])
def test_numbers_that_are_too_small(blast, tmp_path, numbers):
    with pytest.raises(ValueError, match="at least 1 sequence and 1 query"):
        blast.make_data.make_data(tmp_path, *numbers)


def test_command_line(run_script, tmp_path):
    done = run_script("blast/make_data.py", "--sequences", 2, "--queries", 10, "--out", "made")
    assert done.stdout.startswith("2 sequences and 10 queries, ")
    assert (tmp_path / "made" / "truth.json").exists()
    assert "at least 1 sequence" in run_script("blast/make_data.py", "--queries", 0, "--out", "made").stderr
