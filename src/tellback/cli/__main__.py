"""Entry point of `python -m tellback.cli`, which is the same as `tellback`."""

from tellback.cli import main

if __name__ == "__main__":
    main()
