import json

import pytest

import asa

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(("parts", "strategy"), [(1, "per-stage"), (100, "big-job")])
def test_any_number_of_parts_gives_the_same_table(blast, small, search_at_once, tmp_path, parts, strategy):
    made = run(blast.workflow.build(*small, tmp_path / "out", parts=parts), tmp_path, strategy=strategy)
    assert made["hits"] > 30
    assert made["table"].read_bytes() == search_at_once(*small)


@pytest.mark.shared
@pytest.mark.parametrize(("genome", "hits"), [("lambda_virus_NC_001416.fa.gz", 5984), ("ecoli_mschatz.fa.gz", 1322)])
def test_real_reads_in_real_genomes(blast, search_at_once, shared_data, common, tmp_path, genome, hits):
    reads, database = shared_data / "fasta" / "lambda_longreads.fq.gz", shared_data / "fasta" / genome
    made = run(blast.workflow.build(reads, database, tmp_path / "out", parts=5, task="megablast"), tmp_path)
    assert made["hits"] == hits
    blast.fasta.write(tmp_path / "reads.fa", blast.fasta.read(reads))
    at_once = search_at_once(tmp_path / "reads.fa", common.unpack(database, tmp_path), "megablast")
    assert made["table"].read_bytes() == at_once


def test_a_database_that_is_none_fails_the_run_with_the_program_s_words(blast, small, programs, tmp_path):
    query, _ = small
    (tmp_path / "junk.fa").write_text("hello\n")
    with pytest.raises(asa.RunFailed, match="does not match input format type") as failure:
        run(blast.workflow.build(query, tmp_path / "junk.fa", tmp_path / "out"), tmp_path)
    assert failure.value.stage == "makeblastdb"


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


def test_from_the_command_line_in_another_folder(blast, run_script, small, programs, tmp_path):
    truth = blast.make_data.read_truth(tmp_path / "truth.json")
    related = sum(origin is not None for origin in truth.values())
    done = run_script("blast/workflow.py", "--query", "query.fa", "--database", "database.fa", "--out", "out")
    assert done.stdout == f"{related} hits of {related} queries: {tmp_path}/out/hits.tsv\n", done.stderr


def test_importing_makes_nothing(load_example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load_example("blast", "workflow")
    assert not list(tmp_path.iterdir())
