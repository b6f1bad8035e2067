"""Run the command; ``python paper/search.py --help`` describes it."""

from reproduction.search import main

if __name__ == '__main__':
    main()
