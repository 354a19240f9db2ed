"""What is required of a consumer: by CAI, and by DLPack."""
