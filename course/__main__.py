"""`python -m course` is the command `course`."""

from course.cli import main

if __name__ == "__main__":
    main()
