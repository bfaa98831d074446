"""Print what pyproject.toml says that a build needs, a requirement per line and without blanks."""

import tomllib
from pathlib import Path

document = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
for requirement in document["build-system"]["requires"]:
    print(requirement.replace(" ", ""))
