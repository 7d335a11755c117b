import base64
import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.web import hosts
from asa.web.errors import HTTPError
from asa.web.hosts import FailedAttempts
from executors.mesos.http_api import ANYONE, Principal, TokenAccess, credentials
from executors.mesos.pool_directory import AGENT, FRAMEWORK, READER, ROLES, WRITER, PoolDirectory


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def pool(tmp_path: Path) -> PoolDirectory:
    return PoolDirectory.create(tmp_path / "pool", "p")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def status(access: TokenAccess, headers: dict[str, str], peer: str = "10.0.0.1") -> int:
    with pytest.raises(HTTPError) as refused:
        access.authenticate(headers, peer)
    return refused.value.status


@pytest.mark.parametrize("role", ROLES)
def test_a_token_stands_for_its_role(role: str, pool: PoolDirectory) -> None:
    access, token = TokenAccess(pool), pool.token(role)
    assert access.authenticate(bearer(token), None) == Principal(role)
    assert access.authenticate({"Authorization": f"bearer  {token} "}, None) == Principal(role)
    basic = base64.b64encode(f"me:{token}".encode()).decode()
    assert access.authenticate({"Authorization": f"Basic {basic}"}, None) == Principal(role, "me")


def test_nearly_right_is_wrong(pool: PoolDirectory) -> None:
    access, token = TokenAccess(pool, clock=Clock()), pool.token(FRAMEWORK)
    wrong = [token[:-1], token + "0", token.upper() + "x", "", " ", "\udcff", token[::-1], token + ":" + token]
    headers = [bearer(each) for each in wrong if each != token]
    headers += [{}, {"Authorization": ""}, {"Authorization": token}, {"Authorization": f"Basic {token}"}]
    assert {status(access, each, str(k)) for k, each in enumerate(headers)} == {401}


@given(
    header=st.text(max_size=60) | st.binary(max_size=60).map(lambda data: "Basic " + base64.b64encode(data).decode())
)
def test_any_header_is_taken_apart(header: str) -> None:
    name, token = credentials(header)
    assert isinstance(token, bytes) and (name is None or name)


@pytest.mark.parametrize("role", [*ROLES, ANYONE])
@pytest.mark.parametrize("needed", ROLES)
def test_what_each_role_may_do(role: str, needed: str) -> None:
    if role in (needed, ANYONE) or (role, needed) == ("operator-write", "operator-read"):
        Principal(role).check(needed)
    else:
        with pytest.raises(HTTPError, match=f"takes the secret of {needed}") as refused:
            Principal(role).check(needed)
        assert refused.value.status == 403


def test_without_authentication_every_client_is_anyone(pool: PoolDirectory) -> None:
    access = TokenAccess(pool, required=False)
    assert access.authenticate({}, "10.0.0.1") == Principal(ANYONE)
    assert access.authenticate({"Authorization": "Basic Tm9uZTpOb25l"}, "10.0.0.1") == Principal(ANYONE)


def test_failures_of_one_address_are_counted_and_forgotten(pool: PoolDirectory) -> None:
    clock = Clock()
    access = TokenAccess(pool, clock=clock)
    for _ in range(hosts.FAILURES_MOST):
        assert status(access, {}) == 401
    assert status(access, {}) == status(access, bearer("x")) == 429
    assert status(access, {}, "10.0.0.2") == 401
    assert access.authenticate(bearer(pool.token(AGENT)), "10.0.0.1") == Principal(AGENT)
    clock.now += 3
    assert [status(access, {}) for _ in range(4)] == [401, 401, 429, 429]
    clock.now += 3600
    assert [status(access, {}) for _ in range(hosts.FAILURES_MOST + 1)] == [401] * hosts.FAILURES_MOST + [429]


def test_addresses_that_are_remembered_are_bounded() -> None:
    failures = FailedAttempts(Clock())
    for peer in range(50_000):
        failures.too_many(str(peer))
    assert len(pickle.dumps(failures)) < 400_000


def test_tokens_are_read_once_and_again_when_they_change(pool: PoolDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, reads = Clock(), 0
    token = PoolDirectory.token

    def reading(self: PoolDirectory, role: str) -> str:
        nonlocal reads
        reads += 1
        return token(self, role)

    old = pool.token(READER)
    monkeypatch.setattr(PoolDirectory, "token", reading)
    access = TokenAccess(pool, clock=clock)
    for second in range(10):
        clock.now = second
        assert access.authenticate(bearer(old), None).role == READER
    assert reads == len(ROLES)
    pool.token_file(READER).unlink()
    PoolDirectory.create(pool.path, "p")  # makes what is missing
    clock.now += 2
    assert status(access, bearer(old)) == 401
    assert access.authenticate(bearer(token(pool, READER)), None).role == READER


def test_tokens_that_others_could_read_are_not_accepted(pool: PoolDirectory) -> None:
    clock, token = Clock(), pool.token(FRAMEWORK)
    access = TokenAccess(pool, clock=clock)
    assert access.authenticate(bearer(token), None).role == FRAMEWORK
    pool.token_file(WRITER).chmod(0o644)
    clock.now += 2
    assert status(access, bearer(token)) == 503
    pool.token_file(WRITER).chmod(0o600)
    assert access.authenticate(bearer(token), None).role == FRAMEWORK
    pool.token_file(WRITER).unlink()
    clock.now += 2
    assert status(access, bearer(token)) == 503
