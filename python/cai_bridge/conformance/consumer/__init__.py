"""The requirements on a consumer, by CAI and by DLPack."""
