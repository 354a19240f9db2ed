"""The requirements on a producer: by CAI, by ``__dlpack__``, by the exchange API, and by both."""
