"""Start the command: ``python paper/figures.py --help`` says what it does."""

from reproduction.figures import main

if __name__ == '__main__':
    main()
