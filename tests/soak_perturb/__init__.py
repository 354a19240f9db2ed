"""Random programs over the driver in software: does `cai-bridge perturb` find what the simulated
device's happens-before check calls a race, and nothing else?
"""
