"""Slurm.

::

    backend.py      the Backend port: what a submission, a status and a loss mean; a site and its queue, for planning
      words.py        Slurm's records, states, errors, and a request as its options        pure
      array.py        requests as the elements of one job array                            pure
    commands.py     the transport through Slurm's commands: make a command, parse its output
    rest.py         the transport through slurmrestd
      rest_job.py     options of a job as its properties there                             pure
      rest_parse.py   slurmrestd's answers as records, and its errors                      pure
"""
