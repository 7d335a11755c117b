"""The master: who has what, who is offered what, and what became of each task.

::

    service.py            journal, socket, thread; idleness.py ends one that was started on demand
      server.py             HTTP requests in (asa.web), the machine's effects out
        legacy.py             the older GETs; plain.py has what they show
        machine.py            Master: all that goes in, all that comes out; no I/O from here on down
          core.py               what its parts share; state.py is what the master knows
          calls.py              calls of schedulers, by name
            frameworks.py         who they are: SUBSCRIBE, failover, removal; framework_info.py checks them
            offers.py             made, declined, rescinded
            accept.py             ACCEPT: validation.py (tasks), operations.py (reservations)
            tasks.py, reconcile.py, feedback.py    what they are told of tasks and operations
          items.py              what agents say
            registration.py, adoption.py    they come, with what runs on them
            agents.py             they are pinged, and lost
          operator.py           calls of operators
            maintenance.py, schedule.py, reservations.py, roles.py, quota.py    what they change
            views.py, metrics.py, redaction.py                                  what they see
          allocator.py          state -> who is offered what; a pure function
            shares.py, quota.py, filters.py, minimums.py    whose turn, how much, what not, how little
          rows.py               what of all that is durable
"""
