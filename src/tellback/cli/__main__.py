"""`python -m tellback.cli`: the same as `tellback`."""

from tellback.cli import main

if __name__ == "__main__":
    main()
