"""What three newcomers do: a biologist, an engineer, an operator."""

from __future__ import annotations

from tests.definitions import ROOT
from tests.newcomers.play import Step

_SIX_LINES = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
_HERE = {"): ...": "): return image", "cores=16": "cores=2", "slurm:partition=core": "local:cores=2"}
for _theirs, _mine in _HERE.items():
    _SIX_LINES = _SIX_LINES.replace(_theirs, _mine)

SAMPLES = """
import asa

@asa.stage(cores=2)
def trim(sample):
    print("trimming sample", sample)
    return "ACGT" * (9 if sample != 7 else 0)

@asa.stage(cores=2)
def count(reads):
    print("counting", len(reads), "letters")
    return 100 / len(reads)

@asa.stage(accepts_failed=True)
def table(rates):
    good = [each for each in rates if not isinstance(each, asa.Failed)]
    return f"{len(good)} of {len(rates)} samples"

workflow = table(count.map(trim.map(range(10))))
"""

BIOLOGIST = (
    Step("", "#!/bin/sh\necho adding $# files\ncat $1 $2 > $3\n", writes="bin/mAdd"),
    Step("", f'images = ["a.fits", "b.fits"]\n{_SIX_LINES}', writes="six.py"),
    Step(
        "run README's six lines",
        "echo 1 > a.fits; echo 2 > b.fits; PATH=~/bin:$PATH python six.py",
        sees=(r"mosaic\.fits",),
    ),
    Step("see what it printed", "asa logs", sees=(r"^mAdd\[0\] adding 3 files",), stuck="was thrown away"),
    Step("", SAMPLES, writes="samples.py"),
    Step("run, with a slip", "asa run sample", sees=("did you mean 'samples.py'",), fails=True),
    Step(
        "run one bad sample",
        "asa run samples.py --keep-going --quiet",
        sees=("^'9 of 10 samples'", "1 of 10 tasks failed", "line 12, in count", "counting 0 letters", "--code FILE"),
        stuck="nine were lost",
        fails=True,
    ),
    Step("see which", "asa explain", sees=(r"count\[7\] failed .*ZeroDivisionError",), stuck="only the first"),
    Step(
        "read what it printed",
        "asa logs samples 'count[7]'",
        sees=(r"^count\[7\] counting 0 letters", "failed: ZeroDivisionError"),
        stuck="in no message",
    ),
    Step(
        "mend it, go on",
        "sed -i 's/ if sample != 7 else 0//' samples.py; asa resume samples --code samples.py --quiet && asa runs",
        sees=("^'10 of 10 samples'", "partial", "succeeded"),
        stuck="old code again",
    ),
    Step(
        "run it again",
        "asa run samples.py --reuse && asa logs",
        sees=(r"\(10 reused\)", "no task has printed anything.* 21 results of earlier runs"),
        stuck="everything ran again",
    ),
    Step(
        "report, by short name",
        "asa report samples -o r.html",
        sees=("the newest is meant", "wrote r.html"),
        stuck="was refused",
    ),
    Step(
        "free the disk",
        "asa runs --size && asa rm samples --yes && asa rm --older 1s --keep 1 --yes && asa runs",
        sees=("KiB", "removed"),
        stuck="was never freed",
    ),
)

PIPELINE = """
import asa

sort = asa.command("sort {name} --output {out}", outputs={"out": "{name}.sorted"}, walltime="10m")
unique = asa.command("uniq {name} {out}", outputs={"out": "{name}.uniq"}, walltime="10m")
merge = asa.command("sort -m {names} --output {out}", outputs={"out": "all.txt"}, walltime="10m")

def workflow(names="one.txt two.txt three.txt"):
    return merge(unique.map(sort.map(names.split())))
"""
WIDE = """
import asa

@asa.stage(cores=32, walltime="1h", run_time="20m")
def simulate(seed):
    return seed * seed % 97

@asa.stage(walltime="30m", run_time="5m")
def largest(values):
    return max(values)

workflow = largest(simulate.map(range(64)))
"""
WEIGHT = """
import re
from importlib.metadata import distribution

todo, found = ["asa-hpc"], {}
for name in todo:
    if name not in found:
        dist = distribution(name)
        found[name] = sum(file.locate().stat().st_size for file in dist.files or () if file.locate().is_file())
        todo += [re.match("[\\\\w.-]+", each)[0] for each in dist.requires or () if "extra ==" not in each]
print(f"{sum(found.values()) / 1e6:.0f} MB:", *found)
"""

ENGINEER = (
    Step(
        "see others' strengths",
        "cat $DOCS/comparison.md",
        sees=("^## Where others are better", "Snakemake, Nextflow, Parsl, executorlib", r"\*\*Not run\*\*"),
        stuck="three peers were missing",
    ),
    Step("", WEIGHT, writes="weight.py"),
    Step("weigh it", "python weight.py", sees=(r"^1?\d\d MB: asa-hpc",), never=("numba",), stuck="359 MB"),
    Step(
        "see what works",
        "asa doctor --backend local",
        sees=("^works: workflows on this machine", "^not tried: workflows on Slurm"),
    ),
    Step(
        "test it",
        "asa selftest --backend local",
        sees=(r"^a held place +yes", r"^a resume after kill -9 +yes", "^works on local"),
        stuck="no `asa selftest`",
    ),
    Step("", PIPELINE, writes="pipeline.py"),
    Step(
        "move commands over",
        "for i in one two three; do echo $i > $i.txt; done; asa run pipeline.py --dry-run && "
        "asa run pipeline.py --quiet && cat all.txt",
        sees=("nothing was submitted", "^one\nthree\ntwo$"),
        stuck="no `--dry-run`",
    ),
    Step(
        "change one file",
        "echo four > two.txt; asa run pipeline.py --reuse && cat all.txt",
        sees=(r"stage sort: done.*2 reused", "^four\none\nthree$"),
        stuck="everything ran again",
    ),
    Step("", WIDE, writes="wide.py"),
    Step(
        "quote, first use",
        "asa quote wide.py --backend sim:hpc2n",
        sees=("compiling the laboratory's loops: for their first use", "^now: done in .* core-hours"),
        stuck="silent for 37 s",
    ),
    Step(
        "compare strategies",
        "asa compare wide.py --system hpc2n --seeds 2 --days 2 --no-oracle --strategies big-job,per-stage,auto",
        sees=("^wide +32 +big-job", "^wide +32 +per-stage", "^wide +32 +auto"),
        stuck="silent for 77 s",
    ),
)

NIGHT = """
import os
import time
import asa

@asa.stage(cores=2, secrets=["LICENSE"])
def simulate(seed):
    time.sleep(0.5)
    return len(os.environ["LICENSE"])

@asa.stage
def largest(values):
    return max(values)

workflow = largest(simulate.map(range(40)))
"""
_SITE = ". ./site; "
_MINE = "for p in $(pgrep -f ^$(dirname $(which asa))/python); do "
_MINE += 'grep -qz "^HOME=$HOME$" /proc/$p/environ && ps -o args= $p; done'

OPERATOR = (
    Step("", (ROOT / "tests" / "newcomers" / "slurm.sh").read_text(), writes="slurm/fake"),
    Step("", "export LICENSE=hunter2 PATH=~/slurm:$PATH", writes="site"),
    Step("", NIGHT, writes="night.py"),
    Step(
        "see a user's jobs",
        "for each in sbatch squeue scontrol sinfo sacct sacctmgr scancel; do ln -s fake slurm/$each; done; "
        + _SITE
        + "asa run night.py --backend slurm --detach; sleep 10; squeue",
        sees=(r"^1\|.*\|night-\w+\.0", r"^2\|.*\|night-\w+\.1"),
        stuck="no `--detach`",
    ),
    Step(
        "know a job's purpose",
        _SITE + "asa explain night",
        sees=(r"simulate: ready, waits for an allocation; job 1 has been in the queue for (1\d|[5-9])",),
        stuck="named another's job",
    ),
    Step(
        "hold it, release it",
        _SITE + "asa hold night && asa status && asa release night",
        sees=("held for", "goes on"),
        stuck="no `asa status`",
    ),
    Step(
        "end it all",
        _SITE + "asa cancel night --wait 30s && sleep 5; squeue; asa clean",
        sees=("is cancelled", "no job is left behind"),
        never=("PENDING",),
        stuck="no `asa cancel`",
    ),
    Step(
        "count scheduler calls",
        "cut -d' ' -f1 calls.txt | sort | uniq -c; grep -c squeue ~/.local/state/asa/runs/*/asa.log",
        sees=("^ +4 sbatch", r"^ +1?\d squeue", "^ +1 scancel", r"^1?\d$"),
        stuck="untried",
    ),
    Step("", _MINE, writes="mine"),
    Step("", "ps -eo args | grep '[h]unter2'; grep -rl hunter2 ~/.local; true", writes="look"),
    Step(
        "see processes, no secret",
        _SITE + "asa run night.py --name day --backend local:cores=2 --orphan-grace 15s --detach; sleep 3; "
        "bash mine; bash look; asa logs day",
        sees=(r"executors\.supervisor --directory", "no task has printed"),
        never=("hunter2", "BEGIN .*PRIVATE KEY"),
        stuck="no `--detach`",
    ),
    Step(
        "kill -9 the driver",
        _SITE + "kill -9 $(asa status day | grep -o 'process [0-9]*' | cut -d' ' -f2); sleep 1; "
        "asa status day; asa clean",
        sees=("interrupted", "its driver is gone: asa resume day-", r"^day-\w+ +1 +running"),
        stuck="no `asa status`",
    ),
    Step(
        "see nothing left",
        _SITE + "sleep 15; bash mine; asa clean",
        sees=("^no job is left behind",),
        never=("executors", "asa resume"),
        stuck="untried",
    ),
    Step("let the user go on", _SITE + "asa resume day --quiet", sees=("^7$",), stuck="untried"),
)

NEWCOMERS = {"biologist": BIOLOGIST, "engineer": ENGINEER, "operator": OPERATOR}
