"""``python -m assent.cli`` is ``assent``."""

from assent.cli.main import main

if __name__ == "__main__":
    main()
