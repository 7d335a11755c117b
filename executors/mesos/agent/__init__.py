"""The agent: what runs on one node, in which container, and what became of it.

::

    command.py            asa agent: what the node has, and which options there are
      service.py            journal, sockets, HTTP, thread; storage.py, the directory
        engine.py             the machine at work: carries out its effects, passes events to it
          link.py               the connection to the master
          containers.py         starts, limits, ends; shim.py is their parent process
          machine.py            NodeAgent: all that goes in, all that comes out; no I/O from here on down
            api.py                calls of executors and of operators
            tasks.py              tasks, executors, containers, status updates
            records.py            the state as messages, and as rows of the journal
            task_info.py          what a TaskInfo asks for
            state.py              options, state, effects
"""
