"""Packages that install holdlog into hosts: `make packages`. They are made from pyproject.toml, the skill in this folder
and what `holdlog init` writes.
"""
