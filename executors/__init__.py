"""How tasks run inside allocations.

::

    driver                                   node (one per node of every allocation)
    ------                                   ------------------------------------------------
    Local (local.py)                         supervisor.py     lives as long as the job
      Station (station.py)                     Crew (crew.py)  runs tasks for one driver
        Hub (hub.py), one thread  <-- wire -->   Member (member.py), the parent's side of
          Share (deal.py)                          a worker process (worker.py), which runs
                                                     Caller (call.py)

`wire` is what they say to one another, `transport` how they find and trust one another, `room` what a node holds,
`pace` how many short tasks travel together, `processes` how they are ended for certain, `launch` and `rank` how one
task becomes many processes on several nodes. Another kind of executor brings another crew, which the hub names when it
welcomes a supervisor: that of the `dask` executor (dask.py and the modules that begin so) joins a dask scheduler.
"""
