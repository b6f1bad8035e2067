"""Start the command: ``python paper/tables.py --help`` says what it does."""

from reproduction.documents import main

if __name__ == '__main__':
    main()
