import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.messages import identity
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.master.world import World, executor_info, task_info


def test_an_offer_says_where_and_what() -> None:
    world = World()
    framework = world.subscribe()
    attributes = [{"name": "slurm_job_id", "type": "TEXT", "text": {"value": "4711"}}]
    info = {"hostname": "10.0.0.3", "port": 5051, "resources": [], "attributes": attributes}
    info["resources"] = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 2}}]
    agent = world.agent(agent_info=info)
    (offer,) = world.offers(framework)
    assert offer == {
        "id": identity("M-O1"),
        "framework_id": identity(framework),
        "agent_id": identity(agent),
        "hostname": "10.0.0.3",
        "url": {
            "scheme": "http",
            "address": {"hostname": "10.0.0.3", "ip": "10.0.0.3", "port": 5051},
            "path": "/slave(1)",
            "query": [],
        },
        "allocation_info": {"role": "*"},
        "resources": [
            {
                "name": "cpus",
                "type": "SCALAR",
                "scalar": {"value": 2.0},
                "role": "*",
                "allocation_info": {"role": "*"},
            }
        ],
        "attributes": attributes,
        "executor_ids": [],
    }


def test_an_offer_says_in_which_domain() -> None:
    world = World()
    framework = world.subscribe()
    domain = {"fault_domain": {"region": {"name": "r1"}, "zone": {"name": "z1"}}}
    world.agent(agent_info={"hostname": "n1", "port": 5051, "resources": to_json(scalars(cpus=1)), "domain": domain})
    (offer,) = world.offers(framework)
    assert offer["domain"] == domain


def test_an_offer_names_the_executors_that_run_there() -> None:
    world = World()
    agent, framework = world.agent(ip="10.0.0.9", tls=True), world.subscribe()
    world.take(framework)
    world.start(framework, task_info("t", agent, executor=executor_info("e")), refuse_s=0)
    (offer,) = world.offers(framework)
    assert offer["executor_ids"] == [identity("e")]
    assert offer["url"]["address"]["ip"] == "10.0.0.9" and offer["url"]["scheme"] == "https"


def test_an_event_has_so_many_offers_at_most() -> None:
    world = World(offers_most=3)
    for _ in range(7):
        world.agent()
    records = [record for record in world.take(world.subscribe()) if record["type"] == "OFFERS"]
    assert [len(record["offers"]["offers"]) for record in records] == [3, 3, 1]


def test_what_is_declined_goes_to_the_next_and_not_back() -> None:
    world = World()
    world.agent()
    first, second = world.subscribe(), world.subscribe()
    (offer,) = world.offers(first)
    assert world.offers(second) == []
    world.call(first, "DECLINE", {"offer_ids": [offer["id"], identity("unknown")]})
    assert world.offers(first) == [] and len(world.offers(second)) == 1


@pytest.mark.parametrize(
    ("filters", "refused_s"),
    [
        ({}, 5),
        ({"filters": {}}, 5),
        ({"filters": {"refuse_seconds": 30}}, 30),
        ({"filters": {"refuse_seconds": -3}}, 5),
    ],
)
def test_refusals_end(filters: Message, refused_s: float) -> None:
    world = World()
    world.agent()
    framework = world.subscribe()
    (offer,) = world.offers(framework)
    world.call(framework, "DECLINE", {"offer_ids": [offer["id"]]} | filters)
    world.sleep(refused_s - 1.5)
    assert world.offers(framework) == []
    world.sleep(3)
    assert len(world.offers(framework)) == 1


def test_a_refusal_for_no_time_is_none() -> None:
    world = World()
    world.agent()
    framework = world.subscribe()
    (offer,) = world.offers(framework)
    world.call(framework, "DECLINE", {"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 0}})
    assert len(world.offers(framework)) == 1


@pytest.mark.parametrize(
    "payload",
    [
        {"offer_ids": identity("M-O1")},
        {"offer_ids": ["M-O1"]},
        {"offer_ids": [{"value": 1}]},
        {"offer_ids": [], "filters": 3},
        {"offer_ids": [], "filters": {"refuse_seconds": "soon"}},
        {"offer_ids": [identity("M-O1")], "filters": {"refuse_seconds": "NaN"}},
    ],
)
def test_malformed_declines_change_nothing(payload: Message) -> None:
    world = World()
    world.agent()
    framework = world.subscribe()
    with pytest.raises(HTTPError):
        world.call(framework, "DECLINE", payload)
    assert list(world.state.offers) == ["M-O1"]


def test_half_of_a_bad_decline_is_not_done() -> None:
    world = World()
    world.agent(), world.agent()
    framework = world.subscribe()
    with pytest.raises(HTTPError):
        world.call(framework, "DECLINE", {"offer_ids": [identity("M-O1"), identity("M-O2"), 3]})
    assert len(world.state.offers) == 2


def test_offers_that_nobody_answers_are_rescinded() -> None:
    world = World(offer_timeout_s=30)
    world.agent()
    framework = world.subscribe()
    world.take(framework)
    world.sleep(29)
    assert world.take(framework) == []
    world.sleep(2)
    assert world.types(framework) == ["RESCIND", "OFFERS"]


def test_offers_are_numbered_on_after_a_restart() -> None:
    world = World()
    agent = world.agent()
    framework = world.subscribe()
    before = set(world.state.offers)
    world.restart()
    world.agent(agent)
    world.subscribe(framework)
    assert world.state.offers and not before & set(world.state.offers)


def test_what_is_offered_is_neither_free_nor_used() -> None:
    world = World()
    agent = world.agent(resources=scalars(cpus=2))
    framework = world.subscribe()
    found = world.state.agents[agent]
    assert found.offered == scalars(cpus=2) and not found.free and not found.used
    world.start(framework, task_info("t", agent), refuse_s=100)
    assert not found.offered and found.free == found.used == scalars(cpus=1)
