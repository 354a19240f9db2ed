"""The command `cai-bridge`; `cai_bridge` itself imports none of it."""
