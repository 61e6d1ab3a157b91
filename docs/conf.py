"""How Sphinx builds the pages."""

project = "Outlast"
author = "the Outlast authors"
project_copyright = author
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Outlast"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
