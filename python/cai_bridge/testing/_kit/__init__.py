"""The parts of the conformance kit; what is public of them is in `cai_bridge.testing`."""
