from dataclasses import replace

import pytest


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
