"""C. Galleguillos, Z. Kiziltan and R. Soto, "A constraint programming-based job dispatcher for modern HPC systems and
applications" (2020).

Made again: Tables 1 and 2 and Figures 4 to 7.
"""
