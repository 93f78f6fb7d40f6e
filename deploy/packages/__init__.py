"""Packages that install holdlog into hosts: `make packages`. They are made from pyproject.toml, the skill here and
what `holdlog init` writes.
"""
