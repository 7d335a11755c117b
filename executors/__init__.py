"""How tasks run inside allocations.

::

    driver                                   node (one per node of every allocation)
    ------                                   ------------------------------------------------
    Local (local.py)                         supervisor (supervisor.py)  lives as long as the job
      Hub (hub.py), one thread  <-- wire -->   Crew (crew.py)            what runs tasks for one driver
        Dealer (deal.py)                         Worker (worker.py)      processes; each runs `call` (call.py)

`wire` is what they say to one another, `transport` how they find and trust one another, `pace` how many short tasks
travel together. Another kind of executor brings another crew: the hub names it when it welcomes a supervisor.
"""
