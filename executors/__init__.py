"""How tasks run inside allocations.

::

    driver                                   node (one per node of every allocation)
    ------                                   ------------------------------------------------
    HubExecutor (hub.py)                     supervisor.py        lives as long as the job
      Hub, one thread      <-- wire.py -->     ProcessPool (worker_pool.py)  runs tasks for one driver
        Assignment (assignment.py)               WorkerProcess, the parent's side of
                                                   a worker process (worker.py), which runs
                                                     Caller

`wire` is what they send, and how they find and authenticate one another; `node` what a node is; `assignment` how much
of it is taken, and how many short tasks travel together; `processes` how processes are ended for certain; `launch` and
`remote` how one task becomes many processes on several nodes. Another kind of executor brings another worker pool,
which the hub names when it welcomes a supervisor, as `executors.dask` does.
"""

PART_OF = "asa-hpc"  # so that `asa.core.registry.check_packages` tells it from others of this name
