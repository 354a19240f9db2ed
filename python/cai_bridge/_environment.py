"""Environment variables for programs whose missing waits must show."""

QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
"""Environment variables that CUDA reads when it starts.

By default streams share eight queues of the device. If two streams share a queue, the second one
waits for held-back work of the first, as if it were ordered.
"""
