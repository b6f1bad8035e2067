"""Run the command; ``python paper/figures.py --help`` describes it."""

from reproduction.figures import main

if __name__ == '__main__':
    main()
