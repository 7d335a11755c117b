from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.lab.traces.swf_header import SwfHeader, make_header

CURIE = r"""
;   --- SWF file converted from SACCT ---
; Version: 2.2
;
; Information: http://www-hpc.cea.fr/en/complexe/tgcc-curie.htm
;              http://www.cs.huji.ac.il/labs/parallel/workload/
; MaxJobs: 773138
; UnixStartTime: 1296571124
; TimeZoneString: Europe/Paris
; Note: Curie is composed of 3 types of nodes: thin, fat, and hybrid,
;	see: http://www-hpc.cea.fr/en/complexe/tgcc-curie.htm
; MaxNodes: 5544
; MaxProcs: 93312
; Queue:  1
; Partition:  1  test
; Partition:  7  test,batch
""".splitlines()


def test_fields_of_a_real_header():
    header = SwfHeader.parse(CURIE)
    assert (header.number("MaxJobs"), header.max_nodes, header.max_procs) == (773138, 5544, 93312)
    assert (header.unix_start_time, header.get("TimeZoneString")) == (1296571124, "Europe/Paris")
    assert header.partitions == {1: "test", 7: "test,batch"}
    assert header.queues == {}, "a queue without a name has none"
    assert header.get("") == "--- SWF file converted from SACCT ---"
    assert header.get("Information").split("\n")[1] == "http://www.cs.huji.ac.il/labs/parallel/workload/"
    assert header.get("Note").endswith("hybrid,\nsee: http://www-hpc.cea.fr/en/complexe/tgcc-curie.htm")
    assert [key for key, _ in header.fields].count("Partition") == 2


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n")).map(";".__add__), max_size=8))
def test_what_is_written_reads_back(lines):
    header = SwfHeader.parse(lines)
    assert SwfHeader.parse(header.lines()) == header


@pytest.mark.parametrize(
    ("nodes", "processors", "machine"),
    [
        (None, None, None),
        ("-1", "-1", None),
        ("-1", "338", (338, 338)),
        ("256", None, (256, 256)),
        ("338 (batch partition; 512 total)", "338", (338, 338)),
        ("40960", "163840", (40960, 163840)),
        ("5544", "93312", (93312, 93312)),  # several kinds of nodes
    ],
)
def test_the_machine(nodes, processors, machine):
    found = make_header({"MaxNodes": nodes, "MaxProcs": processors}).machine()
    assert (found and (found.nodes, found.cores)) == machine


def test_a_number_that_is_none():
    header = make_header({"MaxJobs": "many", "UnixStartTime": 0})
    assert header.number("MaxJobs") is None
    assert header.unix_start_time is None
    assert header.get("Note") is None
