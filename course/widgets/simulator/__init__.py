"""S07, S10: a small network learns three spiral arms while you change its settings."""
