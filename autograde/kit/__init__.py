"""What notebooks import besides `check`: guesses, hints, the student's name, progress."""
