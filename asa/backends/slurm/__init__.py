"""Slurm.

::

    backend.py      the Backend port: what a submission, a status, a loss means
      submission.py   requests -> handles, or refusals
      lookup.py       how jobs stand, and which were taken
      directives.py   a request -> options and job script          pure
      array.py        requests -> one job array                    pure
      outlook.py      everybody's jobs -> a view of the queue      pure
      identity.py     whose record is it?                          pure
      states.py       a record of a job -> its state               pure
      regime.py       configuration -> what matters to planning    pure
      reach.py        which of the transports
    transport.py    the questions that are put to Slurm          a Protocol; answers are those of record.py
        cli.py          through Slurm's commands
          commands.py     a question -> a command line             pure
          parse.py        what the command printed -> records      pure
          failures.py     an error message -> kind of failure      pure
        rest.py         through slurmrestd
          rest_job.py     options of a job -> its properties       pure; rest_options.py has the table
          rest_parse.py   what slurmrestd says -> records          pure
          rest_answer.py  an HTTP answer -> kind of failure        pure
          rest_http.py    one question over HTTP
            rest_unix.py    over a Unix socket
            rest_token.py   the token that comes with it
"""
