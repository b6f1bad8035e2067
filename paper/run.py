"""Start the command: ``python paper/run.py --help`` says what it does."""

from reproduction.run import main

if __name__ == '__main__':
    main()
