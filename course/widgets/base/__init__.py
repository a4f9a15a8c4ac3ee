"""What all widgets stand on. Read widget.py first: it shows the smallest whole example."""
