"""Start the command: ``python paper/cost.py --help`` says what it does."""

from reproduction.cost import main

if __name__ == '__main__':
    main()
