"""Learning-rate schedules against updates, two at a time, and what each makes of a short run."""
