import gzip

import pytest


def test_fasta_lines_are_joined(blast, tmp_path):
    path = tmp_path / "some.fa"
    path.write_text(">a first one\nACGT\nAC\n\n>b\r\nTT\r\n>c\n")
    assert list(blast.fasta.read(path)) == [("a first one", "ACGTAC"), ("b", "TT"), ("c", "")]


def test_fastq_qualities_are_left_out_even_if_they_look_like_titles(blast, tmp_path):
    path = tmp_path / "some.fq"
    path.write_text("@r1 first\nACG\n+\n@II\n@r2\nT\n+r2\n>\n")
    assert list(blast.fasta.read(path)) == [("r1 first", "ACG"), ("r2", "T")]


def test_gzipped(blast, tmp_path):
    path = tmp_path / "some.fa.gz"
    path.write_bytes(gzip.compress(b">a\nACGT\n"))
    assert list(blast.fasta.read(path)) == [("a", "ACGT")]


@pytest.mark.parametrize("text", ["", "ACGT\n", "\n>a\nACGT\n"])
def test_other_files_are_refused(blast, tmp_path, text):
    (tmp_path / "some.fa").write_text(text)
    with pytest.raises(ValueError, match=r"some.fa has no sequences: expected FASTA"):
        list(blast.fasta.read(tmp_path / "some.fa"))


@pytest.mark.parametrize("record", ["r2\nAC\n+\nII\n", "@r2\nAC\n-\nII\n", "@r2\nAC\n+\nI\n", "@r2\nAC\n"])
def test_damaged_fastq_is_refused_with_its_place(blast, tmp_path, record):
    (tmp_path / "some.fq").write_text(f"@r1\nACG\n+\nIII\n{record}")
    with pytest.raises(ValueError, match=r"some.fq, line 5: expected four lines"):
        list(blast.fasta.read(tmp_path / "some.fq"))


def test_what_is_written_is_read(blast, tmp_path):
    records = [("a first one", "ACGT" * 100), ("b", "")]
    blast.fasta.write(tmp_path / "some.fa", records)
    assert list(blast.fasta.read(tmp_path / "some.fa")) == records
