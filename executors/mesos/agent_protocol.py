"""What master and agents say to one another: our own, beside the API of Mesos. JSON in records, as everywhere.

An agent opens one stream, ``POST /asa/v1/agent`` with ``REGISTER``, and keeps it open: what the master has to say comes
down as records. What the agent has to say goes up as further POSTs of ``{"type": "BATCH", "batch": {"items": [...]}}``
to the same address with the header ``Mesos-Stream-Id`` of the stream, one at a time, in order; the answer is 202. When
the stream breaks the agent registers anew, with its id, and reports what it has.

Up, from agent to master (`from_agent` in the master's machine):

``REGISTER {agent_info, version, ip?, tls?, frameworks, executors, tasks, unavailability?}``
    First of all. `agent_info` is Mesos' AgentInfo: hostname, port, resources, attributes, and after the first time id.
    `ip` and `tls` say at which address operators reach that port, and whether over TLS only.
    `frameworks` is a list of FrameworkInfo, `executors` of ``{framework_id, executor_info}``, `tasks` of Task messages
    (``{task_id, framework_id, executor_id?, name, resources, state, statuses, status_update_uuid?, task_info}``): what
    runs here, and what has ended and is not acknowledged yet. `task_info` comes without ``data``.
``UPDATE {framework_id, status, latest_state}``
    A status update, durable on the agent, sent again until acknowledged; one at a time for each task, in order.
    `status` has `uuid`, `agent_id` and `executor_id`; `latest_state` is where the task stands by now, which decides
    what resources it still takes.
``EXITED_EXECUTOR {framework_id, executor_id, status}``
    An executor's process has ended; `status` as `wait` has it.
``MESSAGE {framework_id, executor_id, data}``
    From an executor to its framework.
``PONG {}``
    The answer to a ``PING``.
``UNREGISTER {reason}``
    The agent leaves for good: all it had has ended.

Down, from master to agent:

``REGISTERED {agent_id, ping_s, pings}``
    It is known by this id. The master pings every `ping_s` [s] and gives the agent up after `pings` unanswered ones; an
    agent that hears nothing for as long looks for the master anew.
``PING {}``
``RUN {framework_info, executor_info, tasks}``
    Launch TaskInfos. `executor_info` is that of the tasks' executor or, for command tasks (without ``executor``),
    absent.
``KILL {framework_id, task_id, kill_policy?}``
``ACKNOWLEDGE {framework_id, task_id, uuid}``
    A scheduler has acknowledged this update: the next one may be sent.
``MESSAGE {framework_id, executor_id, data}``
    From a framework to its executor.
``SHUTDOWN_EXECUTOR {framework_id, executor_id}``
``SHUTDOWN_FRAMEWORK {framework_id}``
    End everything of a framework; its updates need no acknowledgement any more.
``FRAMEWORK {framework_info}``
    What is known of a framework has changed.
``SHUTDOWN {message, orphaned?}``
    The agent was given up, or has to go: it ends everything that runs on it, forgets its id, and exits: well, unless it
    is `orphaned`, since jobs may wait for the end of an allocation that was released.
"""

from __future__ import annotations

PATH = "/asa/v1/agent"
STREAM_HEADER = "Mesos-Stream-Id"

PING_S = 15.0
"""How often the master pings an agent [s]; the default of Mesos."""
PINGS = 5
"""Unanswered pings after which an agent is unreachable; the default of Mesos."""
