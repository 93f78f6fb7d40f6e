"""Packages that install holdlog into hosts: `make packages`. All are made from pyproject.toml and the files here, and
from the hooks and servers that docs/hosts.md shows."""
