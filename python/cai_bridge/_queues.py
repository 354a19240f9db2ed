"""How many queues of the device CUDA is to use, for programs whose missing waits are to show."""

QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
"""What CUDA reads of the environment as it begins. By default streams share eight queues of the
device; of two in one queue, the second waits for what is held back in the first, as if ordered.
"""
