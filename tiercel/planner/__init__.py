"""What to run: Problem and Machine in, Plan out. Pure Python; executes nothing."""
