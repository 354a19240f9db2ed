"""The parts of the conformance kit. `cai_bridge.testing` has the public ones."""
