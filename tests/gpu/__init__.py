"""What the bridge promises, shown on a real GPU against the real libraries: plain `pytest
tests/gpu`.
"""
