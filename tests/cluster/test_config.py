from pathlib import PurePosixPath

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cluster.config import REGIMES, ClusterConfig, Ports, cgroup_conf, gres_conf, slurm_conf, slurmdbd_conf


def make(**fields):
    ports = Ports(slurmctld=17002, slurmd=(17011, 17012), slurmdbd=17003, mariadb=17006, slurmrestd=17004)
    return ClusterConfig(**{"base": PurePosixPath("/tmp/c"), "hostname": "box", "ports": ports} | fields)


def parse(text):
    """Settings that stand alone on their line, and the other lines by their first key, as dictionaries."""
    alone, tables = {}, {}
    for line in text.splitlines():
        words = line.split()
        fields = dict(word.split("=", 1) for word in words)
        if len(words) == 1:
            assert not alone.keys() & fields.keys(), f"given twice: {line}"
            alone |= fields
        else:
            tables.setdefault(words[0].split("=")[0], []).append(fields)
    return alone, tables


@st.composite
def configs(draw):
    numbers = draw(st.lists(st.integers(1, 65535), min_size=5, max_size=20, unique=True))
    slurmctld, slurmdbd, mariadb, slurmrestd, *slurmd = numbers
    database = draw(st.booleans())
    return make(
        ports=Ports(slurmctld, tuple(slurmd), slurmdbd, mariadb, slurmrestd),
        cores_per_node=draw(st.integers(1, 256)),
        memory_per_node=draw(st.integers(2**20, 2**40)),
        regime=draw(st.sampled_from(REGIMES)) if database else "fifo",
        database=database,
        rest=database and draw(st.booleans()),
        min_job_age=draw(st.integers(2, 10**6)),
        process_tracking=draw(st.sampled_from(["cgroup", "linuxproc"])),
    )


@given(configs())
def test_every_node_is_declared_once_and_in_both_partitions(config):
    _alone, tables = parse(slurm_conf(config))
    nodes = tables["NodeName"]
    assert [node["NodeName"] for node in nodes] == list(config.nodes)
    assert [int(node["Port"]) for node in nodes] == list(config.ports.slurmd)
    assert {(int(n["CPUs"]), int(n["CoresPerSocket"])) for n in nodes} == {(config.cores_per_node,) * 2}
    assert {int(node["RealMemory"]) for node in nodes} == {config.memory_per_node // 2**20}
    partitions = {partition["PartitionName"]: partition for partition in tables["PartitionName"]}
    assert [name for name, partition in partitions.items() if partition["Default"] == "YES"] == ["main"]
    assert {partition["Nodes"] for partition in partitions.values()} == {",".join(config.nodes)}
    assert len(partitions) == 2


def test_lanes_are_partitions_of_one_node_each():
    config = make(lanes=True)
    _alone, tables = parse(slurm_conf(config))
    partitions = {partition["PartitionName"]: partition for partition in tables["PartitionName"]}
    assert [partitions[config.lane(number)]["Nodes"] for number in range(2)] == list(config.nodes)
    assert [name for name, partition in partitions.items() if partition["Default"] == "YES"] == ["main"]


@given(configs())
def test_slurm_and_slurmdbd_agree(config):
    controller, _tables = parse(slurm_conf(config))
    database, _tables = parse(slurmdbd_conf(config, "secret"))
    assert database["AuthInfo"] in controller["AuthInfo"].split(",")
    assert database.get("AuthAltParameters") == controller.get("AuthAltParameters")
    assert ("AuthAltTypes" in controller) == config.rest
    if config.database:
        assert controller["AccountingStoragePort"] == database["DbdPort"]
        assert f"socket={controller['AccountingStoragePass']}" == database["AuthInfo"]
    else:
        assert not any(key.startswith("AccountingStorage") for key in controller)


@given(configs(), configs())
def test_clusters_up_at_once_share_no_node_name(one, other):
    assume(one.ports.slurmctld != other.ports.slurmctld)
    assert not set(one.nodes) & set(other.nodes)


@given(st.text(st.sampled_from("abcXYZ019/._+-"), max_size=120).map("/a".__add__))
def test_an_accepted_base_leaves_room_for_the_longest_socket(path):
    base = PurePosixPath(path)
    assume(".." not in base.parts)
    node = make().nodes[-1]
    longest = f"{base}/spool/{node}/{node}_12345678.4294967291"
    if len(longest) <= 107:
        assert make(base=base).base == base
    else:
        with pytest.raises(ValueError, match="too long"):
            make(base=base)


@pytest.mark.parametrize("path", ["relative", "/with blank", "/with,comma", "/with%n", "/a/../b", "/with#hash", "/"])
def test_a_base_that_slurm_would_misread_is_refused(path):
    with pytest.raises(ValueError, match="base"):
        make(base=PurePosixPath(path))


def test_a_base_too_long_for_sockets_says_by_how_much():
    longest = "/" + "x" * 62
    make(base=PurePosixPath(longest))
    with pytest.raises(ValueError, match="2 characters too long"):
        make(base=PurePosixPath(longest + "xx"))


@pytest.mark.parametrize(
    ("regime", "expected"),
    [
        ("fifo", {"PriorityType": "priority/basic"}),
        ("multifactor", {"PriorityType": "priority/multifactor", "PriorityWeightAge": "100000"}),
        ("limits", {"PriorityType": "priority/multifactor", "AccountingStorageEnforce": "limits"}),
        ("accrue-always", {"PriorityType": "priority/multifactor", "PriorityFlags": "ACCRUE_ALWAYS"}),
    ],
)
def test_what_sets_the_regimes_apart(regime, expected):
    alone, _tables = parse(slurm_conf(make(regime=regime, database=True)))
    keys = {"PriorityType", "AccountingStorageEnforce", "PriorityFlags"} | expected.keys()
    assert {key: alone[key] for key in keys & alone.keys()} == expected


@pytest.mark.parametrize("regime", ["multifactor", "limits", "accrue-always"])
def test_a_regime_that_counts_age_needs_the_database(regime):
    with pytest.raises(ValueError, match="needs database"):
        make(regime=regime)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cores_per_node", 0),
        ("memory_per_node", 2**20 - 1),
        ("regime", "random"),
        ("min_job_age", 1),
        ("cred_expire", 4),
        ("node_timeout", 4),
        ("rest", True),
        ("gpus", ("2", "2", "2")),
        ("gpus", ("a100",)),
        ("gpus", ("0",)),
        ("gres", ("nvme",)),
        ("features", ("new", "", "old")),
        ("features", ("new|old",)),
        ("ports", Ports(17002, (), 17003, 17006, 17004)),
        ("ports", Ports(17002, (17002,), 17003, 17006, 17004)),
        ("ports", Ports(0, (17011,), 17003, 17006, 17004)),
    ],
)
def test_a_field_out_of_bounds_is_named(field, value):
    with pytest.raises(ValueError, match=field):
        make(**{field: value})


def test_a_setting_replaces_the_line_of_its_key_or_adds_one():
    alone, _tables = parse(slurm_conf(make(settings=(("KillWait", "1"), ("MaxJobCount", "50")))))
    assert (alone["KillWait"], alone["MaxJobCount"]) == ("1", "50")


def test_what_can_be_tuned_reaches_the_file():
    config = make(min_job_age=7, cred_expire=9, node_timeout=8, process_tracking="cgroup", cgroup_root="/cg")
    alone, _tables = parse(slurm_conf(config))
    assert (alone["MinJobAge"], alone["SlurmdTimeout"], alone["ProctrackType"]) == (
        "7",
        "8",
        "proctrack/cgroup",
    )
    assert "cred_expire=9" in alone["AuthInfo"].split(",")
    assert parse(cgroup_conf(config))[0]["CgroupMountpoint"] == "/cg"


def test_nodes_have_gpus_with_a_device_file_each():
    config = make(gpus=("a100:2", "1"))
    alone, tables = parse(slurm_conf(config))
    assert alone["GresTypes"] == "gpu"
    assert [node["Gres"] for node in tables["NodeName"]] == ["gpu:a100:2", "gpu:1"]
    first, second = config.nodes
    lines = parse(gres_conf(config))[1]["NodeName"]
    assert [line.get("Flags") for line in lines] == ["nvidia_gpu_env", "nvidia_gpu_env", None]
    devices = [(line["NodeName"], line.get("Type"), line["File"]) for line in lines]
    assert devices == [
        (first, "a100", f"/tmp/c/gpus/{first}/nvidia0"),
        (first, "a100", f"/tmp/c/gpus/{first}/nvidia1"),
        (second, None, f"/tmp/c/gpus/{second}/nvidia0"),
    ]
    assert "GresTypes" not in slurm_conf(make()) and gres_conf(make()) == ""


def test_nodes_have_gpus_of_several_types_and_other_gres():
    config = make(gpus=("a100:1+t4:2",), gres=("", "nvme:2"))
    alone, tables = parse(slurm_conf(config))
    assert alone["GresTypes"] == "gpu,nvme"
    assert [node["Gres"] for node in tables["NodeName"]] == ["gpu:a100:1,gpu:t4:2", "nvme:2"]
    assert [line["Type"] for line in parse(gres_conf(config))[1]["NodeName"]] == ["a100", "t4", "t4"]


def test_nodes_have_features():
    nodes = parse(slurm_conf(make(features=("", "new,ib"))))[1]["NodeName"]
    assert [node.get("Features") for node in nodes] == [None, "new,ib"]


def test_slurmdbd_conf_has_the_password():
    assert parse(slurmdbd_conf(make(database=True), "s3cret"))[0]["StoragePass"] == "s3cret"
