"""Run the command; ``python paper/run.py --help`` describes it."""

from reproduction.run import main

if __name__ == '__main__':
    main()
