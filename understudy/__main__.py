"""``python -m understudy``: the command line."""

from pipelines.__main__ import main

if __name__ == "__main__":
    main()
