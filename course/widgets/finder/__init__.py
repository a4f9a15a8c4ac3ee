"""S18: the learning-rate finder, next to what each rate is worth when it is trained with."""
