"""Mesos-compatible master and agents: the nodes of all allocations as one pool.

::

    framework                        master                                   agent, one on each node
    ---------------------------      -------------------------------------    -----------------------------------------
    Framework (framework.py)         Server (master/server.py)                Service (agent/service.py)
      gangs, node programs             Master (master/machine.py), no I/O       Agent (agent/machine.py), no I/O
      driver (driver.py)  <- v1 ->       Allocator (master/allocator.py)        containers (agent/containers.py)
                                       Journal (journal.py), SQLite             Link (agent/link.py)  -> master
                                                                                executors  <- v1 executor API -> agent

`codec` has the bytes, `messages` what all messages have in common, `resources` what agents have and tasks take. Master
and agent are state machines: calls, updates and the time go in, effects (`effects.py`) come out, and a thin server
carries them out: first those that must be durable, then what is sent. `asa.web` serves HTTP for both; they do not know
one another.

Scheduler, executor and operator API are those of Apache Mesos 1.11, in JSON. What master and agents say to one another
(`agent_protocol.py`) is our own: our agents cannot join another master.
"""
