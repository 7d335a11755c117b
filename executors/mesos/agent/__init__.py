"""The agent: what runs on one node, in which container, and what became of it.

::

    service.py            journal, sockets, thread; workdir.py, options.py (host.py, capacity.py: what the node has)
      server.py             HTTP requests in (asa.web); legacy.py, sandbox.py answer GETs
        attach.py, nested.py, pipes.py    processes that operators start inside containers
      engine.py             the machine at work: carries out its effects, tells it what happens
        link.py               the connection to the master; line.py is one, outbox.py what is not sent yet
        containers.py         starts, limits, ends; launcher.py and shim.py, their parent process; unlimited.py
        machine.py            Agent: all that goes in, all that comes out; no I/O from here on down
          core.py               what its parts share; state.py is what the agent knows, effects.py what it wants done
          launch.py             what the master wants launched and killed; command.py, environment.py read that
            tasks.py              command tasks, and groups
            executors.py          custom executors; calls.py has what they say, reports.py what of a task
            instances.py          containers, as the machine sees them; leases.py lends them CPUs
            updates.py            status updates, until they are acknowledged
          operator.py           calls of operators; views.py and metrics.py have what they see
          recovery.py, departure.py    after a restart; at the end
          rows.py               what of all that is durable
"""
