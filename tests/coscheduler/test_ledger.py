import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from asa.core.decision import Start
from asa.core.errors import IllegalDecision, InvalidInput
from coscheduler.ledger import Ledger
from coscheduler.nouns import ALONE, FLOOR, Evict, JobStates, Keep, SetShare, StartGuest, WaitingJob

CORES = 16


def states(n):
    return JobStates(np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool), np.zeros(n), np.ones(n))


def ledger(*sizes, cores=CORES):
    made = Ledger(cores)
    for number, size in enumerate(sizes):
        made.submit(WaitingJob(f"j{number}", "a", size, 60.0))
    return made


class Books(RuleBasedStateMachine):
    """Any decisions, legal or not, and any ends: nothing is lost, and nobody falls below the floor."""

    def __init__(self):
        super().__init__()
        self.ledger, self.submitted, self.ended = Ledger(CORES), 0, 0

    @rule(cores=st.integers(1, CORES), exclusive=st.booleans())
    def submit(self, cores, exclusive):
        self.ledger.submit(WaitingJob(f"j{self.submitted}", "a", cores, 60.0, exclusive=exclusive))
        self.submitted += 1

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def decide(self, data):
        name = st.integers(0, self.submitted - 1).map("j{}".format)
        share = st.floats(0, 1)
        decision = data.draw(
            st.one_of(
                st.builds(Start, name),
                st.builds(StartGuest, name, name, share, st.booleans()),
                st.builds(SetShare, name, share),
                st.builds(Evict, name),
                st.builds(Keep, name),
            )
        )
        before = self.facts()
        try:
            self.ledger.apply(decision, 0.0)
        except IllegalDecision:
            assert self.facts() == before

    @precondition(lambda self: self.ledger.running)
    @rule(data=st.data())
    def end(self, data):
        self.ledger.end(data.draw(st.sampled_from(sorted(self.ledger.running))))
        self.ended += 1

    def facts(self):
        running = {name: (each.host, each.share, list(each.guests)) for name, each in self.ledger.running.items()}
        return running, self.ledger.queue, self.ledger.free

    @invariant()
    def nothing_is_lost(self):
        running = self.ledger.running
        held = sum(each.job.cores for each in running.values() if each.host is None)
        assert held + self.ledger.free == CORES and self.ledger.free >= 0
        assert len(running) + len(self.ledger.queue) + self.ended == self.submitted
        places = [int(job.name[1:]) for job in self.ledger.queue]
        assert places == sorted(places)

    @invariant()
    def nobody_is_below_the_floor(self):
        running = self.ledger.running
        for name, each in running.items():
            assert self.ledger.own_share(name) >= FLOOR - 1e-6
            if each.host is None:
                shares = [running[guest].share for guest in each.guests]
                assert sum(shares) + self.ledger.own_share(name) == pytest.approx(1)
                assert all(running[guest].host == name for guest in each.guests)
                assert sum(running[guest].job.cores for guest in each.guests) <= each.job.cores
            else:
                assert running[each.host].host is None and name in running[each.host].guests

    @invariant()
    def the_view_tells_it(self):
        view = self.ledger.view(1.0, states(len(self.ledger.running)))
        for row, name in enumerate(view.running.names):
            host = int(view.running.host[row])
            assert (None if host == ALONE else view.running.names[host]) == self.ledger.running[name].host


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


def test_guests_keep_the_cores_that_they_have():
    books = ledger(8, 4, 2, 3)
    books.apply(Start("j0"), 0.0)
    for guest in ("j1", "j2"):
        books.apply(StartGuest(guest, "j0", 0.1), 0.0)
    with pytest.raises(IllegalDecision, match="needs 3 cores, 2 of its host's are no other guest's"):
        books.apply(StartGuest("j3", "j0", 0.1), 0.0)
    assert books.end("j0") == ("j1", "j2")
    assert books.running["j1"].host is books.running["j2"].host is None
    assert books.free == CORES - 6


@pytest.mark.parametrize(
    ("decision", "law"),
    [
        (Start("j9"), "no such job waits"),
        (Start("j1"), "12 cores, 8 are free"),
        (StartGuest("j1", "j0", 0.1), "needs 12 cores, 8 of its host's are no other guest's"),
        (StartGuest("j2", "j9", 0.1), "the host must be a running job"),
        (StartGuest("j2", "j0", 0.01), "a share from 0.05 to 0.95"),
        (StartGuest("j3", "j0", 0.1), "exclusive"),
        (SetShare("j0", 0.1), "no such guest"),
        (Evict("j0"), "no such guest"),
        (Keep("j1"), "no such job runs"),
    ],
)
def test_laws(decision, law):
    books = ledger(8, 12, 4)
    books.submit(WaitingJob("j3", "a", 1, 60.0, exclusive=True))
    books.apply(Start("j0"), 0.0)
    with pytest.raises(IllegalDecision, match=law):
        books.apply(decision, 0.0)


def test_an_evicted_guest_has_its_place_again():
    books = ledger(8, 4, 4)
    books.apply(Start("j0"), 0.0)
    books.apply(StartGuest("j1", "j0", 0.1), 0.0)
    books.apply(Evict("j1"), 5.0)
    assert [job.name for job in books.queue] == ["j1", "j2"]


def test_jobs_that_never_fit_or_share_a_name_are_refused():
    with pytest.raises(InvalidInput, match="a machine of 0 cores: at least 1"):
        Ledger(0)
    with pytest.raises(InvalidInput, match="17 cores"):
        ledger(17)
    books = ledger(1)
    with pytest.raises(InvalidInput, match="two jobs called"):
        books.submit(WaitingJob("j0", "a", 1, 60.0))
