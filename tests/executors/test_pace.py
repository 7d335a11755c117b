from executors.assignment import Batching


def test_unknown_stages_go_singly() -> None:
    pace = Batching()
    pace.learn("other", 1e-5)
    assert pace.fit("s", 1.0) == 1


def test_a_long_task_is_remembered_for_a_while() -> None:
    pace = Batching()
    pace.learn("s", 0.05)
    short = 0
    while pace.fit("s", 0.005) == 1:
        pace.learn("s", 1e-4)
        short += 1
    assert 50 < short < 200


def test_no_more_than_so_many() -> None:
    pace = Batching()
    pace.learn("s", 0.0)
    assert pace.fit("s", 10.0) == 128
