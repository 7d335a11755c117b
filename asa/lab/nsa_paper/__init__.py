"""Z. Lan et al., "Optimization of Topology-Aware Job Allocation ... by Neural Simulated Annealing" (2023).

Made again: Figures 4 to 6 and Tables III and IV; and all methods in a closed loop. Training needs the extra `learn`.
"""
