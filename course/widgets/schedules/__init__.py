"""Learning-rate schedules over updates, two at a time, and a short run with each."""
