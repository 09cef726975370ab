"""`python -m playbook`: the command line from a checkout on PYTHONPATH, without an installed script."""

from playbook.cli import main

if __name__ == "__main__":
    main()
