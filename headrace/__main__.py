"""`python -m headrace` is the `headrace` command; children are started this way, so that they run the same code."""

from headrace.cli import main

if __name__ == "__main__":
    main()
