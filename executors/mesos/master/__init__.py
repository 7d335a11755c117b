"""The master: who has what, who is offered what, and what became of each task.

::

    server.py             MasterService: journal, socket, thread; MasterServer: HTTP requests in, effects out
      machine.py            Master: calls, what agents say and the time go in, effects come out; no I/O from here on
        core.py               what its parts share, and which rows of the journal make it durable
        state.py              what the master knows
        frameworks.py         schedulers: SUBSCRIBE, failover, removal
        offers.py             made, declined, rescinded
        launch.py             ACCEPT: what a task must be, and its launch
        tasks.py              states, updates, acknowledgements, RECONCILE
        agents.py             they register, are pinged, lost, drained, given up
        operator.py           calls of operators; views.py has what they see
        allocator.py          state -> who is offered what; a pure function
"""
