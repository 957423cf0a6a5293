"""`python -m rankscope`: the command line."""

from rankscope.cli import main

main()
