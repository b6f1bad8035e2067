"""Start the command: ``python paper/search.py --help`` says what it does."""

from reproduction.search import main

if __name__ == '__main__':
    main()
