import shutil
import subprocess

import pytest


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
