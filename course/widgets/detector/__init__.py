"""S06: six bugs as switches, alone and together, next to a healthy run or a mystery."""
