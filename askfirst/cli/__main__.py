"""``python -m askfirst.cli`` is ``askfirst``."""

from askfirst.cli.main import main

if __name__ == "__main__":
    main()
