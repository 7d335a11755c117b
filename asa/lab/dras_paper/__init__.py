"""Y. Fan, Z. Lan, T. Childers, P. Rich, W. Allcock and M. E. Papka, "Deep Reinforcement Agent for Scheduling in HPC",
IPDPS 2021.

Made again: Table II and Figures 2 and 3 (what a log holds), Figures 4 and 5 (trainings), Figures 6 to 9 and Table IV
(dispatchers on a log), and learning in operation (`online`). Needs the extra `learn`, but for `figures` and `logs`.
"""
