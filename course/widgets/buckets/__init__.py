"""S19: real mistakes sorted into buckets that merge, with what each could bring at most."""
