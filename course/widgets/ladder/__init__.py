"""S16, S17: a broken set-up climbs the debug ladder; its one-batch curve next to a healthy one."""
