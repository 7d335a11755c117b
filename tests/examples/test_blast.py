"""The BLAST example."""

import gzip
import json
import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asa


@pytest.fixture(scope="session")
def blast(load_example):
    return load_example("blast", "fasta", "stages", "make_data", "check", "workflow")


@pytest.fixture(scope="session")
def programs():
    if missing := [program for program in ("makeblastdb", "blastn") if not shutil.which(program)]:
        pytest.skip(f"not on PATH: {', '.join(missing)} (Debian package ncbi-blast+)")


@pytest.fixture
def search_at_once(programs, tmp_path):
    """Call it to search for all queries of a plain file with one command; returns its output."""

    def search(query, database, task="blastn"):
        index = tmp_path / "whole" / "database"
        subprocess.run(["makeblastdb", "-in", database, "-dbtype", "nucl", "-out", index], check=True)
        argv = ["blastn", "-query", query, "-db", index, "-task", task, "-evalue", "1e-10", "-outfmt", "6"]
        return subprocess.run(argv, check=True, capture_output=True).stdout

    return search


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


@pytest.fixture
def truth(blast):
    origin = blast.make_data.Origin("s1", 101, 400, False, 0)
    return {"q1": origin, "q2": replace(origin, reverse=True), "q3": None}


def line(query, source="s1", identity=99.0, start=101, end=400):
    return f"{query}\t{source}\t{identity}\t300\t3\t0\t1\t300\t{start}\t{end}\t1e-100\t500\n"


def measure(blast, tmp_path, truth, *lines):
    (tmp_path / "hits.tsv").write_text("".join(lines))
    return blast.check.measure(tmp_path / "hits.tsv", truth)


def test_all_found(blast, tmp_path, truth):
    figures = measure(
        blast, tmp_path, truth, line("q1"), line("q1", "s9"), line("q2", identity=98.0, start=400, end=101)
    )
    assert figures == blast.check.Figures(hits=3, found=2, missed=0, mistaken=0, identity=98.5)


@pytest.mark.parametrize(
    "wrong", [{"source": "s2"}, {"start": 400, "end": 101}, {"start": 140, "end": 400}, {"start": 101, "end": 360}]
)
def test_a_best_hit_elsewhere_is_a_miss(blast, tmp_path, truth, wrong):
    figures = measure(blast, tmp_path, truth, line("q1", **wrong), line("q1"))
    assert (figures.found, figures.missed, figures.mistaken) == (0, 2, 0)


def test_a_hit_of_an_unrelated_query_is_a_mistake(blast, tmp_path, truth):
    assert measure(blast, tmp_path, truth, line("q3")).mistaken == 1


@pytest.mark.parametrize("text", [line("q4"), "q1\ts1\n"])
def test_other_tables_are_refused_with_the_line(blast, tmp_path, truth, text):
    with pytest.raises(ValueError, match=r"hits.tsv, line 2: expected 12 columns"):
        measure(blast, tmp_path, truth, line("q1"), text)


def test_problems_name_the_figure(blast):
    golden = blast.check.Figures(hits=948, found=948, missed=0, mistaken=0, identity=97.5)
    assert golden.problems(golden) == []
    assert replace(golden, hits=949, identity=97.501).problems(golden) == []
    assert replace(golden, mistaken=1).problems(golden) == ["mistaken is 1, expected 0 within 0"]
    assert replace(golden, identity=float("nan")).problems(golden) == ["identity is nan, expected 97.5 within 0.01"]


@pytest.fixture
def standard(blast, tmp_path, monkeypatch):
    """The workflow for the standard set, made in a folder of this test's own."""
    monkeypatch.chdir(tmp_path)
    return blast.workflow.workflow()


@pytest.fixture
def small(blast, tmp_path):
    blast.make_data.make_data(tmp_path, 20, 40)
    return tmp_path / "query.fa", tmp_path / "database.fa"


def run(node, tmp_path, **options):
    return asa.run(node, **{"backend": "local:cores=2", "state": tmp_path / "state", **options}).result()


@pytest.mark.slow
def test_split_search_and_merge(standard):
    graph = asa.make_graph(standard)
    assert {name: sorted(before) for name, before in graph.predecessors.items()} == {
        "makeblastdb": [],
        "split": [],
        "blastn": ["makeblastdb", "split"],
        "merge": ["blastn"],
    }
    assert [name for name, node in graph.nodes.items() if node.mapped] == ["blastn"]
    assert graph.nodes["blastn"].stage.needs.resources.cores == 2


@pytest.mark.slow
def test_the_standard_set_gives_the_golden_figures_and_the_table_of_one_search(
    blast, standard, search_at_once, tmp_path
):
    made = run(standard, tmp_path)
    example = tmp_path / "blast-data"
    figures = blast.check.measure(made["table"], blast.make_data.read_truth(example / "truth.json"))
    golden = blast.check.Figures(**json.loads((blast.folder / "golden.json").read_text()))
    assert figures.problems(golden) == []
    assert (made["hits"], made["queries"]) == (figures.hits, figures.found)
    assert made["table"].read_bytes() == search_at_once(example / "query.fa", example / "database.fa")


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "strategy"), [(1, "per-stage"), (100, "big-job")])
def test_any_number_of_parts_gives_the_same_table(blast, small, search_at_once, tmp_path, parts, strategy):
    made = run(blast.workflow.build(*small, tmp_path / "out", parts=parts), tmp_path, strategy=strategy)
    assert made["hits"] > 30
    assert made["table"].read_bytes() == search_at_once(*small)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(("genome", "hits"), [("lambda_virus_NC_001416.fa.gz", 5984), ("ecoli_mschatz.fa.gz", 1322)])
def test_real_reads_in_real_genomes(blast, search_at_once, shared_data, common, tmp_path, genome, hits):
    reads, database = shared_data / "fasta" / "lambda_longreads.fq.gz", shared_data / "fasta" / genome
    made = run(blast.workflow.build(reads, database, tmp_path / "out", parts=5, task="megablast"), tmp_path)
    assert made["hits"] == hits
    blast.fasta.write(tmp_path / "reads.fa", blast.fasta.read(reads))
    at_once = search_at_once(tmp_path / "reads.fa", common.unpack(database, tmp_path), "megablast")
    assert made["table"].read_bytes() == at_once


@pytest.mark.slow
def test_a_database_that_is_none_fails_the_run_with_the_program_s_words(blast, small, programs, tmp_path):
    query, _ = small
    (tmp_path / "junk.fa").write_text("hello\n")
    with pytest.raises(asa.RunFailed, match="does not match input format type") as failure:
        run(blast.workflow.build(query, tmp_path / "junk.fa", tmp_path / "out"), tmp_path)
    assert failure.value.stage == "makeblastdb"


@pytest.mark.slow
def test_bad_arguments_are_refused_before_anything_runs(blast, small, tmp_path):
    query, database = small
    build = blast.workflow.build
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere.fa"):
        build(tmp_path / "nowhere.fa", database, tmp_path)
    with pytest.raises(ValueError, match="BLAST cannot use paths with blanks"):
        build(query, database, tmp_path / "a b")
    with pytest.raises(ValueError, match="parts must be at least 1, not 0"):
        build(query, database, tmp_path, parts=0)
    with pytest.raises(ValueError, match="give both query and database"):
        blast.workflow.workflow(query=str(query))


@pytest.mark.slow
def test_from_the_command_line_in_another_folder(blast, run_script, small, programs, tmp_path):
    truth = blast.make_data.read_truth(tmp_path / "truth.json")
    related = sum(origin is not None for origin in truth.values())
    done = run_script("blast/workflow.py", "--query", "query.fa", "--database", "database.fa", "--out", "out")
    assert done.stdout == f"{related} hits of {related} queries: {tmp_path}/out/hits.tsv\n", done.stderr


@pytest.mark.slow
def test_importing_makes_nothing(load_example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load_example("blast", "workflow")
    assert not list(tmp_path.iterdir())
