# Everything happens in .venv, which these rules make.  Needs Python >= 3.11, make and python3-venv.
PYTHON ?= python3
BIN := .venv/bin
PINNED := pip install --quiet --disable-pip-version-check --constraint constraints.txt
INSTALL := $(BIN)/$(PINNED)
OTHERS_INSTALL := pip install --quiet --disable-pip-version-check --constraint tests/integrations/constraints.txt
SNAKEMAKE_INSTALL := pip install --quiet --disable-pip-version-check --constraint plugins/snakemake/constraints.txt

# Tests start Python some thousand times: what has been compiled is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo docs test test-slow test-torture torture-real types compiled wheel sbom nightly test-slurm test-slurm-24 test-slurm-26 suite-slurm \
    test-apptainer suite-apptainer snakemake snakemake-if-possible others test-browser test-cgroup2 coverage \
    bench-cosched bench-cosched-full venv packages clean

help:
	@echo "make demo        run the Montage workflow on this machine and write an HTML report"
	@echo "make docs        build the documentation site into build/site"
	@echo "make test        check types and style, and run all tests but those of the next two lines: 10 minutes"
	@echo "make test-slow   run the tests with real agents, programs and everything that takes long"
	@echo "make test-torture  thousands of runs of the whole system under seeded faults, in virtual time: six minutes"
	@echo "make test CLOCK=fresh  make test, on a monotonic clock that starts at 0, as on a machine that has just booted (root)"
	@echo "make torture-real  such faults on real processes and a real Slurm, as root, then 50 kills of co-schedulers: TORTURE_REAL_TIME=1h"
	@echo "make wheel       dist/*.whl, with the laboratory's loops compiled: its commands need no half minute at their first use"
	@echo "make sbom        dist/asa.cdx.json: what is installed with ASA, in CycloneDX's format"
	@echo "make nightly     a hundred thousand damaged files to all readers of the laboratory: ten minutes"
	@echo "make test-slurm  install Slurm, boot a test cluster, run the integration suite, stop the cluster"
	@echo "make test-slurm-24 test-slurm-26  the same on Slurm 24.11 and 26.05, in trees of Debian's trixie and testing (root)"
	@echo "make test-apptainer  functions and programs in images, by the Apptainer of Debian sid in a tree (root): two minutes"
	@echo "make test-browser  install Chromium, open the dashboard in it: a minute; pictures are in build/screenshots"
	@echo "make test-cgroup2  boot a kernel with cgroups of version 2 in a virtual machine, run the quota suite in there"
	@echo "make snakemake   Snakemake with ASA's plugin in an environment of its own, .venv/snakemake"
	@echo "make others      Parsl and executorlib in an environment of their own, .venv/others"
	@echo "make coverage    which branches the tests of the first two lines take: a quarter of an hour; build/coverage/html"
	@echo "make bench-cosched  a queue of real jobs under each sharing rule, on an idle machine: at most 30 minutes"
	@echo "make bench-cosched-full  three loads, three seeds, all rules, for the figures in the docs: an hour"
	@echo "make venv        .venv with every extra (torch included)"

demo: .venv/.demo
	@mkdir -p demo-output
	cd demo-output && ../$(BIN)/asa run ../examples/workflows/montage/workflow.py --set cores=2 \
	    --backend local:cores=2 --strategy asa --report montage.html --json montage.json
	@echo "open demo-output/montage.html"

# Broken links, pages that the navigation forgets and docstrings that cannot be read are errors.
docs: .venv/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file docs/site/mkdocs.yml
	@echo "open build/site/index.html, or serve it, for the search: python -m http.server --directory build/site"

# Tests with these marks, so many at a time, dealt in this way (pytest-xdist's --dist); those files (default: all). Real
# processes on a busy machine miss a deadline now and then, so what failed (never a broken suite: that is another code)
# is run again, alone; with AGAIN=1 only that is done. Suites that run side by side each remember their own failures.
run = $(5) $(BIN)/pytest -m "$(1)" -o cache_dir=.pytest_cache/$@ $(4)
again = $(run) --last-failed --last-failed-no-failures=none
pytest = $(if $(AGAIN),$(again),$(run) --numprocesses=$(2) --dist=$(3) || \
    { [ $$? -eq 1 ] && echo "Once more, one at a time:" && $(again); })
# To look through all other files for a mark, in each process, takes longer than to search them for it.
marked = $(sort $(shell grep -rl --include='test_*.py' 'mark\.$(1)' tests))

# With CLOCK=fresh the monotonic clock of its tests starts at 0, as on a machine that has just booted.
test: .venv/.test packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house
	$(MAKE) --jobs=2 --output-sync=target types compiled
	$(call pytest,not slurm and not slow,3,loadfile,,$(if $(filter fresh,$(CLOCK)),tests/fresh-clock))

# Agents, masters and supervisors that really run, real programs, and whatever else takes more than a few seconds.
test-slow: .venv/.test .venv/.snakemake .venv/.others packages
	$(call pytest,slow and not slurm and not browser,4,loadfile,$(call marked,slow))

# With the laboratory's loops compiled for any processor of this architecture, this Python and this numba: two minutes.
# Elsewhere that part of it is passed over, and numba compiles at the first use. With `man asa`, too. `pip wheel .` makes
# one without either. The same commit gives the same bytes: times are those of the commit, modes do not depend on umask.
wheel: .venv/.test build/man/asa.1
	$(BIN)/python -m tests.lab.simulator.compiled asa/lab/ahead
	chmod -R u=rwX,go=rX asa coscheduler executors build/man
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	rm -rf asa/lab/ahead

build/man/asa.1: .venv/.test asa/cli/main.py
	mkdir -p build/man
	$(BIN)/argparse-manpage --module asa.cli.main --function whole_parser --prog asa --project-name ASA \
	    --description "workflow-aware elastic execution for HPC" --manual-title "ASA's commands" --output $@

# What is installed with ASA and the extras that users have, in CycloneDX's format: dist/asa.cdx.json.
sbom: build/sbom/asa build/sbom/tool
	build/sbom/asa/bin/$(PINNED) '.[cp,dask,joblib,lab,mesos,plots]'
	build/sbom/tool/bin/$(PINNED) cyclonedx-bom
	mkdir -p dist
	build/sbom/tool/bin/cyclonedx-py environment --output-reproducible --output-file dist/asa.cdx.json \
	    build/sbom/asa/bin/python

build/sbom/%:
	$(PYTHON) -m venv $@

# Drivers, hubs, supervisors and logs on simulated machines, then master, agents and frameworks of a pool, while everything
# goes wrong: the same schedules each time, as many as there is time for, so that what fails is the change's fault.
# Others: asa torture --seed N --time 8h, the same with --site mesos or --site named
test-torture: .venv/.test
	$(BIN)/asa torture --schedules 3000 --time 5m --shrink
	$(BIN)/asa torture --site mesos --schedules 200 --time 40s --shrink
	$(BIN)/asa torture --site named --schedules 100 --time 25s --shrink

# The same faults in real time: no part of CI, and no run is like another. One trial again: TORTURE_REAL="--seed 7 --trials 1"
TORTURE_REAL_TIME ?= 1h
TORTURE_REAL ?= --time $(TORTURE_REAL_TIME)
TORTURE_KILLS ?= --kills 50
torture-real: .venv/.test packages
	$(BIN)/python -m tests.torture.real $(TORTURE_REAL)
	$(BIN)/python -m tests.torture.kills $(TORTURE_KILLS)

# The same as in `make test`, ten times as many, so that each night others are among them.
nightly: .venv/.test
	ASA_FUZZ=100000 $(BIN)/pytest tests/lab/traces/test_fuzz.py --timeout=3000

types: .venv/.test
	$(BIN)/mypy

# Once, for all: each of the processes that run tests would do it by itself.
compiled: .venv/.test
	$(BIN)/python -m tests.lab.simulator.compiled

# They mostly wait for Slurm: seven at a time, each process with a cluster of its own, of which one that is done takes
# over what is left to others. The longest come first.
test-slurm: .venv/.test .venv/.snakemake packages suite-slurm

# The same on later versions: Debian releases as trees (tests/cluster/tree), each with its own Slurm and Python. First
# .venv in the tree, without what these tests do not need. Of testing's Slurm, whatever it is, the whole suite is run.
SLURM_24 := tests/integration/test_start_order.py tests/integration/test_places.py tests/integration/test_faults.py \
    tests/integration/test_mpi.py tests/integration/test_gpus.py tests/backends/slurm tests/cluster \
    tests/docs/test_cluster_pages.py

# In the tree of a release that moves, and may not be had; what of it is tested; targets.
in_moving = code=0; tests/cluster/tree $(1) || code=$$?; [ $$code -ne 77 ] || { \
    echo "SKIPPED: $(2) OF DEBIAN $(shell echo $(1) | tr a-z A-Z) CANNOT BE HAD HERE (see above)"; exit 0; }; \
    [ $$code -eq 0 ] && tests/cluster/tree $(1) $(MAKE) $(3)

test-slurm-24: packages
	tests/cluster/tree trixie $(MAKE) .venv/.slurm suite-slurm SLURM_FILES="$(SLURM_24)"

test-slurm-26: packages
	@$(call in_moving,testing,SLURM,.venv/.slurm suite-slurm)

SLURM_WORKERS ?= 7
SLURM_FILES = tests/integration/test_start_order.py tests/integration/test_driver_job.py $(call marked,slurm)
suite-slurm:
	@PATH=$$PATH:/usr/sbin slurmctld -V
	$(call pytest,slurm,$(SLURM_WORKERS),worksteal,$(SLURM_FILES))

# Of Debian's releases only sid has Apptainer.
test-apptainer: packages
	@$(call in_moving,sid,APPTAINER,.venv/.apptainer snakemake-if-possible suite-apptainer)

suite-apptainer:
	@apptainer --version
	@PATH=$$PATH:/usr/sbin slurmctld -V
	$(call pytest,slow,2,load,tests/integrations/test_apptainer.py)

# One browser for all tests, one page after the other.
test-browser: .venv/.test packages
	$(call pytest,browser,1,load,tests/browser)

# The first takes minutes: the machine is emulated. They install qemu and busybox, need root, and fail where they cannot
# run. More kills: tests/vm/run kills --kills 50
test-cgroup2: .venv/.test
	tests/vm/run
	tests/vm/run kills

# A test that fails here and not in `make test` did not have the time: everything takes twice as long.
coverage: .venv/.test packages
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -m "not slurm and not browser" --numprocesses=3 --dist=loadfile --timeout=400
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report

# Four minutes of jobs alone and their data, then ten queues. What would go beyond --within is left out, and told.
bench-cosched: .venv/.test packages
	$(BIN)/python benchmarks/cosched_real.py --cpu-cost --out build/bench-cosched-cost.json
	$(BIN)/python benchmarks/cosched_real.py --seconds 15 --loads 8 --seeds 2 --within 27m --out build/bench-cosched.json

bench-cosched-full: .venv/.test packages
	$(BIN)/python benchmarks/cosched_real.py --cpu-cost --out build/bench-cosched-cost.json
	$(BIN)/python benchmarks/cosched_real.py --nodes 4 --largest 2 --seconds 25 --loads 5,idle:5,io:5 --seeds 3 --period 2 \
	    --bound 50% --rules space,static,asax:patience_s=10,scavenger --within 57m --out build/bench-cosched-full.json

venv: .venv/.test
	$(INSTALL) -e '.[dev,learn,cp]'

# Debian packages for the tests: Slurm, BLAST, Montage, MPI. Without root it says what is missing; the tests that need
# it then skip, and say so.
packages:
	@tests/cluster/install-debian.sh all || [ "$$(id -u)" -ne 0 ]

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/pip setup.cfg constraints.txt
	$(INSTALL) -e '.[plots,montage]'
	@touch $@

.venv/.test: .venv/bin/pip setup.cfg constraints.txt
	$(INSTALL) -e '.[dev]' ./plugins/models
	$(INSTALL) --no-deps pymesos
	@touch $@

# In the trees: PyPI's torch, for their Pythons, is gigabytes of CUDA.
.venv/.slurm: .venv/bin/pip setup.cfg constraints.txt
	$(INSTALL) -e '.[slurm-tests]'
	$(INSTALL) --no-deps pymesos
	@touch $@

.venv/.apptainer: .venv/bin/pip setup.cfg constraints.txt
	$(INSTALL) -e . hypothesis pytest pytest-timeout pytest-xdist
	@touch $@

# Snakemake has fifty dependencies, and versions of its own of some that ASA has. Its executor for Slurm, for comparisons,
# lies beside: each process of Snakemake that can import it asks Slurm how it is configured.
snakemake: .venv/.snakemake

# Sid's Python may be newer than what Snakemake needs is built for: it is compiled then, if it can be.
snakemake-if-possible:
	@$(MAKE) .venv/.snakemake >/dev/null 2>&1 || echo "SKIPPED: rules of Snakemake's in images: it cannot be installed here"

.venv/.snakemake: setup.cfg plugins/snakemake/pyproject.toml plugins/snakemake/constraints.txt
	@mkdir -p .venv
	$(PYTHON) -m venv .venv/snakemake
	.venv/snakemake/bin/$(SNAKEMAKE_INSTALL) -e . ./plugins/snakemake
	.venv/snakemake/bin/$(SNAKEMAKE_INSTALL) --no-deps --upgrade --target .venv/snakemake/beside \
	    snakemake-executor-plugin-slurm snakemake-executor-plugin-slurm-jobstep
	@touch $@

# Parsl, executorlib and mpi4py, with versions of their own of some that ASA's other extras have.
others: .venv/.others

.venv/.others: setup.cfg tests/integrations/constraints.txt
	@mkdir -p .venv
	$(PYTHON) -m venv .venv/others
	.venv/others/bin/$(OTHERS_INSTALL) -e .[executorlib,parsl] executorlib
	@touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
