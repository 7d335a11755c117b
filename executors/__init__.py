"""How tasks run inside allocations.

::

    driver                                   node (one per node of every allocation)
    ------                                   ------------------------------------------------
    Station (station.py), for local.py       supervisor.py     lives as long as the job
      Hub (hub.py), one thread  <-- wire -->   Crew (crew.py)  runs tasks for one driver
        Share (deal.py)                          Member (member.py), the parent's side of
                                                   a worker process (worker.py), which runs
                                                     Caller (call.py)

`wire` is what they say to one another, `transport` how they find and trust one another, `node` what a node is, `room`
how much of it is taken, `pace` how many short tasks travel together, `processes` how they are ended for certain,
`wakeup` how signals are waited for, `launch` and `rank` how one task becomes many processes on several nodes. Another
kind of executor brings another crew, which the hub names when it welcomes a supervisor: that of the `dask` executor
(dask.py and the modules that begin so) joins a dask scheduler.
"""
