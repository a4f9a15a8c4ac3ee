"""Collecting: turn a learning platform's download into submitted/STUDENT/ASSIGNMENT/.

entries.py   what lies in an archive or a folder, read without trusting a name, a size or a link
naming.py    whose it is, in the words of Canvas, Moodle or nbgrader's exchange
owners.py    whether an attempt in the exchange belongs to the student it names
people.py    which student of the gradebook that is, and how we know
collecting.py    which notebook, which time; written whole, and over nothing
"""
