"""Writes the findings of results/ into the README, with their picture: python docs/first_screen.py."""

from pathlib import Path

from rankscope.report.readme import update_readme

update_readme(Path(__file__).parents[1])
