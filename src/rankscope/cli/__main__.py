"""`python -m rankscope.cli` is `rankscope`."""

from rankscope.cli import main

main()
