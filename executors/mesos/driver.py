"""Our scheduler driver: pymesos's callbacks and methods, and what pymesos lacks.

It speaks TLS, shows a token, notices a master that has fallen silent, waits longer and longer between attempts, and
sends calls without waiting for their answers. A scheduler that was written for ``pymesos.MesosSchedulerDriver`` with
``use_addict=False`` runs on it as it is; and one that was written for it runs on pymesos if it keeps to what pymesos
has.

A thread of its own does it all and calls the scheduler back. Two connections belong together: events come down the one
that subscribed, calls go up the other, one behind the other, without waiting for answers. When either breaks both are
given up and a new pair subscribes. Calls that were not answered by then are lost, whether or not they were carried out:
that cannot be known, and an ACCEPT that is carried out twice would be answered with the loss of tasks that run.
"""

from __future__ import annotations

import json
import logging
import selectors
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from asa.core.clock import Joinable
from asa.core.errors import AsaError
from executors.host import Bell
from executors.mesos.agent_protocol import STREAM_HEADER
from executors.mesos.client import ClientConnection, Endpoint, HTTPAnswer, of_pool
from executors.mesos.codec import BadMessage, Message, Records, encode
from executors.mesos.host import POOL_HOST, PoolHost
from executors.mesos.messages import SCHEDULER_PATH, field, identity
from executors.mesos.pool_directory import PoolDirectory


class Callback(NamedTuple):
    """A method's name, as pymesos has it, and its arguments, the driver aside."""

    name: str
    arguments: tuple[Any, ...] = ()


_SCHEDULER: dict[str, tuple[str, tuple[tuple[str, type], ...]]] = {
    "OFFERS": ("resourceOffers", (("offers", list),)),
    "RESCIND": ("offerRescinded", (("offer_id", dict),)),
    "UPDATE": ("statusUpdate", (("status", dict),)),
    "MESSAGE": ("frameworkMessage", (("executor_id", dict), ("agent_id", dict), ("data", str))),
    "ERROR": ("error", (("message", str),)),
    "HEARTBEAT": ("processHeartBeat", ()),
}


def of_scheduler(event: Message) -> Callback | None:
    """The scheduler's callback; None when the event is unknown or empty.

    Raises
    ------
    BadMessage
        When a field that the callback needs is missing.

    Examples
    --------
    >>> of_scheduler({"type": "RESCIND", "rescind": {"offer_id": {"value": "O1"}}})
    Callback(name='offerRescinded', arguments=({'value': 'O1'},))
    """
    kind = field(event, "type", str)
    if kind == "FAILURE":
        failure = field(event, "failure", dict)
        agent = field(failure, "agent_id", dict)
        if "executor_id" not in failure:
            return Callback("slaveLost", (agent,))
        return Callback("executorLost", (field(failure, "executor_id", dict), agent, field(failure, "status", int, -1)))
    if kind not in _SCHEDULER:
        return None
    name, needed = _SCHEDULER[kind]
    payload = field(event, kind.lower(), dict, {})
    arguments = tuple(field(payload, path, shape) for path, shape in needed)
    if kind == "UPDATE":
        for id in ("task_id", "agent_id") if "uuid" in arguments[0] else ("task_id",):
            field(arguments[0], f"{id}.value", str)
    return None if arguments == ([],) else Callback(name, arguments)


_LOG = logging.getLogger(__name__)
_FAILOVER_S = 100.0
_FIRST_S, _LONGEST_S, GOODBYE_S = 0.05, 15.0, 5.0
_FLIGHT_MOST, _UNSENT_MOST = 256, 1 << 20
_SILENT, _UNANSWERED_S = 5, 75.0

Ids = Message | Sequence[Message]
"""One id or several, each ``{"value": TEXT}``."""


class SchedulerDriver:
    """Connects a scheduler with a master.

    Parameters
    ----------
    scheduler
        Its methods are called back, on the driver's thread; those that it does not have are not missed::

            registered(driver, framework_id, master_info)       reregistered(driver, master_info)
            disconnected(driver)                                processHeartBeat(driver)
            resourceOffers(driver, offers)                      offerRescinded(driver, offer_id)
            statusUpdate(driver, status)
            frameworkMessage(driver, executor_id, agent_id, data)
            slaveLost(driver, agent_id)                         executorLost(driver, executor_id, agent_id, status)
            error(driver, message)                              callRefused(driver, call, status, reason)

        `error` comes when the driver has given up: the master has sent ERROR, or refuses this framework. What a
        callback raises ends the driver too, and `join` raises it again. `callRefused` is not in pymesos, whose methods
        raise instead: here the answer comes later.
    framework
        FrameworkInfo; without ``failover_timeout`` it gets pymesos's, 100 s. With ``id`` it takes the place of the
        scheduler that had this id.
    pool
        The directory of the master's pool.
    implicit_acknowledgements
        Whether the return of `statusUpdate` acknowledges the update; if not, the scheduler calls
        `acknowledgeStatusUpdate`.
    failover
        Whether the tasks are to outlive the driver: no TEARDOWN when it stops.

    Notes
    -----
    Calls can come from any thread and never wait; while there is no subscription they do nothing. Those that were not
    answered when the connection broke are lost: reconcile after `reregistered`. Suppressed roles stay suppressed then.
    """

    def __init__(
        self,
        scheduler: Any,
        framework: Mapping[str, Any],
        pool: PoolDirectory,
        *,
        implicit_acknowledgements: bool = True,
        failover: bool = False,
        host: PoolHost = POOL_HOST,
    ) -> None:
        self._scheduler, self._failover, self._implicit = scheduler, failover, implicit_acknowledgements
        self._framework: Message = {"failover_timeout": _FAILOVER_S} | dict(framework)
        self._suppressed: frozenset[str] = frozenset()
        self._version: str | None = None
        self._find, self._host = of_pool(pool), host
        self._bell: Bell | None = None
        self._lock = threading.Lock()
        self._session: Subscription | None = None
        self._ends: float | None = None  # when even unanswered calls are given up; None before `stop`
        self._raised: BaseException | None = None
        self._thread: Joinable | None = None
        self._number: int | None = None  # that of the thread
        self._ended = False

    # ------------------------------------------------------- what it is

    @property
    def framework_id(self) -> str | None:
        """None before it has one."""
        found: str | None = field(self._framework, "id.value", str, None)
        return found

    @property
    def connected(self) -> bool:
        return self._endpoint is not None

    @property
    def aborted(self) -> bool:
        """Whether it does not run: not yet, or not any more."""
        return self._ends is not None or self._thread is None or self._ended

    @property
    def master(self) -> str | None:
        """Where the master is, as ``host:port``; None while there is no subscription."""
        endpoint = self._endpoint
        return None if endpoint is None else f"{endpoint.hosts[0]}:{endpoint.port}"

    @property
    def version(self) -> str | None:
        """The version of Mesos that the master speaks; None before it is known."""
        return self._version

    # ------------------------------------------------------- its life

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._bell = self._host.bell()
        self._thread = self._host.start(self._run, "asa-mesos")

    def stop(self, failover: bool = False) -> None:
        """End; tasks and executors end too, unless `failover`. Returns at once: `join` waits."""
        self._stop(None if failover or self._failover else self._call("TEARDOWN"), GOODBYE_S)

    def abort(self) -> None:
        """End at once, and leave the tasks alone: another driver may come with the same id."""
        self._stop(None, 0.0)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end, or for `timeout` [s]; raises what a callback has raised."""
        if self._thread is not None and self._host.thread_id() != self._number:
            self._thread.join(timeout)
            raised, self._raised = self._raised, None
            if raised is not None:
                raise raised

    def run(self) -> None:
        self.start()
        self.join()

    # ------------------------------------------------------- calls

    def acceptOffers(self, offer_ids: Ids, operations: Sequence[Message], filters: Message | None = None) -> None:
        """Carry out operations on offers of one agent; what they leave is declined. Without any, all is."""
        if not operations:
            return self.declineOffer(offer_ids, filters)
        return self._send("ACCEPT", offer_ids=_list(offer_ids), operations=list(operations), **_given(filters=filters))

    def launchTasks(self, offer_ids: Ids, tasks: Sequence[Message], filters: Message | None = None) -> None:
        operations = [{"type": "LAUNCH", "launch": {"task_infos": list(tasks)}}] if tasks else []
        self.acceptOffers(offer_ids, operations, filters)

    def declineOffer(self, offer_ids: Ids, filters: Message | None = None) -> None:
        """Refuse offers, by default for 5 s."""
        self._send("DECLINE", offer_ids=_list(offer_ids), **_given(filters=filters))

    def reviveOffers(self, roles: Sequence[str] = ()) -> None:
        """Ask for offers again, in these roles or in all, whatever was refused."""
        self._suppressed -= set(roles) or self._suppressed
        self._send("REVIVE", **_given(roles=list(roles) or None))

    def suppressOffers(self, roles: Sequence[str] = ()) -> None:
        """Ask for no more offers, in these roles or in all."""
        self._suppressed |= set(roles or _roles(self._framework))
        self._send("SUPPRESS", **_given(roles=list(roles) or None))

    def killTask(self, task_id: Message, agent_id: Message | None = None, kill_policy: Message | None = None) -> None:
        """End a task; the result comes as a status update. Only the first parameter is in pymesos."""
        self._send("KILL", task_id=task_id, **_given(agent_id=agent_id, kill_policy=kill_policy))

    def shutdownExecutor(self, executor_id: Message, agent_id: Message) -> None:
        """End an executor and its tasks; not in pymesos."""
        self._send("SHUTDOWN", executor_id=executor_id, agent_id=agent_id)

    def acknowledgeStatusUpdate(self, status: Message) -> None:
        """Say that an update is taken care of; one that asks for no acknowledgement gets none."""
        if "uuid" in status:
            self._send("ACKNOWLEDGE", **{name: status[name] for name in ("agent_id", "task_id", "uuid")})

    def reconcileTasks(self, tasks: Sequence[Message]) -> None:
        """Ask for the latest status of these tasks, or without any, of all: ``{"task_id": ..., "agent_id": ...}``."""
        known = ("task_id", "agent_id")
        self._send("RECONCILE", tasks=[{name: task[name] for name in known if name in task} for task in tasks])

    def sendFrameworkMessage(self, executor_id: Message, agent_id: Message, data: str) -> None:
        """Send data to an executor, in base64; it may be lost."""
        self._send("MESSAGE", executor_id=executor_id, agent_id=agent_id, data=data)

    def updateFramework(self, framework: Mapping[str, Any], suppressed_roles: Sequence[str] = ()) -> None:
        """Change the FrameworkInfo, its id aside; not in pymesos."""
        own = {"id": self._framework["id"]} if "id" in self._framework else {}
        self._framework = {"failover_timeout": _FAILOVER_S} | dict(framework) | own
        self._suppressed = frozenset(suppressed_roles)
        self._send("UPDATE_FRAMEWORK", framework_info=self._framework, suppressed_roles=sorted(suppressed_roles))

    def _call(self, kind: str, **payload: Any) -> Message:
        own = {"framework_id": self._framework["id"]} if "id" in self._framework else {}
        return {"type": kind} | own | ({kind.lower(): payload} if payload else {})

    def _send(self, kind: str, **payload: Any) -> None:
        call = encode(self._call(kind, **payload))
        with self._lock:  # so that a call is never queued for a connection that is gone already
            queued = self._ends is None and self._queued(call)
        self._wake()
        if not queued:
            _LOG.debug("%s: not connected, nothing was sent", kind)

    def _stop(self, last: Message | None, wait_s: float) -> None:
        """No more events; end once the calls so far, and `last`, are answered, at the latest after `wait_s` [s]."""
        with self._lock:
            if self._ends is not None:
                return
            self._ends = self._host.monotonic() + wait_s
            if last is not None:
                self._queued(encode(last))
            if self._session is not None:
                self._session.muted = True
        self._wake()

    def _queued(self, call: bytes) -> bool:
        session = self._session
        if session is None or not session.subscribed:
            return False
        session.calls.append(call)
        return True

    def _wake(self) -> None:
        if self._host.thread_id() != self._number:
            with self._lock:
                if self._bell is not None:
                    self._bell.ring()

    @property
    def _endpoint(self) -> Endpoint | None:
        """Where it is subscribed; None while it is not."""
        session = self._session
        return session.endpoint if session is not None and session.subscribed else None

    # ------------------------------------------------------- the driver's thread

    def _run(self) -> None:
        self._number = self._host.thread_id()
        try:
            self._stay_subscribed()
        except Exception as error:
            cause = error.__cause__ if isinstance(error, CallbackFailed) else error
            _LOG.error("the driver ends, since this was raised", exc_info=cause)
            self._raised = cause
            with suppress(Exception):  # it is raised on the thread that joins; which may not happen
                self._give_up(f"the driver has ended: {cause!r}")
        finally:
            self._ends = self._ends or self._host.monotonic()
            self._disconnect()
            with self._lock:
                bell, self._bell = self._bell, None
            if bell is not None:
                bell.close()
            self._ended = True

    def _stay_subscribed(self) -> None:
        pause = _FIRST_S
        while self._ends is None:
            retry_s = 0.0
            try:
                endpoint = self._find()
                if endpoint is None:
                    raise ConnectionError("there is no master yet")
                self._serve(endpoint)
            except Rejected as rejected:
                return self._give_up(rejected.args[0])
            except AsaError as error:
                return self._give_up(str(error))
            except Busy as busy:
                retry_s = busy.args[0]
            except OSError as error:
                if self._ends is None:
                    _LOG.warning("no connection to a master: %s", error)
            if self._disconnect():
                pause = _FIRST_S
                if self._ends is None:
                    self._call_back("disconnected")
            if self._ends is None:
                self._pause(max(retry_s, pause * self._host.uniform(0.5, 1.0)))
                pause = min(2 * pause, _LONGEST_S)
        return None

    def _serve(self, endpoint: Endpoint) -> None:
        assert self._bell is not None
        session = Subscription(endpoint, self, self._bell, self._host)
        with self._lock:
            self._session = session
        own = {"suppressed_roles": sorted(self._suppressed)} if self._suppressed else {}
        session.begin(self._call("SUBSCRIBE", framework_info=self._framework, **own))
        while self._ends is None or (session.busy and self._host.monotonic() < self._ends):
            session.step(self._ends)

    def _disconnect(self) -> bool:
        """Close the connections; whether it had been subscribed."""
        with self._lock:
            session, self._session = self._session, None
        if session is None:
            return False
        session.close()
        return session.subscribed

    def _pause(self, seconds: float) -> None:
        until = self._host.monotonic() + seconds
        assert self._bell is not None
        with self._host.selector() as selector:
            selector.register(self._bell, selectors.EVENT_READ)
            while self._ends is None and (left := until - self._host.monotonic()) > 0:
                if selector.select(left):
                    self._bell.hush()

    # ------------------------------------------------------- callbacks

    def _event(self, message: Message) -> None:
        try:
            found = self._subscribed(message) if message.get("type") == "SUBSCRIBED" else of_scheduler(message)
        except BadMessage as error:
            return _LOG.error("an event that makes no sense is left out: %s", error)
        if found is None:
            return None
        if found.name == "error":
            self.abort()
        self._call_back(*found)
        if self._implicit and found.name == "statusUpdate":
            self.acknowledgeStatusUpdate(found.arguments[0])
        return None

    def _subscribed(self, message: Message) -> Callback:
        own = identity(field(message, "subscribed.framework_id.value", str))
        endpoint = self._endpoint
        where = {} if endpoint is None else {"hostname": endpoint.hosts[0], "port": endpoint.port}
        master = where | field(message, "subscribed.master_info", dict, {})
        self._version = field(master, "version", str, None)
        known = "id" in self._framework
        self._framework = self._framework | {"id": own}
        return Callback("reregistered", (master,)) if known else Callback("registered", (own, master))

    def _refused(self, call: bytes, status: int, reason: str) -> None:
        message = json.loads(call)
        _LOG.error("%s was answered with %d: %s", message["type"], status, reason)
        self._call_back("callRefused", (message, status, reason))

    def _give_up(self, reason: str) -> None:
        self.abort()
        self._call_back("error", (reason,))

    def _call_back(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        callback = getattr(self._scheduler, name, None)
        if callback is not None:
            callback(self, *arguments)
        elif name == "error":
            _LOG.error("the driver has given up: %s", arguments[0])


def _list(ids: Ids) -> list[Message]:
    return [ids] if isinstance(ids, dict) else list(ids)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _roles(framework: Message) -> list[str]:
    return list(framework.get("roles") or [framework.get("role", "*")])


# ---------------------------------------------------------------------- the subscription


class Subscription:
    """One subscription: its two connections, and the calls on their way. Other threads ring the `bell`."""

    def __init__(self, endpoint: Endpoint, driver: SchedulerDriver, bell: Bell, host: PoolHost) -> None:
        self.endpoint, self.subscribed = endpoint, False
        self.muted = False
        """Whether events are handed over no more."""
        self.calls = deque[bytes]()
        """Calls that are not sent yet; others may add to it."""
        self._driver, self._bell, self._host = driver, bell, host
        self._flying = deque[tuple[bytes, float]]()
        self._records = Records()
        self._identity: dict[str, str] = {}
        self._patience = _UNANSWERED_S
        self._watched = False
        self._selector = host.selector()
        self._stream: ClientConnection | None = None
        self._caller: ClientConnection | None = None
        self._received_at = self._host.monotonic()

    @property
    def busy(self) -> bool:
        """Whether calls are not answered yet."""
        return self.subscribed and bool(self.calls or self._flying)

    def begin(self, call: Message) -> None:
        """Connect, and send this SUBSCRIBE; raises `OSError`."""
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._stream = ClientConnection(self.endpoint, host=self._host)
        self._stream.post(SCHEDULER_PATH, encode(call), {})
        self._selector.register(self._stream, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._received_at = self._host.monotonic()

    def step(self, ends: float | None) -> None:
        """Wait for something, at the latest until `ends`, and do it.

        Raises `OSError` when a connection broke or has been silent for too long.
        """
        ready = self._selector.select(self._timeout(ends))
        active = {key.fileobj for key, _ in ready}
        for key, mask in ready:
            if key.fileobj is self._bell:
                self._bell.hush()
            elif key.fileobj is self._stream:
                self._read(self._stream, mask)
            elif self._caller is not None:
                self._answers(self._caller, mask)
        self._send()
        self._check(self._stream in active, self._caller in active)

    def close(self) -> None:
        for connection in (self._stream, self._caller):
            if connection is not None:
                connection.close()
        self._selector.close()

    def _check(self, speaking: bool, answering: bool) -> None:
        """Give up a silent peer; it does not matter if we slept, since what came meanwhile has been read by now."""
        now = self._host.monotonic()
        if not speaking and now - self._received_at > self._patience and (self._watched or not self.subscribed):
            raise TimeoutError(f"nothing was received for {now - self._received_at:.0f} s")
        if not answering and self._flying and now - self._flying[0][1] > self._patience:
            raise TimeoutError(f"a call was not answered for {now - self._flying[0][1]:.0f} s")

    def _timeout(self, ends: float | None) -> float:
        often = self._patience / 4
        return often if ends is None else max(0.0, min(often, ends - self._host.monotonic()))

    def _read(self, stream: ClientConnection, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            stream.flush()
            if not stream.unsent:
                self._selector.modify(stream, selectors.EVENT_READ)
        if not mask & selectors.EVENT_READ:
            return
        stream.receive()
        self._received_at = self._host.monotonic()
        if not stream.answers:
            return
        answer = stream.answers[0]
        if answer.status == 200:
            data = bytes(answer.body)
            answer.body.clear()
            self._identity = {STREAM_HEADER: answer.headers[STREAM_HEADER]} if _has_stream(answer) else {}
            try:
                for message in self._records.feed(data):
                    if not self.muted:
                        self._subscribed_by(message)
                        _call_back(self._driver._event, message)
            except BadMessage as error:
                raise ConnectionAbortedError(f"the stream makes no sense: {error}") from error
            if answer.complete:
                raise ConnectionResetError("the stream was ended")
        elif answer.complete:
            _raise_for(answer)

    def _subscribed_by(self, message: Message) -> None:
        if message.get("type") == "SUBSCRIBED":
            interval: float = field(message, "subscribed.heartbeat_interval_seconds", float, 0.0)
            if interval > 0:
                self._patience, self._watched = _SILENT * interval, True
            self.subscribed = True
            _LOG.info("subscribed at %s:%s", self.endpoint.hosts[0], self.endpoint.port)

    def _answers(self, caller: ClientConnection, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            caller.flush()
        if mask & selectors.EVENT_READ:
            caller.receive()
        while caller.answers and caller.answers[0].complete:
            answer = caller.answers.popleft()
            if not self._flying:
                raise ConnectionAbortedError("an answer came to no call")
            call, _ = self._flying.popleft()
            if answer.status >= 300:
                _call_back(self._driver._refused, call, answer.status, _text(answer))

    def _send(self) -> None:
        if self.calls and self._caller is None:
            self._caller = ClientConnection(self.endpoint, host=self._host)
            self._selector.register(self._caller, selectors.EVENT_READ)
        if self._caller is None:
            return
        while self.calls and len(self._flying) < _FLIGHT_MOST and self._caller.unsent < _UNSENT_MOST:
            call = self.calls.popleft()
            self._flying.append((call, self._host.monotonic()))
            self._caller.post(SCHEDULER_PATH, call, self._identity)
        self._caller.flush()
        writing = selectors.EVENT_WRITE if self._caller.unsent else 0
        self._selector.modify(self._caller, selectors.EVENT_READ | writing)


class CallbackFailed(Exception):
    """A callback raised something, which is the cause: it must not be taken for a broken connection."""


class Busy(Exception):
    """The master asks us to try again after as many seconds as its argument says."""


class Rejected(Exception):
    """The master refuses this framework, for the reason that is its argument."""


def _call_back(callback: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return callback(*arguments)
    except Exception as error:
        raise CallbackFailed from error


def _raise_for(answer: HTTPAnswer) -> None:
    if answer.status >= 500:
        seconds = 1.0
        with suppress(KeyError, ValueError):
            seconds = min(max(0.0, float(answer.headers["retry-after"])), 60.0)
        raise Busy(seconds)
    raise Rejected(f"the subscription was answered with {answer.status}: {_text(answer)}")


def _text(answer: HTTPAnswer) -> str:
    return bytes(answer.body[:1000]).decode(errors="replace").strip()


def _has_stream(answer: HTTPAnswer) -> bool:
    value = answer.headers.get(STREAM_HEADER, "")
    return 0 < len(value) <= 128 and value.isascii() and value.isprintable()
