"""`python -m service.cli` is `coatcheck`."""

from service.cli import main

main()
