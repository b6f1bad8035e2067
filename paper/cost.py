"""Run the command; ``python paper/cost.py --help`` describes it."""

from reproduction.cost import main

if __name__ == '__main__':
    main()
