"""What each conversion costs, in instructions: repeatable where times are not (`make counts`)."""
