import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 30), min_size=1, max_size=20).filter(any), parts=st.integers(1, 12))
def test_split_keeps_everything_in_order(blast, tmp_path, lengths, parts):
    records = [(f"q{number}", "A" * length) for number, length in enumerate(lengths)]
    blast.fasta.write(tmp_path / "query.fa", records)
    files = blast.stages.split(tmp_path / "query.fa", parts, tmp_path)
    pieces = [list(blast.fasta.read(file)) for file in files]
    assert [record for piece in pieces for record in piece] == records
    assert 1 <= len(pieces) <= parts
    share = sum(lengths) / parts
    for piece in pieces:
        assert sum(len(bases) for _, bases in piece) < share + max(lengths)


def test_split_balances_bases(blast, tmp_path):
    records = [("long", "A" * 100), *((f"short{number}", "C" * 10) for number in range(10))]
    blast.fasta.write(tmp_path / "query.fa", records)
    pieces = [list(blast.fasta.read(file)) for file in blast.stages.split(tmp_path / "query.fa", 2, tmp_path)]
    assert pieces == [records[:1], records[1:]]


def test_split_refuses_a_file_of_titles(blast, tmp_path):
    (tmp_path / "query.fa").write_text(">a\n>b\n")
    with pytest.raises(ValueError, match=r"query.fa has titles, but no bases"):
        blast.stages.split(tmp_path / "query.fa", 2, tmp_path)


def test_merge(blast, tmp_path):
    texts = "q1\ts1\nq1\ts2\n", "", "q2\ts1\n"
    tables = [tmp_path / f"{number}.tsv" for number in range(len(texts))]
    for table, text in zip(tables, texts, strict=True):
        table.write_text(text)
    made = blast.stages.merge(tables, tmp_path)
    assert made == {"table": tmp_path / "hits.tsv", "hits": 3, "queries": 2}
    assert made["table"].read_text() == "".join(texts)
