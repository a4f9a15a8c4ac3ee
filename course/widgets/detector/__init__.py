"""S06: six bugs as switches, alone or together, next to a healthy run or a mystery run."""
