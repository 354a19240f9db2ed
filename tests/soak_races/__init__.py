"""Random programs under `cai-bridge races`: what it proves is a race, and which races it proves."""
