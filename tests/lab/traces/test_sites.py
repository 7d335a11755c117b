import numpy as np
import pytest

from asa.core.errors import InvalidInput, UnknownName
from asa.core.units import DAY, HOUR
from asa.lab.core.workload import Workload
from asa.lab.simulator.run import simulate
from asa.lab.traces.sites import SITES, site

TABLE_1 = {  # cores: total waits [s] of Big Job for Montage, BLAST and Statistics
    "hpc2n": {28: (150, 70, 52), 56: (206, 133, 96), 112: (452, 165, 124)},
    "uppmax": {160: (1415, 7100, 2772), 320: (8135, 8133, 7935), 640: (10200, 10133, 10122)},
}


def waits(name, seed):
    """Mean waits of probes of an hour's wall time and a second's run time: of one core, and of Table 1's sizes."""
    model, sizes = SITES[name], (1, *TABLE_1[name])
    base = model.workload(18 * DAY, seed)
    times = np.arange(7 * DAY, 16 * DAY, HOUR)
    count = len(times) * len(sizes)
    jobs = Workload.of(
        submit=np.concatenate([base.submit, *(times + 900 * k for k in range(len(sizes)))]),
        run=np.concatenate([base.run, np.ones(count)]),
        cores=np.concatenate([base.cores, np.repeat(sizes, len(times))]),
        walltime=np.concatenate([base.walltime, np.full(count, HOUR)]),
        number=np.concatenate([np.zeros(len(base)), np.repeat(np.arange(1, len(sizes) + 1), len(times))]),
    )
    schedule = simulate(jobs, model.cluster(), model.dispatcher, priority=model.priority, keep_nodes=False)
    return [schedule.wait[jobs.number == k + 1].mean() for k in range(len(sizes))]


@pytest.mark.parametrize("name", SITES)
def test_jobs_wait_as_in_table_1(name):
    found = np.mean([waits(name, seed) for seed in range(5)], axis=0)
    for wait, (cores, published) in zip(found[1:], TABLE_1[name].items(), strict=True):
        assert wait == pytest.approx(np.mean(published), rel=0.6), cores
    assert (np.diff(found) > 0).all(), "larger jobs wait longer"
    assert found[0] < 60, "jobs of one core hardly wait"


@pytest.mark.parametrize(("name", "nodes", "cores", "load"), [("hpc2n", 602, 28, 0.775), ("uppmax", 486, 20, 0.963)])
def test_machines_and_loads_are_the_papers(name, nodes, cores, load):
    model = site(name)
    assert (model.nodes, model.cores_per_node, model.load) == (nodes, cores, load)
    jobs = model.workload(14 * DAY, 1)
    assert float(jobs.run @ jobs.cores) / (model.cores * 14 * DAY) == pytest.approx(load, rel=1e-3)
    assert type(model).from_dict(model.to_dict()) == model


def test_a_site_may_be_a_file(tmp_path):
    SITES["hpc2n"].write(tmp_path / "mine.json")
    assert site(str(tmp_path / "mine.json")) == SITES["hpc2n"]
    with pytest.raises(UnknownName, match="did you mean 'hpc2n'"):
        site("hpc2")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InvalidInput, match="no site model"):
        site(str(tmp_path / "bad.json"))
