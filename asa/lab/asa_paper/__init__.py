"""A. Souza, K. Pelckmans, D. Ghoshal, L. Ramakrishnan and J. Tordsson, "ASA: the adaptive scheduling algorithm".

Made again: Table 1 (`tables`, `compare`), Table 2 (`accuracy`), Figure 5 (`convergence`), Figures 6 to 9 (`tables`,
`figures`). Beside the paper: perfect prediction (`oracle`), the front of makespan and core-hours (`figures`),
estimators on recorded waits (`replay`), and a site model from a site's own log (`calibrate`).
"""
