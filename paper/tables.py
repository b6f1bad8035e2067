"""Run the command; ``python paper/tables.py --help`` describes it."""

from reproduction.documents import main

if __name__ == '__main__':
    main()
