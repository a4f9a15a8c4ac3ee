"""The basis of all widgets. Read widget.py first: it shows the smallest complete example."""
